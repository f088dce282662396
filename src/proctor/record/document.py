"""Parse untrusted bytes to a JSON document, and a document to a model.

Always refused: invalid JSON or UTF-8, nan and infinity, excessive numbers and nesting, lone
surrogates, more than 16 MiB. A byte order mark and a repeated key are problems that a lenient
reader tolerates: the mark is skipped, the last value counts.

Keys that a model does not have are removed on reading and restored to their position on writing.
Later records of the first generation have optional added keys (ADDED); only a few simple rules are
checked for them. Unknown keys are kept only by a lenient reader.
"""

import codecs
import json
import stat
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NoReturn

import msgspec
from pydantic import BaseModel, ValidationError

from proctor.diagnostic import Diagnostic
from proctor.digest import is_digest
from proctor.errors import IncompleteRecordError, RecordError
from proctor.files import read_small
from proctor.json_values import check_values
from proctor.record.fields import check_json
from proctor.record.model import TrialRecord
from proctor.record.rules import check_complete
from proctor.sentence import render_limit

# pydantic names Python's types, but the author of a record writes JSON.
_SHOWN = 60
_EXPECTED = {
    "dict_type": "an object",
    "model_type": "an object",
    "tuple_type": "a valid array",
}


def render_path(path: Sequence[str | int]) -> str:
    """Format a path in a document, such as inputs.input_files[0].hash."""
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    return text.removeprefix(".") or "the document"


def render_refusal(error: ValidationError) -> str:
    """Describe the first validation error: where, what was found, what was expected."""
    detail = error.errors(include_url=False)[0]
    where = render_path(detail["loc"])
    message = detail["msg"]
    match detail["type"]:
        case "missing":
            return f"{where} is missing"
        case "extra_forbidden":
            return f"{where} is not a key of the format"
        case "value_error":
            return f"{where}: {message.removeprefix('Value error, ')}"
    expected = _EXPECTED.get(detail["type"]) or message.removeprefix("Input should be ")
    return f"{where} is {_shown_value(detail['input'])}; expected {expected}"


def find_unknown(error: ValidationError) -> list[tuple[str | int, ...]] | None:
    """List the unknown keys, if there is no other validation error; else None."""
    details = error.errors(include_url=False, include_context=False, include_input=False)
    if any(detail["type"] != "extra_forbidden" for detail in details):
        return None
    return [detail["loc"] for detail in details]


def _shown_value(value: object) -> str:
    if isinstance(value, dict | list | tuple):
        return "an object" if isinstance(value, dict) else "an array"
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


type KeyPath = tuple[str | int, ...]
"""Keys and indexes from the top of a document to one value in it."""

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
"""Keys that later records of the first generation may have."""


class UnknownKey(msgspec.Struct, frozen=True):
    """A key that the record has no field for, with its value."""

    path: KeyPath
    """Its path in the document."""
    position: int
    """Its index among the keys of its object, from 0."""
    value: Any
    """The value from the file."""

    @property
    def is_known(self) -> bool:
        """Whether a later generation of the format has this key."""
        return self.path in ADDED


def take_out(tree: dict[str, Any], paths: Sequence[KeyPath]) -> tuple[UnknownKey, ...]:
    """Remove keys from a document and return them."""
    places = [(path, _find_object(tree, path)) for path in paths]
    kept = [UnknownKey(path, list(at).index(path[-1]), at[path[-1]]) for path, at in places if at]
    for item in kept:
        _find_object(tree, item.path).pop(item.path[-1])
    return tuple(kept)


def put_back(tree: dict[str, Any], kept: Sequence[UnknownKey]) -> None:
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


def find_addition_problems(kept: Sequence[UnknownKey]) -> Iterator[Diagnostic]:
    """Check the rules for the added keys."""
    added = {item.path: item.value for item in kept if item.is_known}
    for path, allowed, expected in _SCALARS:
        if path in added and not allowed(added[path]):
            found = f"{render_path(path)} is {added[path]!r}; expected {expected}"
            yield Diagnostic("bad-addition", found)
    if added.get(("outputs", "terminated")) and added.get(("outputs", "truncated")):
        message = "outputs.terminated and outputs.truncated are both true; expected one at most"
        yield Diagnostic("bad-addition", message)
    yield from _find_unpaired(added)
    yield from _find_bad_artifacts(added)


def _find_unpaired(added: dict[KeyPath, Any]) -> Iterator[Diagnostic]:
    first, second = ("lifecycle_execution",), ("lifecycle_provenance",)
    if (added.get(first) is None) != (added.get(second) is None):
        there, missing = (second, first) if added.get(first) is None else (first, second)
        message = f"{there[0]} is present without {missing[0]}; expected both or neither"
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
    return all(isinstance(text, str) for text in texts) and is_digest(value["sha256"])


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
"""Largest record in bytes. A record names its files and does not contain them."""
# Below Python's recursion limit, and above the deepest object that `fields.MAX_NESTING` allows.
_LEVELS = 150


class Document(msgspec.Struct, frozen=True):
    """A JSON object, with findings about its bytes."""

    tree: dict[str, Any]
    """The object, keys in file order. Not shared: the caller may change it."""
    diagnostics: tuple[Diagnostic, ...]


def parse_document(data: bytes, source: str) -> Document:
    """Parse the JSON object in bytes.

    Raises:
        RecordError: they are not a JSON object, or one that cannot be stored.
    """
    if len(data) > LARGEST:
        raise RecordError(f"{source}: {render_too_large(len(data))}")
    try:
        check_values(data)
    except ValueError as error:
        raise RecordError(f"{source}: has {error}") from error
    notes: list[Diagnostic] = []
    tree = _find_plain(data)
    if tree is None:
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


def _find_plain(data: bytes) -> object:
    """The value of JSON text that has nothing to report; None if it may have, or is null.

    A value that is encoded to the same text again, apart from blanks, has lost nothing of it: no
    key is repeated, no number is out of range, and no text is invalid. Most records are so, and
    this is several times faster than reading them with hooks.
    """
    # With so few brackets, in text or not, it cannot be nested too deep.
    if data.count(b"{") + data.count(b"[") > _LEVELS:
        return None
    try:
        value: object = msgspec.json.decode(data)
        is_same = msgspec.json.encode(value) == msgspec.json.format(data, indent=-1)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None
    return value if is_same else None


def render_too_large(size: int) -> str:
    """Message for a file that is too large to be a record."""
    return f"{size:,} bytes; expected a record of at most {render_limit(LARGEST)}"


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
            keys = [key for key, _ in pairs]
            twice = next(key for key in keys if keys.count(key) > 1)
            notes.append(Diagnostic("duplicate-key", f"has the key {twice!r} twice in one object"))
        return found

    def refuse(literal: str) -> NoReturn:
        raise RecordError(f"{source}: has {literal}; expected a finite number")

    try:
        return json.loads(data.decode(), object_pairs_hook=collect, parse_constant=refuse)
    except UnicodeDecodeError as error:
        raise RecordError(f"{source}: byte {error.start} is not UTF-8") from error
    except json.JSONDecodeError as error:
        at = f"line {error.lineno} column {error.colno}"
        raise RecordError(f"{source}: not JSON at {at}: {error.msg}") from error
    except ValueError as error:
        raise RecordError(f"{source}: has a number with too many digits") from error
    except RecursionError as error:
        raise RecordError(f"{source}: is nested more than {_LEVELS} levels deep") from error


def load_bytes(path: Path) -> bytes:
    """Read a file that is small enough to be a record.

    Raises:
        RecordError: it cannot be read, is not a regular file or too large.
    """
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            raise RecordError(f"{path}: is not a regular file; expected a record")
        if status.st_size > LARGEST:
            raise RecordError(f"{path}: {render_too_large(status.st_size)}")
        return read_small(str(path))
    except OSError as error:
        raise RecordError(f"{path}: cannot be read: {error.strerror}") from error


def validate[Model: BaseModel](
    model: type[Model], tree: dict[str, Any], source: str
) -> tuple[Model, tuple[UnknownKey, ...]]:
    """Validate a document; return the model and the keys it has no field for.

    Removes these keys from the tree.

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
    """Raise the first problem of a record.

    Raises:
        IncompleteRecordError: it is marked complete but is not.
        RecordError: any other problem.
    """
    for diagnostic in diagnostics:
        if not diagnostic.is_problem:
            continue
        if diagnostic.code == "hollow-complete":
            try:
                check_complete(record)
            except IncompleteRecordError as error:
                raise IncompleteRecordError(f"{source}: {error}", error.missing) from None
        raise RecordError(f"{source}: {diagnostic.message}")
