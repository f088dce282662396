"""The parts of a trial's page, apart from its score. Unknown values are None, never 0."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from proctor.errors import DamageError, NotThereError
from proctor.files import open_plain, read_head, read_small
from proctor.harbor.documents import TimedPhase
from proctor.harbor.record import find_seconds
from proctor.ledger.entry import (
    RescoreEntry,
    ReviewEntry,
    SupersedeEntry,
    Withheld,
    WithholdEntry,
)
from proctor.sentence import count_of
from proctor.traces.trial_summary import TrialSummary
from proctor.trial.change_record import (
    CLEAN_ROOM,
    PartChanges,
    describe_places,
    find_change_files,
    load_changes,
    load_clean_room,
)
from proctor.trial.changes import Change
from proctor.trial.clean_room_result import CleanRoomResult, describe_clean_room, describe_missing
from proctor.trial.finding import level_of, meaning_of
from proctor.web.trials.filetypes import HEAD, find_type, may_be_media
from proctor.web.trials.labels import COSTS
from proctor.web.trials.trial_view import TrialFile, TrialView

_UNREADABLE = (OSError, DamageError, NotThereError)
_LARGEST = 16 << 20
_MOST_STEPS = 100
# Bytes shown of an output: the last ones, where results are.
_END = 16_384
_MOST_OUTPUTS = 12
_MOST_MEDIA = 40
_MOST_CHANGES = 200
_MOST_PARTS = 50
_TEXTS = (".txt", ".log", ".json", ".xml", ".out", ".err", ".md")


class Exceptional(msgspec.Struct, frozen=True):
    """The exception that ended a trial or a step."""

    exception_type: str
    exception_message: str = ""
    exception_traceback: str = ""


class Step(msgspec.Struct, frozen=True):
    """One step of a trial in its result.json."""

    step_name: str
    agent_execution: TimedPhase | None = None
    verifier: TimedPhase | None = None
    exception_info: Exceptional | None = None


class Times(msgspec.Struct, frozen=True):
    """The times and exceptions in a trial's result.json."""

    started_at: datetime | None = None
    finished_at: datetime | None = None
    environment_setup: TimedPhase | None = None
    agent_setup: TimedPhase | None = None
    agent_execution: TimedPhase | None = None
    verifier: TimedPhase | None = None
    step_results: list[Step] | None = None
    exception_info: Exceptional | None = None

    @property
    def errors(self) -> list[tuple[str, Exceptional]]:
        """The exception of the trial and of its steps, each with the step's name."""
        found = [("", self.exception_info)]
        found += [(step.step_name, step.exception_info) for step in self.step_results or ()]
        return [(step, error) for step, error in found if error is not None]

    @property
    def phases(self) -> Iterator[tuple[str, str, TimedPhase | None]]:
        """Each phase with its kind, which decides its colour."""
        yield "environment setup", "setup", self.environment_setup
        yield "agent setup", "setup", self.agent_setup
        yield "agent", "agent", self.agent_execution
        for step in (self.step_results or ())[:_MOST_STEPS]:
            yield f"agent, step {step.step_name}", "agent", step.agent_execution
            yield f"verifier, step {step.step_name}", "verifier", step.verifier
        yield "verifier", "verifier", self.verifier


def load_times(known: TrialView) -> Times:
    """The times in result.json; empty if it is missing or unreadable."""
    file = known.find_file("result.json")
    if file is None or not file.is_here:
        return Times()
    try:
        with known.traced.open_file("result.json") as path:
            return msgspec.json.decode(read_small(path, _LARGEST), type=Times)
    except (OSError, DamageError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return Times()


@dataclass(frozen=True, slots=True)
class Phase:
    """One phase; `left` and `width` are in percent of the whole, for drawing."""

    name: str
    kind: str
    began: float | None
    """Seconds after the trial began; None if only its duration is known."""
    seconds: float | None
    left: float
    width: float


@dataclass(frozen=True, slots=True)
class Timeline:
    """When each phase began and how long it took; laid end to end if only that is known."""

    phases: list[Phase]
    total: float | None = None
    is_laid_out: bool = True
    started_at: str | None = None
    finished_at: str | None = None


def draw_timeline(known: TrialView, times: Times) -> Timeline:
    """The phases by result.json if it has them, else the durations in the record."""
    start = times.started_at
    spans: list[tuple[str, str, float | None, float | None]] = [
        (name, kind, _after(start, each.started_at), find_seconds(each))
        for name, kind, each in times.phases
        if each is not None and start is not None
    ]
    if start is not None and spans:
        total = find_seconds(times)
        ends = (_after(start, each.finished_at or each.started_at) or 0.0
                for _, _, each in times.phases if each is not None)  # fmt: skip
        whole = max(total or 0.0, *ends, 0.0) or 1.0
        phases = list(_draw(spans, whole, end_to_end=False))
        shown = _show_moment(times.started_at), _show_moment(times.finished_at)
        return Timeline(phases, total, False, *shown)  # noqa: FBT003
    if known.record is None:
        return Timeline([])
    timing = known.record.timing
    durations = {
        "setup": timing.setup_seconds,
        "agent": timing.agent_seconds,
        "verifier": timing.verification_seconds,
    }
    spans = [(name, name, None, float(s)) for name, s in durations.items() if s is not None]
    total = float(timing.total_seconds)
    whole = max(total, sum(each[3] or 0.0 for each in spans)) or 1.0
    return Timeline(list(_draw(spans, whole, end_to_end=True)), total)


def _draw(
    spans: list[tuple[str, str, float | None, float | None]], whole: float, *, end_to_end: bool
) -> Iterator[Phase]:
    end = 0.0
    for name, kind, began, seconds in spans:
        left = end if end_to_end else 100 * min(max(began or 0.0, 0.0) / whole, 1.0)
        width = min(100 * (seconds or 0.0) / whole, 100 - left)
        end = left + width
        yield Phase(name, kind, began, seconds, left, width)


def _after(start: datetime | None, moment: datetime | None) -> float | None:
    if start is None or moment is None or (start.tzinfo is None) != (moment.tzinfo is None):
        return None
    return (moment - start).total_seconds()


def _show_moment(moment: datetime | None) -> str | None:
    try:
        if moment is None:
            return None
        if moment.tzinfo is None:
            return f"{moment:%Y-%m-%d %H:%M:%S}"
        return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
    except OverflowError:
        return None


@dataclass(frozen=True, slots=True)
class Output:
    """The end of a printed text."""

    file: TrialFile
    text: str = ""
    left_out: int = 0
    """Bytes before the shown part."""
    problem: str | None = None


def read_verifier_outputs(known: TrialView) -> list[Output]:
    """The ends of the verifier's outputs, of the trial and of its steps."""
    wanted = [file for file in known.files if _is_output(file.path)]
    wanted.sort(key=lambda file: ("test-stdout" not in file.path, file.path))
    return [_read_output(known, file) for file in wanted[:_MOST_OUTPUTS]]


def _is_output(path: str) -> bool:
    parts = path.split("/")
    own, name = parts[2:] if parts[0] == "steps" else parts, parts[-1]
    is_reward = name in ("reward.json", "reward.txt")
    return own[:1] == ["verifier"] and name.endswith(_TEXTS) and not is_reward


def _read_output(known: TrialView, file: TrialFile) -> Output:
    if not file.is_here:
        return Output(file)
    try:
        with known.traced.open_file(file.path) as path, open_plain(Path(path)) as opened:
            begin = max(os.fstat(opened.fileno()).st_size - _END, 0)
            opened.seek(begin)
            data = opened.read(_END)
    except _UNREADABLE as error:
        return Output(file, problem=str(error))
    # Start at a line: the cut may be in the middle of a line or of a character.
    if begin and (end := data.find(b"\n") + 1):
        data, begin = data[end:], begin + end
    return Output(file, data.decode("utf-8", "replace"), begin)


def find_media(known: TrialView) -> Iterator[tuple[TrialFile, str]]:
    """Pictures, sound and video, recognised by their contents, with the element that shows each."""
    wanted = [file for file in known.files if file.is_here and may_be_media(file.path)]
    for file in wanted[:_MOST_MEDIA]:
        try:
            if known.ledger is not None and file.sha256 is not None:
                head = known.ledger.artifacts.load_head(file.sha256, HEAD)
            else:
                with known.traced.open_file(file.path) as path:
                    head = read_head(path, HEAD)
        except _UNREADABLE:
            continue
        if element := find_type(head).element:
            yield file, element


@dataclass(frozen=True, slots=True, kw_only=True)
class Changed:
    """A change record; the first of its changes, system paths before all others."""

    file: TrialFile
    part: str = ""
    """Name of the step; "" for the trial itself."""
    counts: str = ""
    total: int = 0
    rows: list[Change] | tuple[()] = ()
    problems: tuple[str, ...] = ()


def find_changed(known: TrialView) -> list[Changed]:
    """The change records of a trial; only the last has rows, because it includes the others."""
    named = find_change_files([file.path for file in known.files]).values()
    files = {file.path: file for file in known.files if file.path in named}
    try:
        found = load_changes(known.traced.files, known.traced.open_file)[-_MOST_PARTS:]
    except (DamageError, NotThereError) as error:
        return [Changed(file=each, problems=(str(error),)) for each in files.values()][:1]
    gone = [Changed(file=file) for file in files.values() if not file.is_here]
    return gone + [_show_changes(files[each.path], each, each is found[-1]) for each in found]


def _show_changes(file: TrialFile, found: PartChanges, has_rows: bool) -> Changed:  # noqa: FBT001
    record = found.record
    return Changed(
        file=file,
        part=found.part,
        counts=describe_places(record) if record.header is not None else "",
        total=record.header.total if record.header is not None else 0,
        rows=record.ordered()[:_MOST_CHANGES] if has_rows else (),
        problems=record.problems,
    )


@dataclass(frozen=True, slots=True)
class CleanRoom:
    """The clean-room result of a trial, or why there is none."""

    summary: str
    file: TrialFile | None = None
    result: CleanRoomResult | None = None


def find_clean_room(known: TrialView, *, has_changes: bool) -> CleanRoom | None:
    """The clean-room result, or why there is none; None if nothing is known."""
    file = known.find_file(CLEAN_ROOM)
    if file is not None and not file.is_here:
        return CleanRoom("", file)
    try:
        found = load_clean_room(known.traced.files, known.traced.open_file)
    except (DamageError, NotThereError) as error:
        found = str(error)
    if isinstance(found, str):
        return CleanRoom(f"{CLEAN_ROOM}: {found}", file)
    if found is not None:
        return CleanRoom(describe_clean_room(found), file, found)
    findings = known.entry.findings if known.entry else ()
    if not has_changes and not any(e.get("code") == "clean-room-skipped" for e in findings):
        return None
    reward = known.record.evaluation.reward if known.record else None
    return CleanRoom(describe_missing(findings, reward))


def find_usage(known: TrialView, summary: TrialSummary) -> dict[str, Any]:
    """Tokens and cost, their source, and the advisor's share of all tokens."""
    usd, tokens, advisor = summary.cost_usd, summary.tokens, summary.advisor
    basis = (known.entry.cost_basis if known.entry else None) or "unknown"
    words = COSTS["unknown"] if usd is None else COSTS.get(basis, basis)
    if usd is not None and basis == "unknown":
        words = "the amount in the record; its source is not recorded"
    asked = 0 if advisor.calls == 0 else _sum(advisor.input, advisor.output)
    own = _sum(tokens.input, tokens.output)
    is_told = tokens.source != "unknown" or bool(advisor.calls)
    share = asked / (own + asked) if None not in (own, asked) and own + asked else None  # type: ignore[operator]
    entries = count_of(
        summary.trace.tokens.with_usage, "entry of the trace", "entries of the trace"
    )
    coverage = {
        "record": "Recorded for all calls.",
        "trace": f"Summed over {entries} with usage, of {count_of(summary.trace.turns, 'turn')}.",
    }
    return {
        "usd": usd,
        "basis": basis if usd is not None else "unknown",
        "basis_words": words,
        "tokens": {
            "input": tokens.input,
            "of it, read from a cache": tokens.cache_read,
            "of it, written to a cache": tokens.cache_write,
            "output": tokens.output,
        },
        "coverage": coverage.get(
            tokens.source, "Unknown: neither the record nor the trace has token counts."
        ),
        "advisor_calls": advisor.calls if is_told else None,
        "advisor_tokens": asked if advisor.calls else None,
        "advisor_share": share if is_told else None,
    }


def _sum(*counts: int | None) -> int | None:
    known = [count for count in counts if count is not None]
    return sum(known) if known else None


def collect_status(known: TrialView) -> dict[str, Any]:
    """Later entries about the trial by kind, and its findings, alarms first."""
    entries = [remark.entry for remark in known.remarks]
    reviews = [each for each in entries if isinstance(each, ReviewEntry)]
    record = known.row.record if known.row else None
    findings = [
        {
            "code": (code := str(found.get("code", "?"))),
            "level": level_of(code),
            "meaning": meaning_of(code),
            "phase": str(found.get("phase") or ""),
            "message": str(found.get("message") or ""),
            "detail": found.get("detail") or None,
        }
        for found in (known.entry.findings if known.entry else ())
    ]
    return {
        "reviews": reviews,
        # A review that defers leaves findings open.
        "settled_by": reviews[-1] if reviews and reviews[-1].verdict != "defer" else None,
        # Whether this trial is the replaced one; the other one; the entry.
        "replacements": [
            (
                each.subject.record == record,
                each.by if each.subject.record == record else each.subject,
                each,
            )
            for each in entries
            if isinstance(each, SupersedeEntry)
        ],
        "rescores": [each for each in entries if isinstance(each, RescoreEntry)],
        "withholdings": [each for each in entries if isinstance(each, WithholdEntry)],
        "gone": [each.seq for each in known.remarks if isinstance(each.entry, Withheld)],
        "findings": sorted(findings, key=lambda each: -each["level"].rank),
    }
