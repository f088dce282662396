"""What a model refused, as a sentence. It decides nothing."""

from collections.abc import Sequence

from pydantic import ValidationError
from pydantic_core import ErrorDetails

_SHOWN = 60


def render_path(path: Sequence[str | int]) -> str:
    """A place in a document, such as inputs.input_files[0].hash."""
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    return text.removeprefix(".") or "the document"


def render_refusal(error: ValidationError) -> str:
    """The first thing that was refused: where, what was found, what was expected."""
    return _render(error.errors(include_url=False)[0])


def find_unknown(error: ValidationError) -> list[tuple[str | int, ...]] | None:
    """The keys that no model knows, when nothing else was refused; else None."""
    details = error.errors(include_url=False, include_context=False, include_input=False)
    if any(detail["type"] != "extra_forbidden" for detail in details):
        return None
    return [detail["loc"] for detail in details]


def _render(detail: ErrorDetails) -> str:
    where = render_path(detail["loc"])
    message = detail["msg"]
    match detail["type"]:
        case "missing":
            return f"{where} is missing"
        case "extra_forbidden":
            return f"{where} is no key of the format"
        case "value_error":
            return f"{where}: {message.removeprefix('Value error, ')}"
    expected = message.removeprefix("Input should be ")
    return f"{where} is {_shown(detail['input'])}; expected {expected}"


def _shown(value: object) -> str:
    if isinstance(value, dict | list | tuple):
        return "an object" if isinstance(value, dict) else "an array"
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
