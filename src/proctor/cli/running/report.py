"""Prints a job that has ended: its numbers with their denominators, and where to look next."""

import os
import shlex
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path

import msgspec

from proctor.cli.output import print_json, print_line
from proctor.cli.running.reasons import (
    ErrorExample,
    collect_errors,
    collect_partial,
    describe_errors,
    render_errors,
    render_partial,
)
from proctor.cli.running.replays import Replays, count_replays, render_replays
from proctor.cli.stdout import print_stderr
from proctor.cli.tables import (
    count_group,
    render_group,
    render_metric,
    render_parts,
    render_passes,
)
from proctor.errors import JobError
from proctor.files import read_small
from proctor.harbor.documents import load_details
from proctor.harbor.record import find_seconds
from proctor.harbor.stats import (
    Group,
    GroupStats,
    JobResult,
    JobStats,
    render_result,
    stats_document,
)
from proctor.job.flakes import Flakes, NotReverified, TaskFlakes
from proctor.job.options import JobOutcome, SealedTrials
from proctor.ledger.place import find_url
from proctor.record.cost import LARGEST_USD
from proctor.record.outcome import (
    MISSING,
    Summary,
    explain_resolved,
    render_line,
    summarize_result,
)
from proctor.record.reasons import ReasonCode
from proctor.sentence import count_of, render_duration, render_money, render_percent
from proctor.traces.failures import PASSED, name_exception
from proctor.trial.clean_room_result import LARGEST, CleanRoomResult, parse_clean_room
from proctor.trial.finding import Finding, FindingCode, Level, level_of, meaning_of, sort_codes
from proctor.trial.paths import TrialPaths

# Agreement of repeated verifications


_MOST = 20
_DIGEST = 12


def render_flakes(flakes: Flakes | None) -> Iterator[str]:
    """Render the agreement; tasks with the most disagreement come first."""
    if flakes is None:
        return
    yield f"verified {count_of(flakes.n, 'time')} more (flakes.json); scores are unchanged:"
    shown = sorted(flakes.tasks, key=lambda task: -task.flake_rate)
    for task in shown[:_MOST]:
        yield f"  {_render_task(task)}"
    if len(shown) > _MOST:
        yield f"  … and {len(shown) - _MOST} more; --json lists all"
    yield from _render_not_again(flakes.not_again)


def _render_task(task: TaskFlakes) -> str:
    name = task.task if task.step is None else f"{task.task}, {task.step}"
    state = "" if task.state == "frozen" else f", {task.state}"
    return (
        f"{name} ({task.task_checksum[:_DIGEST]}): flake rate {render_metric(task.flake_rate)}, "
        f"{count_of(task.results, 'result')} in {count_of(task.verifications, 'verification')} of "
        f"{count_of(len(task.trials), 'trial')}{state}"
    )


def _render_not_again(missed: list[NotReverified]) -> Iterator[str]:
    """One line for each reason."""
    reasons: dict[str, list[str]] = {}
    for one in missed:
        reasons.setdefault(one.reason, []).append(one.trial)
    for reason, trials in list(reasons.items())[:_MOST]:
        more = " …" if len(trials) > 1 else ""
        text = f"{count_of(len(trials), 'trial')}, {trials[0]}{more}"
        yield f"  not re-verified, or fewer times than requested: {text}: {reason}"


def describe_flakes(flakes: Flakes | None) -> object:
    """The agreement as JSON."""
    return None if flakes is None else msgspec.to_builtins(flakes)


# Integrity findings of a job's trials


UNREADABLE = "unreadable"
"""The kind that is used if a trial's findings cannot be read."""

_decode = msgspec.json.Decoder(list[Finding]).decode


def collect_findings(directory: Path, trials: Iterable[str]) -> Mapping[str, list[str]]:
    """Trials with findings, by kind of finding: alarms first, else in order of occurrence."""
    found: dict[str, list[str]] = {}
    for trial in trials:
        for kind in _find_kinds(f"{directory}/{trial}/findings.json"):
            found.setdefault(kind, []).append(trial)
    return {kind: found[kind] for kind in sort_codes(found)}


def count_alarmed(findings: Mapping[str, list[str]]) -> int:
    """The number of trials with an alarm."""
    alarms = (trials for kind, trials in findings.items() if level_of(kind) is Level.ALARM)
    return len({trial for trials in alarms for trial in trials})


def _find_kinds(path: str) -> list[str]:
    if not os.path.lexists(path):
        return []
    try:
        return list(dict.fromkeys(str(finding.code) for finding in _decode(read_small(path))))
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return [UNREADABLE]


# Clean rooms of a job


@dataclass(frozen=True, slots=True)
class CleanRooms:
    """The clean rooms of a job's trials."""

    run: int = 0
    """Trials whose tests were run again in a clean room."""
    differ: int = 0
    """Trials with a different result there."""
    skipped: int = 0
    """Trials with a finding that says why it was skipped, or not complete."""
    seconds: float = 0.0
    """The time they all took."""
    trial_seconds: float = 0.0
    """The time of the trials, including clean rooms."""


def count_clean_rooms(
    directory: Path, trials: Iterable[str], skipped: Collection[str]
) -> CleanRooms:
    """Count the clean rooms of trials; `skipped` are those with a finding that one was skipped."""
    all_paths = [TrialPaths(directory / trial) for trial in trials]
    found = [each for paths in all_paths if (each := _load(paths.clean_room_path)) is not None]
    # Many jobs have none; then the times, which are in many files, say nothing.
    timed = all_paths if found else ()
    trial_seconds = sum(_load_seconds(paths.trial_dir) for paths in timed)
    ran = [each for each in found if not each.is_skipped]
    return CleanRooms(
        run=len(ran),
        differ=sum(each.is_different for each in ran),
        skipped=len(skipped),
        seconds=round(sum(each.seconds for each in found), 6),
        trial_seconds=trial_seconds,
    )


def _load(path: Path) -> CleanRoomResult | None:
    try:
        found = parse_clean_room(read_small(str(path), LARGEST))
    except OSError:
        return None
    return found if isinstance(found, CleanRoomResult) else None


def _load_seconds(trial: Path) -> float:
    try:
        details = load_details(str(trial))
    except JobError:
        return 0.0
    return (find_seconds(details) if details else None) or 0.0


def render_clean_rooms(rooms: CleanRooms) -> Iterator[str]:
    """One line; empty if no trial had or missed a clean room."""
    if not rooms.run and not rooms.skipped:
        return
    skipped = f", {rooms.skipped:,} skipped" if rooms.skipped else ""
    counts = f"{rooms.run:,} run, {rooms.differ:,} differ{skipped}"
    share = ""
    if rooms.trial_seconds > 0:
        share = f" ({render_percent(rooms.seconds / rooms.trial_seconds)} of trial time)"
    cost = f"; {render_duration(rooms.seconds)}{share}" if rooms.run else ""
    yield f"clean rooms: {counts}{cost}"


def describe_clean_rooms(rooms: CleanRooms) -> dict[str, object]:
    """The clean rooms as JSON."""
    document = asdict(rooms)
    del document["trial_seconds"]
    return document


_MOST_REFUSED = 20


class Report(msgspec.Struct, frozen=True):
    """A job that ended, and the findings of its trials."""

    outcome: JobOutcome
    findings: Mapping[str, list[str]]
    seconds: float
    """The time that this command took."""
    clean_rooms: CleanRooms
    errors: Mapping[str, list[ErrorExample]]
    """Examples of each class of exceptions."""
    partial: Mapping[str, list[str]]
    """Trials with partial records, by what is missing."""
    replays: Replays | None = None
    """How requests were answered from a recording; None if models were asked."""

    @property
    def exit_code(self) -> int:
        """130 if interrupted, 3 if a trial has no score, else 0."""
        counts = self.outcome.counts
        if self.outcome.interrupted:
            return 130
        unscored = counts.zero_by_missing if self.outcome.is_marked else counts.errored
        unsealed = self.outcome.sealed.refused if self.outcome.sealed else []
        return 3 if unscored or counts.not_run or self.outcome.refused or unsealed else 0


def make_report(outcome: JobOutcome, seconds: float) -> Report:
    """Make the report of a job, reading the findings of its trials."""
    names = [name for group in outcome.table.groups.values() for name in group.names]
    findings = collect_findings(outcome.directory, names)
    skipped = findings.get(FindingCode.CLEAN_ROOM_SKIPPED, ())
    rooms = count_clean_rooms(outcome.directory, names, skipped)
    errors = collect_errors(outcome.directory, _exceptions_of(outcome))
    sealed = outcome.sealed
    # Sealing has decoded every record already, and knows that all are complete.
    is_complete = sealed is not None and sealed.sealed == len(names)
    partial = {} if is_complete else collect_partial(outcome.directory, names)
    source = outcome.replay
    replays = count_replays(source, outcome.directory, names) if source else None
    return Report(outcome, findings, seconds, rooms, errors, partial, replays)


def print_report(report: Report) -> None:
    """Print the report for people."""
    for line in render_report(report):
        print_line(line)


def print_report_json(report: Report) -> None:
    """Print the report as JSON."""
    print_json(describe_report(report))


def print_result_line(result: JobResult) -> None:
    """Print the result line, computed from the text of result.json; stderr explains `resolved`."""
    summary = summarize(result)
    print_line(render_line(summary))
    if note := explain_resolved(summary):
        print_stderr(note)


def print_failed_line(reason: ReasonCode) -> None:
    """Print the result line of a job without a result."""
    print_line(render_line(msgspec.structs.replace(MISSING, reason_code=reason)))


def summarize(result: JobResult) -> Summary:
    """The content of the result line."""
    return summarize_result(render_result(result).encode())


def render_report(report: Report) -> Iterator[str]:
    """Render the report, line by line."""
    outcome = report.outcome
    yield _render_head(report)
    for key, group in outcome.table.groups.items():
        yield ""
        yield from render_group(
            key, count_group(group), _values(group, outcome.result.stats.evals[key])
        )
    yield ""
    if _is_more_to_count(outcome):
        yield from render_parts(outcome.counts)
    if not outcome.is_marked:
        yield "verification was disabled: no scores"
    directory = shorten_path(outcome.directory)
    yield from render_errors(directory, _exceptions_of(outcome), report.errors)
    yield from _render_usage(outcome)
    yield from render_replays(report.replays)
    yield from render_findings(report.findings)
    yield from render_clean_rooms(report.clean_rooms)
    yield from render_flakes(outcome.flakes)
    yield from _render_refused(outcome)
    yield from _render_sealed(outcome.sealed)
    yield from render_partial(report.partial)
    yield from (f"note: {note}" for note in outcome.notes)
    if outcome.unplanned:
        trials = count_of(len(outcome.unplanned), "trial")
        yield f"note: {trials} of earlier plans: kept, not counted"
    yield ""
    yield from _render_next(report)


def _is_more_to_count(outcome: JobOutcome) -> bool:
    """Whether the numbers of the only group do not account for every planned trial."""
    counts = outcome.counts
    return len(outcome.table.groups) != 1 or counts.planned != counts.run or counts.not_run > 0


def _render_head(report: Report) -> str:
    how = "interrupted" if report.outcome.interrupted else "done"
    return f"{report.outcome.directory.name}: {how} after {render_duration(report.seconds)}"


def _values(group: Group, stats: GroupStats) -> Iterator[tuple[str, str]]:
    for entry in stats.metrics:
        for label, value in entry.items():
            yield label, render_metric(value)
    yield from render_passes(group, stats.pass_at_k)
    for exception, names in stats.exception_stats.items():
        yield name_exception(exception), count_of(len(names), "trial")


def _render_usage(outcome: JobOutcome) -> Iterator[str]:
    stats, counts = outcome.result.stats, outcome.counts
    if counts.kept:
        yield f"kept from before: {count_of(counts.kept, 'trial')}"
    if counts.retried:
        yield f"retries: {counts.retried}; earlier attempts are kept in <trial>/attempts"
    tokens = [
        f"{value:,} {what}"
        for what, value in (
            ("in", stats.n_input_tokens),
            ("of them cached", stats.n_cache_tokens),
            ("out", stats.n_output_tokens),
        )
        if value is not None
    ]
    if tokens:
        yield f"tokens: {', '.join(tokens)}"
    if stats.cost_usd is not None:
        is_known = 0 <= stats.cost_usd <= LARGEST_USD
        yield f"cost: {render_money(stats.cost_usd)}" if is_known else "cost: not known"


def _exceptions_of(outcome: JobOutcome) -> dict[str, list[str]]:
    """The errored trials of all groups, by class of exception."""
    found: dict[str, list[str]] = {}
    for group in outcome.table.groups.values():
        for kind, names in group.exceptions.items():
            found.setdefault(kind, []).extend(names)
    return found


def render_findings(findings: Mapping[str, list[str]]) -> Iterator[str]:
    """Each kind of finding with its meaning: alarms and notices with an example, infos counted."""
    infos = {kind: trials for kind, trials in findings.items() if level_of(kind) is Level.INFO}
    shown = {kind: trials for kind, trials in findings.items() if kind not in infos}
    if shown:
        yield "integrity findings (<trial>/findings.json); scores are unchanged:"
    width = max(map(len, shown), default=0)
    widest = max((len(level_of(kind)) for kind in shown), default=0)
    for kind, trials in shown.items():
        what = "cannot be read" if kind == UNREADABLE else count_of(len(trials), "trial")
        level = f"{level_of(kind):<{widest}}"
        yield f"  {level}  {kind:<{width}}  {what}, {trials[0]}{' …' if len(trials) > 1 else ''}"
        if meaning := meaning_of(kind):
            yield f"    {meaning}"
    if infos:
        counts = ", ".join(f"{kind} {len(trials)}" for kind, trials in infos.items())
        yield f"for information, in findings.json: {counts}"
        yield from (f"  {kind}: {meaning_of(kind)}" for kind in infos)


def _render_refused(outcome: JobOutcome) -> Iterator[str]:
    if not outcome.refused:
        return
    yield f"refused (not counted): {count_of(len(outcome.refused), 'task')}"
    for task in outcome.refused[:_MOST_REFUSED]:
        yield f"  {task.name}: {task.reason}"
    if len(outcome.refused) > _MOST_REFUSED:
        yield f"  … and {len(outcome.refused) - _MOST_REFUSED} more; --json lists all"


def _render_sealed(sealed: SealedTrials | None) -> Iterator[str]:
    if sealed is None:
        return
    made = " (a new ledger)" if sealed.is_new_ledger else ""
    place = find_url(sealed.directory) or shorten_path(sealed.directory)
    text = f"{sealed.sealed} sealed"
    if sealed.diagnostic:
        text += f", {sealed.diagnostic} diagnostic"
    if sealed.waiting:
        text += f", {sealed.waiting} waiting for the server"
    yield f"ledger: {place}{made}: {text}"
    if sealed.waiting:
        yield f"  when the server is back: proctor ledger seal --ledger {place}"
    for sentence in sealed.refused[:_MOST_REFUSED]:
        yield f"  not sealed: {sentence}"
    if len(sealed.refused) > _MOST_REFUSED:
        yield f"  … and {len(sealed.refused) - _MOST_REFUSED} more; --json lists all"
    if names := sealed.unrecorded:
        text = f"{names[0]}{' …' if len(names) > 1 else ''}"
        yield f"  not sealed, no record.json: {count_of(len(names), 'trial')}, {text}"
        yield "  `proctor ledger seal` makes records of trials that harbor ran"


def _render_next(report: Report) -> Iterator[str]:
    outcome = report.outcome
    directory = shorten_path(outcome.directory)
    place = shlex.quote(str(directory))
    yield f"job: {directory}"
    yield f"  proctor view {place}"
    trial = _choose_example(outcome)
    if outcome.is_marked and next(_list_failed(outcome), None):
        yield f"  proctor show {place} --failed"
    if trial:
        yield f"  proctor show {shlex.quote(str(directory / trial))}"
    yield f"  proctor audit {place}"
    if outcome.counts.not_run or outcome.interrupted:
        yield f"  proctor resume {place}"
    elif kinds := _find_errors(outcome.result.stats):
        also = " ".join(f"--also {shlex.quote(kind)}" for kind in kinds[:3])
        yield f"  proctor resume {place} {also}"


def shorten_path(directory: Path) -> Path:
    """The path relative to the working directory, if it is below it."""
    here = Path.cwd()
    return directory.relative_to(here) if directory.is_relative_to(here) else directory


def _choose_example(outcome: JobOutcome) -> str | None:
    """The trial to look at first: one that errored, else one that failed, else any."""
    groups = outcome.table.groups.values()
    errored = (names[0] for group in groups for names in group.exceptions.values())
    anyone = (name for group in groups for name in group.names)
    return next(chain(errored, _list_failed(outcome), anyone), None)


def _list_failed(outcome: JobOutcome) -> Iterator[str]:
    """Trials with a first reward below 1, or without a reward."""
    for group in outcome.table.groups.values():
        pairs = zip(group.names, group.column.first, strict=True)
        yield from (name for name, reward in pairs if reward < PASSED)


def _find_errors(stats: JobStats) -> list[str]:
    return list(
        dict.fromkeys(kind for group in stats.evals.values() for kind in group.exception_stats)
    )


def _describe_sealed(sealed: SealedTrials | None) -> dict[str, object] | None:
    if sealed is None:
        return None
    return {
        "directory": str(sealed.directory),
        "sealed": sealed.sealed,
        "diagnostic": sealed.diagnostic,
        # Only for a served ledger: the document of others stays as it was.
        **({"waiting": sealed.waiting} if sealed.waiting else {}),
        "refused": sealed.refused,
        "unrecorded": sealed.unrecorded,
    }


def describe_report(report: Report) -> dict[str, object]:
    """The report as JSON."""
    outcome, counts = report.outcome, report.outcome.counts
    # Only where it was asked for: the document of other jobs stays as it was.
    replays = {"model_replay": msgspec.to_builtins(report.replays)} if report.replays else {}
    return {
        "job": outcome.directory.name,
        "directory": str(outcome.directory),
        "interrupted": outcome.interrupted,
        "denominators": {
            name: getattr(counts, name)
            for name in ("planned", "run", "scored", "errored", "zero_by_missing", "not_run")
        },
        "kept": counts.kept,
        "retried": counts.retried,
        "ledger": _describe_sealed(outcome.sealed),
        "groups": {
            key: {
                "denominators": count_group(group),
                "metrics": outcome.result.stats.evals[key].metrics,
                "pass_at_k": outcome.result.stats.evals[key].pass_at_k,
                "errors": group.exceptions,
            }
            for key, group in outcome.table.groups.items()
        },
        "stats": stats_document(outcome.result.stats),
        "refused": [
            {"name": task.name, "path": str(task.path), "reason": task.reason}
            for task in outcome.refused
        ],
        "error_examples": describe_errors(outcome.directory, report.errors),
        "partial_records": dict(report.partial),
        "findings": dict(report.findings),
        "alarms": count_alarmed(report.findings),
        "clean_rooms": describe_clean_rooms(report.clean_rooms),
        "verify_again": describe_flakes(outcome.flakes),
        "unplanned": list(outcome.unplanned),
        "notes": list(outcome.notes),
        "outcome": msgspec.structs.asdict(summarize(outcome.result)),
        **replays,
    }
