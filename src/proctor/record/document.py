"""Bytes of unknown origin to a JSON document, and a document to a model.

Always refused, because no record can hold it: invalid JSON or UTF-8, nan and infinity, numbers and
nesting beyond reason, lone surrogates, more than 16 MiB. A byte order mark and a repeated key are
problems that a salvaging reader tolerates: the mark is skipped, the last value counts.

Keys that a model does not know are taken out on reading and put back where they were on writing.
The later writing of the first generation added optional keys (ADDED): what they hold is not judged,
apart from the few rules that need no other file. Unknown keys are kept only when salvaging.
"""

import codecs
import json
import re
import stat
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NoReturn

import msgspec
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from proctor.diagnostic import Diagnostic
from proctor.errors import IncompleteRecordError, RecordError
from proctor.files import read_small
from proctor.json_values import check_values
from proctor.record.fields import check_json
from proctor.record.model import TrialRecord
from proctor.record.rules import check_complete

_SHOWN = 60
_EXPECTED = {
    "dict_type": "an object",
    "model_type": "an object",
    "tuple_type": "a valid array",
}
"""pydantic names Python's types; a record's author writes JSON."""


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
    expected = _EXPECTED.get(detail["type"]) or message.removeprefix("Input should be ")
    return f"{where} is {_shown_value(detail['input'])}; expected {expected}"


def _shown_value(value: object) -> str:
    if isinstance(value, dict | list | tuple):
        return "an object" if isinstance(value, dict) else "an array"
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


type KeyPath = tuple[str | int, ...]
"""Keys and positions from the top of a document to one place in it."""

ADDED: Final[frozenset[KeyPath]] = frozenset(
    {
        ("task", "visibility"),
        ("outputs", "artifacts"),
        ("outputs", "terminated"),
        ("outputs", "truncated"),
        ("outputs", "final_reason"),
        ("cost", "model_calls"),
        ("evaluation", "stewardship"),
        ("lifecycle_execution",),
        ("lifecycle_provenance",),
        ("world_execution",),
        ("world_provenance",),
        ("episode_artifact",),
        ("meta_harness_provenance",),
    }
)
"""What the later writing of the first generation may hold beyond it."""

_DIGEST = re.compile("[0-9a-f]{64}")


class Kept(msgspec.Struct, frozen=True):
    """One key that the record has no place for, with its value."""

    path: KeyPath
    """Where it stood."""
    position: int
    """Which key of its object it was, counted from 0."""
    value: Any
    """As the file had it."""

    @property
    def is_known(self) -> bool:
        """Whether a generation of the format has this key."""
        return self.path in ADDED


def take_out(tree: dict[str, Any], paths: Sequence[KeyPath]) -> tuple[Kept, ...]:
    """Remove keys from a document, and keep them."""
    places = [(path, _find_object(tree, path)) for path in paths]
    kept = [Kept(path, list(at).index(path[-1]), at[path[-1]]) for path, at in places if at]
    for item in kept:
        _find_object(tree, item.path).pop(item.path[-1])
    return tuple(kept)


def put_back(tree: dict[str, Any], kept: Sequence[Kept]) -> None:
    """Undo take_out in a document of the same shape.

    Raises:
        RecordError: the document has no such place.
    """
    for item in sorted(kept, key=lambda item: item.position):
        at = _find_object(tree, item.path)
        if not isinstance(at, dict):
            raise RecordError(f"{render_path(item.path)} has no place in the record any more")
        items = list(at.items())
        items.insert(item.position, (item.path[-1], item.value))
        at.clear()
        at.update(items)


def _find_object(tree: dict[str, Any], path: KeyPath) -> Any:
    at: Any = tree
    for part in path[:-1]:
        if isinstance(at, dict):
            at = at.get(part)
        elif isinstance(at, list) and isinstance(part, int) and part < len(at):
            at = at[part]
        else:
            return None
    return at


def find_addition_problems(kept: Sequence[Kept]) -> Iterator[Diagnostic]:
    """What breaks a rule of the added keys."""
    added = {item.path: item.value for item in kept if item.is_known}
    for path, allowed, expected in _SCALARS:
        if path in added and not allowed(added[path]):
            found = f"{render_path(path)} is {added[path]!r}; expected {expected}"
            yield Diagnostic("bad-addition", found)
    if added.get(("outputs", "terminated")) and added.get(("outputs", "truncated")):
        message = "outputs.terminated and outputs.truncated are both true; expected one at most"
        yield Diagnostic("bad-addition", message)
    yield from _find_halves(added)
    yield from _find_bad_artifacts(added)


def _find_halves(added: dict[KeyPath, Any]) -> Iterator[Diagnostic]:
    first, second = ("lifecycle_execution",), ("lifecycle_provenance",)
    if (added.get(first) is None) != (added.get(second) is None):
        there, missing = (second, first) if added.get(first) is None else (first, second)
        message = f"{there[0]} is there without {missing[0]}; expected both or neither"
        yield Diagnostic("bad-addition", message)


def _find_bad_artifacts(added: dict[KeyPath, Any]) -> Iterator[Diagnostic]:
    listed = added.get(("outputs", "artifacts")) or []
    single = added.get(("episode_artifact",))
    for artifact in [*(listed if isinstance(listed, list) else [listed]), single]:
        if artifact is not None and not _is_artifact(artifact):
            message = (
                f"an artifact is {str(artifact)[:80]}; "
                "expected kind, path, sha256 (64 lower-case hex digits) and media_type"
            )
            yield Diagnostic("bad-addition", message)


def _is_artifact(value: object) -> bool:
    if not isinstance(value, dict) or value.keys() != {"kind", "path", "sha256", "media_type"}:
        return False
    texts = list(value.values())
    return all(isinstance(text, str) for text in texts) and bool(_DIGEST.fullmatch(value["sha256"]))


def _is_count(value: object) -> bool:
    return value is None or (isinstance(value, int) and not isinstance(value, bool) and value >= 0)


def _is_reason(value: object) -> bool:
    return value is None or (isinstance(value, str) and bool(value.strip()))


_SCALARS = (
    (("task", "visibility"), (None, "public", "holdout").__contains__, "public, holdout or null"),
    (("outputs", "terminated"), lambda value: isinstance(value, bool), "true or false"),
    (("outputs", "truncated"), lambda value: isinstance(value, bool), "true or false"),
    (("outputs", "final_reason"), _is_reason, "text that is not blank, or null"),
    (("cost", "model_calls"), _is_count, "a whole number, 0 or more, or null"),
)


LARGEST: Final = 16 << 20
"""Bytes. A record names its files, it does not hold them."""
_LEVELS = 150


class Document(msgspec.Struct, frozen=True):
    """A JSON object and what was noticed about its bytes."""

    tree: dict[str, Any]
    """The object, keys in the order of the file. No other code holds it: it may be changed."""
    diagnostics: tuple[Diagnostic, ...]


def parse_document(data: bytes, source: str) -> Document:
    """The JSON object that bytes spell.

    Raises:
        RecordError: they spell none, or one that cannot be kept.
    """
    if len(data) > LARGEST:
        raise RecordError(f"{source}: {render_too_large(len(data))}")
    try:
        check_values(data)
    except ValueError as error:
        raise RecordError(f"{source}: holds {error}") from error
    notes: list[Diagnostic] = []
    if data.startswith(codecs.BOM_UTF8):
        notes.append(Diagnostic("byte-order-mark", "begins with a byte order mark; expected {"))
        data = data[len(codecs.BOM_UTF8) :]
    tree = _parse_tree(data, source, notes)
    try:
        check_json(tree, _LEVELS)
    except ValueError as error:
        raise RecordError(f"{source}: {error}") from None
    if not isinstance(tree, dict):
        raise RecordError(f"{source}: a JSON {_KINDS[type(tree)]}; expected an object")
    return Document(tree, tuple(notes))


def render_too_large(size: int) -> str:
    """That this many bytes are no record."""
    return f"{size:,} bytes; expected a record, which has {LARGEST >> 20} MiB at most"


_KINDS = {
    list: "array",
    str: "string",
    int: "number",
    float: "number",
    bool: "boolean",
    type(None): "null",
}


def _parse_tree(data: bytes, source: str, notes: list[Diagnostic]) -> object:
    def collect(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            notes.append(_describe_twice(pairs))
        return found

    def refuse(literal: str) -> NoReturn:
        raise RecordError(f"{source}: holds {literal}; expected a finite number")

    try:
        return json.loads(data.decode(), object_pairs_hook=collect, parse_constant=refuse)
    except UnicodeDecodeError as error:
        raise RecordError(f"{source}: byte {error.start} is not UTF-8") from error
    except json.JSONDecodeError as error:
        at = f"line {error.lineno} column {error.colno}"
        raise RecordError(f"{source}: not JSON at {at}: {error.msg}") from error
    except ValueError as error:
        raise RecordError(f"{source}: holds a number of too many digits") from error
    except RecursionError as error:
        raise RecordError(f"{source}: is nested more than {_LEVELS} levels deep") from error


def _describe_twice(pairs: list[tuple[str, Any]]) -> Diagnostic:
    keys = [key for key, _ in pairs]
    twice = next(key for key in keys if keys.count(key) > 1)
    return Diagnostic("duplicate-key", f"has the key {twice!r} twice in one object")


def load_bytes(path: Path) -> bytes:
    """The bytes of a file that is small enough to be a record's.

    Raises:
        RecordError: it cannot be read, is no plain file or too large.
    """
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            raise RecordError(f"{path}: is no plain file; expected a record")
        if status.st_size > LARGEST:
            raise RecordError(f"{path}: {render_too_large(status.st_size)}")
        return read_small(str(path))
    except OSError as error:
        raise RecordError(f"{path}: cannot be read: {error.strerror}") from error


def validate[Model: BaseModel](
    model: type[Model], tree: dict[str, Any], source: str
) -> tuple[Model, tuple[Kept, ...]]:
    """The model's value, and the keys that it has no place for. Takes such keys out of the tree.

    Raises:
        RecordError: the document breaks the format in any other way.
    """
    try:
        return model.model_validate(tree), ()
    except ValidationError as error:
        paths = find_unknown(error)
        if paths is None:
            raise RecordError(f"{source}: {render_refusal(error)}") from None
    kept = take_out(tree, paths)
    try:
        return model.model_validate(tree), kept
    except ValidationError as error:
        raise RecordError(f"{source}: {render_refusal(error)}") from None


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
