"""What is known of an evaluation, and goes into the records of all its samples."""

from dataclasses import dataclass
from typing import Any

from proctor.errors import PrimeError
from proctor.importers.prime.reading import find_text
from proctor.record.fields import check_json
from proctor.sentence import shown
from proctor.trajectory.entry import Object

_SAVE = "as `prime eval get ID -o json` prints it"


@dataclass(frozen=True, slots=True)
class Evaluation:
    """One evaluation."""

    id: str
    model: str
    configuration: Object
    """Its name, address and settings, as the record has them."""
    created_at: object = None
    """When it was made, as Prime says it."""
    n_samples: int | None = None
    """How many samples it says it has."""
    status: str | None = None


def parse_evaluation(value: object, where: str, asked: str | None = None) -> Evaluation:
    """The evaluation that an answer or a file holds; `asked` is the id that it was asked for by.

    Raises:
        PrimeError: it is no evaluation, or another one than asked for.
    """
    if not isinstance(value, dict):
        raise PrimeError(f"{where}: {shown(value)}; expected the object of an evaluation, {_SAVE}")
    own = _find_id(value)
    if own is None and asked is None:
        hint = "; it has samples: is it for --samples-json?" if "samples" in value else ""
        raise PrimeError(
            f"{where}: has no evaluation_id; expected the object of an evaluation, {_SAVE}, or "
            f"the id as EVAL_ID{hint}"
        )
    name = own or asked or ""
    configuration = _configure(value, name)
    try:
        check_json(configuration, levels=90)
    except ValueError as error:
        raise PrimeError(f"{where}: {error}, which no record can hold") from error
    return Evaluation(
        id=name,
        model=_find_model(value),
        configuration=configuration,
        created_at=_first(value, "created_at", "createdAt"),
        n_samples=find_count(_first(value, "total_samples", "totalSamples")),
        status=find_text(value.get("status")),
    )


def _find_id(value: Object) -> str | None:
    found = _first(value, "evaluation_id", "evaluationId", "id")
    if isinstance(found, int) and not isinstance(found, bool):
        return str(found)
    return find_text(found)


def _find_model(value: Object) -> str:
    metadata = value.get("metadata")
    model = metadata.get("model") if isinstance(metadata, dict) else None
    names = (value.get("model_name"), value.get("modelName"), value.get("inference_model"), model)
    return find_text(*names) or "unknown"


def _configure(value: Object, name: str) -> Object:
    return {
        "source": "prime-eval-samples",
        "evaluation_id": name,
        "evaluation_name": value.get("name"),
        "viewer_url": _first(value, "viewer_url", "viewerUrl"),
        "eval_config": _first(value, "eval_config", "evalConfig"),
    }


def _first(value: Object, *keys: str) -> Any:
    return next((value[key] for key in keys if value.get(key) is not None), None)


def find_count(value: object) -> int | None:
    """A whole number, 0 or more; None where it is anything else."""
    is_whole = isinstance(value, int) and not isinstance(value, bool)
    return value if is_whole and isinstance(value, int) and value >= 0 else None
