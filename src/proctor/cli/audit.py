"""`proctor audit`: checks whether published numbers follow from the evidence, and compares runs."""

import os
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any

import click
from msgspec.structs import asdict

from proctor.audit.difference import RunDifference, compare_runs
from proctor.audit.findings import Finding, Kind
from proctor.audit.job import Audit, audit_job, render_verdict
from proctor.cli.ledger.progress import reading_progress
from proctor.cli.options import PATH, check_apart, check_companions
from proctor.cli.output import json_option, print_json, print_line
from proctor.cli.tables import print_rows
from proctor.harbor.job import Job, load_job
from proctor.reward.profile import PROFILES, Profile
from proctor.sentence import count_of
from proctor.trial.finding import level_of, meaning_of, sort_codes

# Options of `proctor audit --rerun`


_OPTIONS = (
    click.option(
        "--rerun",
        type=click.IntRange(min=1),
        metavar="N",
        help="Run N trials of a job or of a claim again.",
    ),
    click.option(
        "--seed",
        default="0",
        show_default=True,
        help="With --rerun: seed that selects the trials, any text. Choose it after the "
        "results were submitted.",
    ),
    click.option(
        "-e",
        "--env",
        "environment",
        help="With --rerun: use this environment instead of the recorded one.",
    ),
    click.option(
        "--base",
        metavar="host|IMAGE",
        help="With --rerun: root file system of the sandbox instead of the recorded one; then no "
        "image is pulled.",
    ),
    click.option(
        "--offline",
        is_flag=True,
        help="With --rerun: do not pull images; they must already be in the store.",
    ),
    click.option(
        "--tasks",
        "task_dirs",
        multiple=True,
        type=PATH,
        metavar="DIR",
        help="With --rerun: current directory of the tasks.",
    ),
    click.option(
        "--agent-tree",
        type=PATH,
        metavar="DIR",
        help="With --rerun: current directory of the agent's files, to run it again with the "
        "recorded answers of its model.",
    ),
    click.option(
        "-o",
        "--jobs-dir",
        type=PATH,
        default="reruns",
        show_default=True,
        metavar="DIR",
        help="With --rerun: directory for the new jobs.",
    ),
    click.option(
        "--ledger",
        "ledger_dir",
        type=PATH,
        help="With --rerun of a claim: ledger directory or address.  [default: "
        "PROCTOR_LEDGER, ./ledger]",
    ),
    click.option(
        "-y",
        "--yes",
        is_flag=True,
        help="With --rerun: allow tasks to read host environment variables.",
    ),
)


def rerun_options(function: Callable[..., int]) -> Callable[..., int]:
    """Add all of them, in order."""
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


_MOST_FINDINGS = 50
_MOST_CONSEQUENCES = 3


@click.command("audit")
@click.argument("jobs", nargs=-1, type=PATH)
@click.option(
    "--profile",
    type=click.Choice(list(PROFILES)),
    help="Scoring rules to audit by.  [default: those of the harbor version in lock.json]",
)
@click.option("--against", type=PATH, help="Compare one job with this job, task by task.")
@click.option(
    "--epsilon",
    type=click.FloatRange(min=0.0),
    default=0.0,
    show_default=True,
    help="With --against: treat rewards this close as equal.",
)
@click.option("--run-metric-scripts", is_flag=True, help="Run the job's own metric scripts.")
@rerun_options
@json_option
def command(
    jobs: tuple[str, ...],
    profile: str | None,
    against: str | None,
    epsilon: float,
    run_metric_scripts: bool,
    as_json: bool,
    **again: Any,
) -> int:
    """Check whether published numbers follow from the evidence.

    Compares reward files with trial results, and trial results with the job result. Reports every
    difference by kind, with its file and value. A number that cannot be recomputed, such as one
    from a missing metric script, cannot be shown to follow. Anything else worth knowing is a note.

    With --against, compares two runs task by task: reward, status, reason, resolved.

    With --rerun, and only then, executes commands of agents: those recorded in N trials of a job or
    of a claim run again, each trial in a fresh environment and nowhere else, and the trials are
    scored again. Each trial is reproduced, differs, or is not replayable. The job or the claim is
    not changed; the new jobs are kept.

    Exit code 1: the numbers do not follow or cannot be shown to follow, the runs differ, or a rerun
    gives a different reward. 3, with --rerun: no reward differs, but not every trial was
    reproduced. 130: interrupted.

    Example: proctor audit jobs/nightly --rerun 5 --seed 1234
    """
    _check_options(again)
    if not jobs:
        raise click.UsageError("Missing argument 'JOBS...'.")
    if again["rerun"] is not None:
        # Imported late: running trials is slow to import, and a plain audit does not need it.
        answer: int = import_module("proctor.cli.rerunning").rerun(jobs, again, as_json=as_json)
        return answer
    rules = PROFILES[profile] if profile else None
    if against is not None:
        left, right = _load_two(jobs, against, rules)
        return _compare(left, right, epsilon, as_json=as_json)
    audits = [
        audit_job(path, rules, run_scripts=run_metric_scripts, watch=reading_progress(path))
        for path in jobs
    ]
    follows = all(audit.follows for audit in audits)
    if as_json:
        print_json({"follows": follows, "jobs": [_document(audit) for audit in audits]})
    else:
        for audit in audits:
            _print(audit)
    return 0 if follows else 1


def _check_options(again: Mapping[str, Any]) -> None:
    """Check that the given options can be combined."""
    check_companions({"epsilon": "against", **dict.fromkeys(again.keys() - {"rerun"}, "rerun")})
    for name in ("against", "profile", "run_metric_scripts"):
        check_apart("rerun", name)
    check_apart("run_metric_scripts", "against")


def _load_two(jobs: Sequence[str], against: str, rules: Profile | None) -> tuple[Job, Job]:
    if len(jobs) != 1:
        raise click.UsageError(f"--against compares one job with another; {len(jobs)} were given")
    left, right = (load_job(path, rules, reading_progress(path)) for path in (jobs[0], against))
    return left, right


def _print(audit: Audit) -> None:
    print_line(f"{audit.job.directory}: {render_verdict(audit)} ({audit.profile.name})")
    for finding in audit.causes:
        print_line(f"  {finding.kind}  {_inside(audit, finding)}")
        print_line(f"    {finding.message}")
    _print_consequences(audit.consequences)
    for finding in audit.unshown:
        print_line(f"  cannot be shown: {finding.kind}  {_inside(audit, finding)}")
        print_line(f"    {finding.message}")
    by_kind: dict[str, list[Finding]] = {}
    for finding in audit.notes:
        by_kind.setdefault(finding.kind, []).append(finding)
    _print_integrity(audit, by_kind.pop(Kind.INTEGRITY_FINDING, []))
    for kind, (first, *more) in by_kind.items():
        also = f" (and {len(more)} more; --json lists them)" if more else ""
        print_line(f"  note: {kind}  {_inside(audit, first)}")
        print_line(f"    {first.message}{also}")


def _print_consequences(found: Sequence[Finding]) -> None:
    """Print the numbers that differ because trials do: a line for each, and a few of many."""
    if not found:
        return
    kinds = ", ".join(dict.fromkeys(finding.kind for finding in found))
    numbers = count_of(len(found), "published number")
    print_line(f"  consequences  {numbers} in result.json: {kinds}")
    for finding in found[:_MOST_CONSEQUENCES]:
        print_line(f"    {finding.message}")
    if len(found) > _MOST_CONSEQUENCES:
        print_line(f"    … and {len(found) - _MOST_CONSEQUENCES} more; --json lists them")


def _print_integrity(audit: Audit, found: Sequence[Finding]) -> None:
    """Print integrity findings: a line for each kind, alarms first."""
    notes = {note.found: note for note in found}
    if not notes:
        return
    codes = sort_codes(notes)
    print_line(f"  note: {Kind.INTEGRITY_FINDING}  {_inside(audit, notes[codes[0]])}")
    for code in codes[:_MOST_FINDINGS]:
        print_line(f"    {level_of(code)}  {notes[code].message}")
        if meaning := meaning_of(code):
            print_line(f"      {meaning}")
    if len(codes) > _MOST_FINDINGS:
        print_line(f"    … and {len(codes) - _MOST_FINDINGS} more; --json lists them")


def _inside(audit: Audit, finding: Finding) -> str:
    return os.path.relpath(finding.path, audit.job.directory)


def _document(audit: Audit) -> dict[str, object]:
    return {
        "directory": audit.job.directory,
        "profile": audit.profile.name,
        "verdict": str(audit.verdict),
        "follows": audit.follows,
        "differences": [asdict(finding) for finding in audit.differences],
        "n_causes": len(audit.causes),
        "unshown": [asdict(finding) for finding in audit.unshown],
        "notes": [_describe_note(finding) for finding in audit.notes],
    }


def _describe_note(note: Finding) -> dict[str, object]:
    document = asdict(note)
    if note.kind is Kind.INTEGRITY_FINDING:
        document["level"] = level_of(note.found)
    return document


def _compare(left: Job, right: Job, epsilon: float, *, as_json: bool) -> int:
    differences = compare_runs(left, right, epsilon)
    if as_json:
        document = {
            "left": left.directory,
            "right": right.directory,
            "same": not differences,
            "differences": [asdict(difference) for difference in differences],
        }
        print_json(document)
    elif differences:
        columns = ("task", "attempt", "what", left.name, right.name)
        print_rows(columns, [_row(difference) for difference in differences], fold=columns)
    else:
        print_line(f"{left.name} and {right.name}: all tasks have the same result")
    return 1 if differences else 0


def _row(difference: RunDifference) -> tuple[str, ...]:
    attempt = str(difference.attempt or "")
    return (difference.task, attempt, difference.field, difference.left, difference.right)
