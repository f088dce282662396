"""Fields of nested JSON by their path, as in `record.task.task_id`."""

from collections.abc import Mapping

from proctor.trajectory.entry import Object

type Scalar = str | int | float | bool


def find_at(value: Object, path: str) -> object:
    """What stands at a path; None where nothing does."""
    found: object = value
    for key in path.split("."):
        found = found.get(key) if isinstance(found, dict) else None
    return found


def find_scalar(value: Object, path: str) -> Scalar | None:
    """The same, where it is neither an object nor an array."""
    found = find_at(value, path)
    return found if isinstance(found, str | int | float | bool) else None


def put_at(value: Object, path: str, item: object) -> None:
    """Put something at a path, and make what leads there."""
    *way, last = path.split(".")
    for key in way:
        value = value.setdefault(key, {})
    value[last] = item


def pick(told: Object, names: Mapping[str, str]) -> dict[str, Scalar | None]:
    """The scalars at some paths, by their names in another form."""
    return {name: find_scalar(told, path) for path, name in names.items()}


def as_real(value: object) -> float | None:
    """A number as one of 64 bits; None for what is none, or larger than those can be."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value)
    except OverflowError:
        return None
