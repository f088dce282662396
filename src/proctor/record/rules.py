"""What a record must hold to beyond the shape that the model checks.

    find_problems(record)   what a reader notices: a hollow `complete`, impossible token counts,
                            and, as a note that breaks nothing, a time without an offset
    check_record(record)    what a record made here must hold to: all of that and ids that are names
    check_dataset_id(text)  what a new record may name as its dataset

Old records may carry times without an offset and are kept as they are; a new one may not, because
nobody can say later which clock it was.
"""

import re
from collections.abc import Iterator
from datetime import datetime
from typing import Final

from proctor.diagnostic import Diagnostic
from proctor.errors import RecordError
from proctor.record.completeness import check_complete, find_missing
from proctor.record.cost import usage_in
from proctor.record.ids import check_id
from proctor.record.model import TrialRecord

LONGEST_DATASET_ID: Final = 300
_SHOWN: Final = 60


def check_record(record: TrialRecord) -> None:
    """Refuse a new record that breaks a rule. Whoever makes a record calls this before writing it.

    Raises:
        IncompleteRecordError: it is called complete and is not.
        RecordError: any other rule.
    """
    check_id(record.trial_id, "trial_id")
    check_id(record.experiment_id, "experiment_id")
    if record.completeness == "complete":
        check_complete(record)
    for diagnostic in find_problems(record):
        raise RecordError(f"{record.trial_id!r}: {diagnostic.message}")


def check_dataset_id(text: str) -> None:
    """Refuse a name of a dataset that nobody could look up.

    name@version is a convention; `repository:<id>@<revision>:<path>` and `bundle:<id>@<sha256>`
    are others.

    Raises:
        RecordError: it is blank, too long, holds control characters or leads up a directory.
    """
    shown = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
    if not text.strip():
        problem = "is blank"
    elif len(text) > LONGEST_DATASET_ID:
        problem = f"is {shown!r}, of {len(text):,} characters"
    elif not text.isprintable():
        problem = f"is {shown!r}, with characters that cannot be printed"
    elif ".." in re.split(r"[/\\:@]", text):
        problem = f"is {shown!r}, a path with .. in it"
    else:
        return
    raise RecordError(
        f"dataset_id {problem}; expected name@version, at most {LONGEST_DATASET_ID} characters"
    )


def find_problems(record: TrialRecord) -> list[Diagnostic]:
    """All that a reader notices about a record that has the right shape."""
    return [*_find_hollow(record), *_find_token_problems(record), *_find_naive_times(record)]


def _find_hollow(record: TrialRecord) -> Iterator[Diagnostic]:
    if record.completeness == "complete":
        for missing in find_missing(record):
            yield Diagnostic("hollow-complete", f"is called complete, but {missing}")


def _find_token_problems(record: TrialRecord) -> Iterator[Diagnostic]:
    if record.cost is None:
        return
    try:
        usage_in(record.cost)
    except RecordError as error:
        yield Diagnostic("token-algebra", f"cost has {error}")


def _find_naive_times(record: TrialRecord) -> Iterator[Diagnostic]:
    annotations = record.evaluation.annotations or ()
    times: list[tuple[str, datetime]] = [("timestamp", record.timestamp)]
    times += [
        (f"evaluation.annotations[{index}].timestamp", annotation.timestamp)
        for index, annotation in enumerate(annotations)
    ]
    for where, time in times:
        if time.utcoffset() is None:
            message = f"{where} is {time.isoformat()}, without an offset from UTC"
            yield Diagnostic("naive-timestamp", message, is_problem=False)
