"""`proctor show` of a job: its trials in a table, or those that did not pass. Reads no trace."""

import shlex
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from proctor.audit.file_kind import FileKind
from proctor.cli.output import page, print_json
from proctor.cli.showing.options import ShowOptions
from proctor.cli.tables import draw_rows
from proctor.harbor.stats import count_errored
from proctor.ledger.counting import SHOWN, count_left_out, counted_trials
from proctor.ledger.row import TrialRow
from proctor.record.reasons import NO_NUMBER, NOT_SCORED, outcome_of
from proctor.report.in_jobs import JobTrials, load_jobs
from proctor.report.page.figures import render_number, render_seconds
from proctor.sentence import count_of, printable, render_errored
from proctor.traces.failures import has_failed, name_exception
from proctor.trial.finding import is_common, render_common

_PASSED, _FAILED, _ERRORED = "passed", "failed", "errored"
_RESULTS = (_PASSED, _FAILED, NO_NUMBER, NOT_SCORED)
_NO_REWARD = {NO_NUMBER: "no number", NOT_SCORED: "none"}
_NUMBERS = ("attempt", "reward", "time")
# Without what only a ledger has: a position, a status, evidence and reviews.
_KEYS = (
    *("experiment_id", "trial_id", "record", "completeness", "dataset_id", "task_id", "harness"),
    *("model", "reward", "timestamp", "reason_code"),
)

type Numbered = tuple[TrialRow, int]
"""A trial and the number of the attempt that it is, from 1."""


def show_job(path: str, options: ShowOptions) -> None:
    """Print the trials of a job that count, by task."""
    found = load_jobs(path)
    trials = sorted(_number(counted_trials(found.trials)), key=_find_order)
    shown = [each for each in trials if not options.failed or has_failed(each[0].reward)]
    if options.as_json:
        print_json(_describe(path, found, shown))
    else:
        page(lambda: _render(path, found, trials, shown), is_wanted=options.paged)


def _number(trials: Sequence[TrialRow]) -> Iterator[Numbered]:
    """Number the attempts at each task by each agent and model."""
    counts: Counter[tuple[str | None, str | None, str | None]] = Counter()
    for row in trials:
        key = row.agent, row.model, row.task_id
        counts[key] += 1
        yield row, counts[key]


def _find_order(trial: Numbered) -> tuple[str, str, str, int]:
    row, attempt = trial
    return row.task_id or "", row.agent or "", row.model or "", attempt


def find_outcome(row: TrialRow) -> str:
    """The outcome of a trial in one word: what it scored, or errored if it did not pass either."""
    result = _find_result(row)
    return result if result == _PASSED or row.exception is None else _ERRORED


def _find_result(row: TrialRow) -> str:
    """Whether a trial passed or failed, or its outcome; it may have raised an exception as well."""
    if row.reward is None:
        return outcome_of(row)
    return _FAILED if has_failed(row.reward) else _PASSED


def _render(
    path: str, found: JobTrials, trials: Sequence[Numbered], shown: Sequence[Numbered]
) -> Iterator[str]:
    yield printable(f"{path}: {_render_counts([row for row, _ in trials])}")
    if shown:
        yield ""
        yield from _draw(shown)
        rows = [row for row, _ in shown]
        first = next((row for row in rows if has_failed(row.reward)), rows[0])
        yield ""
        yield printable(f"  proctor show {shlex.quote(str(Path(path) / _find_name(first)))}")
    yield from _render_findings([row for row, _ in trials])
    for each in found.unreadable:
        yield printable(f"not read: {each.message}")
    for status, n in count_left_out(found.trials).items():
        yield f"not listed: {count_of(n, 'trial')} ({SHOWN.get(status, status)})"


def _render_findings(rows: Sequence[TrialRow]) -> Iterator[str]:
    """Findings that most trials have, said once; others are on the trials that have them."""
    counts = Counter(code for row in rows for code in row.findings)
    for code, n in counts.items():
        if is_common(code, n, len(rows)):
            yield f"note: {render_common(code, n, len(rows))}"


def _render_counts(rows: Sequence[TrialRow]) -> str:
    """Counts by reward alone, and beside them the errored ones, which may have any reward."""
    results = Counter(map(_find_result, rows))
    counts = ", ".join(f"{results[each]:,} {each}" for each in _RESULTS if results[each])
    listed = f"{count_of(len(rows), 'trial')}{f': {counts}' if counts else ''}"
    if not (n_errored := count_errored(rows)):
        return listed
    # In the table, a narrow terminal cuts the class of an exception.
    kinds = Counter(name_exception(row.exception) for row in rows if row.exception is not None)
    named = ", ".join(f"{kind} {n:,}" for kind, n in kinds.items())
    return f"{listed}; {render_errored(n_errored)}: {named}"


def _draw(shown: Sequence[Numbered]) -> list[str]:
    rows = [row for row, _ in shown]
    varying = [name for name in ("agent", "model") if len({getattr(row, name) for row in rows}) > 1]
    headings = ["task", "attempt", *varying, "reward", "outcome", "time", "trial"]
    cells = [
        [
            row.task_id or "-",
            str(attempt),
            *(str(getattr(row, name)) for name in varying),
            _NO_REWARD[outcome_of(row)] if row.reward is None else render_number(row.reward),
            _render_outcome(row),
            render_seconds(row.seconds),
            _find_name(row),
        ]
        for row, attempt in shown
    ]
    return draw_rows(headings, cells, right=_NUMBERS, dear=[*_NUMBERS, "trial"])


def _render_outcome(row: TrialRow) -> str:
    result = _find_result(row)
    if row.exception is not None:
        name = name_exception(row.exception)
        shown = f"errored: {name}" if name == row.exception else name
        return shown if result == NOT_SCORED else f"{result}, {shown}"
    return f"{result}: {row.reason_code}" if result == NOT_SCORED else result


def _find_name(row: TrialRow) -> str:
    """The name of a trial's directory in its job."""
    return Path(row.place or row.trial_id).name


def _describe(path: str, found: JobTrials, shown: Sequence[Numbered]) -> dict[str, object]:
    return {
        "thing": str(FileKind.JOB),
        "path": path,
        "trials": [
            {
                **row.public(_KEYS),
                "attempt": attempt,
                "outcome": find_outcome(row),
                "exception": row.exception,
                "seconds": row.seconds,
                "directory": str(Path(path) / _find_name(row)),
            }
            for row, attempt in shown
        ],
        "unreadable": [{"path": each.place, "message": each.message} for each in found.unreadable],
        "not_listed": count_left_out(found.trials),
    }
