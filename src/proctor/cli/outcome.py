"""`proctor outcome`: prints result lines, judges runs by them, and finds reason codes."""

import sys
from collections.abc import Mapping
from pathlib import Path

import click
import msgspec
from msgspec.structs import asdict

from proctor.cli.ledger.progress import reading_progress
from proctor.cli.options import PATH, check_companions
from proctor.cli.output import json_option, print_json, print_line
from proctor.errors import InputError, ProctorError
from proctor.files import read_small
from proctor.harbor.documents import JobDocument, is_trial
from proctor.harbor.job import load_job
from proctor.record.outcome import (
    RunReading,
    explain_resolved,
    read_run,
    render_line,
    summarize_result,
)
from proctor.record.reasons import (
    RETRYABLE,
    SENTINEL,
    ReasonCode,
    find_rule,
    is_known,
    is_retryable,
)

_COMPANIONS = {
    "exit_code": "stdout",
    "timed_out": "stdout",
}


@click.command("outcome")
@click.argument("job", required=False, type=PATH)
@click.option(
    "--stdout", type=PATH, help="Judge a run by its stdout, read from this file; - for stdin."
)
@click.option("--exit-code", type=int, help="With --stdout: exit code of the run.")
@click.option("--timed-out", is_flag=True, help="With --stdout: the run was stopped by a timeout.")
@click.option("--reason", help="Find the reason code for this text.")
@click.option("--codes", is_flag=True, help="List every reason code, and whether it is retried.")
@json_option
def command(
    job: str | None,
    stdout: str | None,
    exit_code: int | None,
    timed_out: bool,
    reason: str | None,
    codes: bool,
    as_json: bool,
) -> int:
    """Print a result line, judge a run by it, or find a reason code.

    For JOB, a job directory or its result.json, prints the result line of the run. With --stdout,
    judges a run by what it printed and how it ended. With --reason, prints the reason code for a
    text, and the rule that gives it. With --codes, lists the closed set of codes.

    A line is always printed: if JOB is missing or contains no job, its reason is
    harbor_result_missing, and the exit code is 2.

    In the result line, `score` is the mean of the job's metrics, `total` is the number of planned
    trials, and `resolved` is score x total, rounded: it is not a count of trials that passed.

    Example: proctor outcome jobs/nightly
    """
    if sum(map(bool, (job is not None, stdout is not None, reason is not None, codes))) != 1:
        raise click.UsageError(
            "give one of: a job or result.json, --stdout FILE, --reason TEXT, --codes"
        )
    check_companions(_COMPANIONS)
    if codes:
        _show_codes(as_json=as_json)
    elif reason is not None:
        _show_reason(reason, as_json=as_json)
    elif stdout is not None:
        if exit_code is None and not timed_out:
            raise click.UsageError("--stdout needs --exit-code: a run is judged by both")
        run = read_run(_read_text(stdout), exit_code or 0, timed_out=timed_out)
        _show_run(run, as_json=as_json)
    elif job is not None:
        _show_line(job, as_json=as_json)
    return 0


def _show_codes(*, as_json: bool) -> None:
    kinds = {code: _kind_of(code) for code in ReasonCode}
    if as_json:
        print_json({"codes": [{"code": code, "kind": kind} for code, kind in kinds.items()]})
        return
    for code, kind in kinds.items():
        print_line(f"{code:<40}  {kind}")


def _kind_of(code: ReasonCode) -> str:
    if code in SENTINEL:
        return "sentinel"
    return "retryable" if code in RETRYABLE else "final"


def _show_line(job: str, *, as_json: bool) -> None:
    try:
        data = _read_result(job)
    except ProctorError:
        # A reader of the line must get one; the error names what was found instead of a job.
        _print_result(None, as_json=as_json, is_explained=False)
        raise
    _print_result(data, as_json=as_json)
    if data is not None and not _has_finished(data) and not as_json:
        note = "the line does not show that the job is unfinished"
        click.echo(f"note: {job}: {note}", err=True)


def _print_result(data: bytes | None, *, as_json: bool, is_explained: bool = True) -> None:
    summary = summarize_result(data)
    line = render_line(summary)
    reading = read_run(line, 0, timed_out=False)
    if as_json:
        print_json({"line": line, "summary": asdict(summary), "reader": _reading(reading)})
        return
    print_line(line)
    if not is_explained:
        return
    click.echo(f"agent-challenge reads it (exit code 0) as: {_sentence(reading)}", err=True)
    if note := explain_resolved(summary):
        click.echo(note, err=True)


def _has_finished(data: bytes) -> bool:
    """Whether a result is of a finished job; unreadable results count as finished."""
    try:
        return msgspec.json.decode(data, type=JobDocument).finished_at is not None
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return True


def _read_result(job: str) -> bytes | None:
    """The bytes of the result.json; None if its directory has none."""
    path = Path(job)
    try:
        if path.is_dir():
            if not _looks_like_job(path):
                load_job(job, watch=reading_progress(job))  # refuses anything but a job
            path = path / "result.json"
        if path.name == "result.json" and path.parent.is_dir() and not path.exists():
            return None
        return read_small(str(path))
    except OSError as error:
        raise InputError(
            f"{job}: cannot be read: {error.strerror}; expected a job directory or its result.json"
        ) from error


def _looks_like_job(directory: Path) -> bool:
    """Whether it has a result that is not a trial's: enough to read only that."""
    return (directory / "result.json").exists() and not is_trial(str(directory))


def _show_run(reading: RunReading, *, as_json: bool) -> None:
    if as_json:
        print_json(_reading(reading))
    else:
        print_line(_sentence(reading))


def _reading(reading: RunReading) -> Mapping[str, object]:
    return {
        "status": reading.status,
        "score": reading.score,
        "reason_code": reading.reason_code,
        "payload": reading.payload,
    }


def _sentence(reading: RunReading) -> str:
    reason = f", reason {reading.reason_code}" if reading.reason_code else ""
    return f"{reading.status}, score {reading.score!r}{reason}"


def _show_reason(text: str, *, as_json: bool) -> None:
    match = find_rule(text)
    known, again = is_known(match.code), is_retryable(match.code, 1)
    if as_json:
        document = {
            "text": text,
            "code": match.code,
            "known": known,
            "rule": match.rule,
            "why": match.why,
            "retry": again,
        }
        print_json(document)
        return
    print_line(f"{match.code or 'no code'}: rule {match.rule}, {match.why}")
    member = "in the taxonomy" if known else "not in the taxonomy"
    print_line(f"{member}; the task is {'' if again else 'not '}tried again")


def _read_text(path: str) -> str:
    if path == "-":
        return _read_stdin().decode("utf-8", "replace")
    try:
        return read_small(path).decode("utf-8", "replace")
    except OSError as error:
        raise InputError(
            f"{path}: cannot be read: {error.strerror}; expected the stdout of a run"
        ) from error


def _read_stdin() -> bytes:
    # sys.stdin is None if the process was started without it.
    if sys.stdin is None:
        raise InputError("standard input: closed; expected the stdout of a run")
    try:
        return sys.stdin.buffer.read()
    except OSError as error:
        raise InputError(f"standard input: cannot be read: {error.strerror}") from error
