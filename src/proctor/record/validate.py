"""A parsed document to a model, keys that it does not know set aside; and what strict means.

It reads no bytes and knows no generation.
"""

from collections.abc import Iterable
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import to_json

from proctor.diagnostic import Diagnostic
from proctor.errors import IncompleteRecordError, RecordError
from proctor.record.additions import Kept, take_out
from proctor.record.completeness import check_complete
from proctor.record.model import TrialRecord
from proctor.record.refusal import find_unknown, render_refusal


def validate[Model: BaseModel](
    model: type[Model], tree: dict[str, Any], source: str
) -> tuple[Model, tuple[Kept, ...]]:
    """The model's value, and the keys that it has no place for. Takes such keys out of the tree.

    Raises:
        RecordError: the document breaks the format in any other way.
    """
    try:
        return _parse(model, tree), ()
    except ValidationError as error:
        paths = find_unknown(error)
        if paths is None:
            raise RecordError(f"{source}: {render_refusal(error)}") from None
    kept = take_out(tree, paths)
    try:
        return _parse(model, tree), kept
    except ValidationError as error:
        raise RecordError(f"{source}: {render_refusal(error)}") from None


def _parse[Model: BaseModel](model: type[Model], tree: dict[str, Any]) -> Model:
    # From JSON and not from the tree: only there do texts become times and arrays tuples.
    return model.model_validate_json(to_json(tree))


def check_strict(record: TrialRecord, diagnostics: Iterable[Diagnostic], source: str) -> None:
    """Refuse a record at its first problem.

    Raises:
        IncompleteRecordError: it is called complete and is not.
        RecordError: any other problem.
    """
    for diagnostic in diagnostics:
        if not diagnostic.is_problem:
            continue
        if diagnostic.code == "hollow-complete":
            _refuse_hollow(record, source)
        raise RecordError(f"{source}: {diagnostic.message}")


def _refuse_hollow(record: TrialRecord, source: str) -> None:
    try:
        check_complete(record)
    except IncompleteRecordError as error:
        raise IncompleteRecordError(f"{source}: {error}", error.missing) from None
