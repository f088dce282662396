"""The trials that a query's filters let through, as places in the log."""

from collections.abc import Sequence

from proctor.ledger.ledger import Ledger
from proctor.ledger.query import TrialFilter, select_trials
from proctor.search.query import TrialCondition

_COLUMNS = {
    "model": "model",
    "task": "task_id",
    "experiment": "experiment_id",
    "trial": "trial_id",
}

type Span = tuple[int, int]
"""The first and the last of entries that follow one another in the log."""


def choose_spans(
    ledger: Ledger, conditions: Sequence[TrialCondition], wanted: TrialFilter
) -> list[Span] | None:
    """Where the trials meant are, in their order; None where every entry is meant.

    Raises:
        InputError: a time of the filter is none.
    """
    if not conditions and wanted == TrialFilter():
        return None
    chosen = _select(ledger, conditions) if conditions else None
    if wanted != TrialFilter():
        rows = [row.seq for row in select_trials(ledger, wanted)]
        chosen = rows if chosen is None else sorted(set(rows) & set(chosen))
    return _join(chosen or [])


def _select(ledger: Ledger, conditions: Sequence[TrialCondition]) -> list[int]:
    parts: list[str] = []
    values: list[str] = []
    for condition in conditions:
        column = _COLUMNS[condition.name]
        pattern = _pattern_of(condition.value)
        fits = f"({column} LIKE ? ESCAPE '\\' OR {column} LIKE ? ESCAPE '\\')"
        parts.append(f"NOT coalesce({fits}, 0)" if condition.is_not else fits)
        values += [pattern, f"%/{pattern}"]
    where = f"WHERE {' AND '.join(parts)} ORDER BY seq"
    return [row.seq for row in ledger.index.trials(where, values)]


def _pattern_of(value: str) -> str:
    """A value as LIKE has it; LIKE takes small and capital letters of ASCII for the same."""
    for sign in "\\%_":
        value = value.replace(sign, f"\\{sign}")
    return value.replace("*", "%")


def _join(chosen: Sequence[int]) -> list[Span]:
    spans: list[Span] = []
    for seq in chosen:
        if spans and spans[-1][1] == seq - 1:
            spans[-1] = (spans[-1][0], seq)
        else:
            spans.append((seq, seq))
    return spans
