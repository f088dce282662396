"""Reading an ATIF document: bytes to `Atif`, strict or salvaging.

Python's JSON reader, which harbor uses, accepts more than JSON: doubled keys, NaN, numbers that
overflow to infinity, unpaired surrogates. None of these can be written again as they were, so each
is a problem here; a salvaging reader continues with the last of the keys, with null and with
U+FFFD.

Harbor's validator takes some values of a neighbouring type ("1" for 1, "yes" for true); those are
taken here too, by the same pydantic rules, with a note. What does not fit is a problem, and is kept
beside the document under its JSON path: an optional field becomes null, an element of an array is
left out, and an object without a required field is left out as a whole.
"""

import codecs
import json
import math
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, cast

import msgspec
from msgspec import inspect
from pydantic import TypeAdapter, ValidationError

from proctor.diagnostic import Diagnostic
from proctor.errors import TraceError
from proctor.files import read_small
from proctor.json_values import has_more_values
from proctor.traces.atif.model import UNKNOWN_AGENT, Agent, Atif
from proctor.traces.atif.rules import find_problems
from proctor.traces.entry import Object
from proctor.traces.loss import at_key, render_summary

BEYOND_HARBOR: Final = frozenset({"duplicate-key", "not-a-json-number", "half-character"})
"""Codes of the problems that harbor's validator does not mind."""

_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_REPLACEMENT: Final = "\ufffd"


class _Doubled(dict[str, Any]):
    """An object in which some key stood more than once; the last one counts."""

    earlier: tuple[tuple[str, Any], ...] = ()
    """The ones that do not."""


def has_doubled_key(data: bytes) -> bool:
    """Whether valid JSON may have an object with a key twice. True can be wrong, False cannot.

    Reading drops all but the last of such keys, and with each a colon. What is written again then
    has fewer colons; only an escaped colon could make up for it.
    """
    if b"\\u003" in data:
        return True
    again = msgspec.json.encode(msgspec.json.decode(data))
    return again.count(b":") != data.count(b":")


def parse_document(data: bytes, name: str) -> tuple[Object, list[Diagnostic]]:
    """The object a document consists of, repaired where that can be done, and what was repaired.

    Raises:
        TraceError: it is not JSON, not an object, or nested too deeply.
    """
    found: list[Diagnostic] = []
    text = _parse_text(data, found)
    if not text.strip(" \t\r\n"):
        raise TraceError(f"{name}: the file is empty; expected an ATIF document, a JSON object")
    try:
        value = json.loads(text, object_pairs_hook=_pairs)
    except json.JSONDecodeError as error:
        where = f"{name}:{error.lineno}: not JSON at column {error.colno}: {error.msg}"
        raise TraceError(f"{where}; expected an ATIF document, a JSON object") from error
    except RecursionError as error:
        raise TraceError(f"{name}: nested too deeply to be read as an ATIF document") from error
    except ValueError as error:
        # Python refuses whole numbers of more than 4300 digits with a plain ValueError.
        raise TraceError(f"{name}: holds a number of too many digits to be read") from error
    if not isinstance(value, dict):
        what = "an array" if isinstance(value, list) else "a single value"
        raise TraceError(f"{name}: the document is {what}; expected a JSON object")
    found += _repair(value)
    return value, found


def _parse_text(data: bytes, found: list[Diagnostic]) -> str:
    if data.startswith(codecs.BOM_UTF8):
        found.append(
            Diagnostic("byte-order-mark", "the file starts with a byte order mark; expected none")
        )
        data = data.removeprefix(codecs.BOM_UTF8)
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        message = f"byte {error.start} is not UTF-8; expected UTF-8 text"
        found.append(Diagnostic("invalid-utf-8", message, line))
        return data.decode(errors="replace")


def _pairs(pairs: list[tuple[str, Any]]) -> Object:
    value = dict(pairs)
    if len(value) == len(pairs):
        return value
    doubled = _Doubled(value)
    last = {key: index for index, (key, _) in enumerate(pairs)}
    doubled.earlier = tuple(pair for index, pair in enumerate(pairs) if last[pair[0]] != index)
    return doubled


def _repair(root: Object) -> Iterator[Diagnostic]:
    # A list and not recursion: a file may be nested deeper than Python calls.
    waiting: list[tuple[Any, str]] = [(root, "")]
    while waiting:
        container, path = waiting.pop()
        if isinstance(container, _Doubled):
            yield from (_doubled(at_key(path, key), value) for key, value in container.earlier)
        keyed = isinstance(container, dict)
        keys: list[Any] = list(container) if keyed else list(range(len(container)))
        for key in keys:
            where = at_key(path, key) if keyed else f"{path}[{key}]"
            value = container[key]
            if isinstance(value, dict | list):
                waiting.append((value, where))
            elif isinstance(value, float) and not math.isfinite(value):
                container[key] = None
                message = f"{where} is {value}; expected a finite number"
                yield Diagnostic("not-a-json-number", message)
            elif isinstance(value, str) and _SURROGATE.search(value):
                container[key] = _SURROGATE.sub(_REPLACEMENT, value)
                yield _surrogate(where, value)
            if keyed and _SURROGATE.search(key):
                container[_SURROGATE.sub(_REPLACEMENT, key)] = container.pop(key)
                yield _surrogate(f"a key of {path or 'the document'}", key)


def _doubled(path: str, earlier: object) -> Diagnostic:
    message = f"{path} occurs twice in one object, first as {render_summary(earlier)}"
    message = f"{message}; expected once. The last one counts"
    return Diagnostic("duplicate-key", _SURROGATE.sub(_REPLACEMENT, message))


def _surrogate(where: str, text: str) -> Diagnostic:
    message = f"{where} is {render_summary(text)}, with half of a surrogate pair; expected text"
    return Diagnostic("half-character", _SURROGATE.sub(_REPLACEMENT, message))


_UNFIT: Final = object()
_ATIF: Final = cast(inspect.StructType, inspect.type_info(Atif))
_AGENT: Final = cast(inspect.StructType, inspect.type_info(Agent))
_SCALARS: Final[dict[type[inspect.Type], tuple[TypeAdapter[Any], str]]] = {
    inspect.StrType: (TypeAdapter(str), "a string"),
    inspect.IntType: (TypeAdapter(int), "a whole number"),
    inspect.FloatType: (TypeAdapter(float), "a number"),
    inspect.BoolType: (TypeAdapter(bool), "true or false"),
}


class Shaper:
    """Makes one document, and collects what it notices on the way."""

    def __init__(self) -> None:
        self.diagnostics: list[Diagnostic] = []
        self.kept: Object = {}

    def shape_document(self, value: Object) -> Atif:
        """The document; a missing agent becomes unknown, missing steps an empty list."""
        fields, _ = self._fields(value, _ATIF, "")
        if "agent" not in fields:
            fields["agent"] = _part_of_agent(value.get("agent"))
        fields.setdefault("steps", ())
        return Atif(**fields)

    def _shape(self, value: Any, kind: inspect.Type, path: str) -> Any:
        match kind:
            case inspect.AnyType():
                return value
            case inspect.UnionType(types=kinds):
                return self._union(value, kinds, path)
            case inspect.StructType():
                return self._struct(value, kind, path)
            case inspect.VarTupleType(item_type=item):
                return self._array(value, item, path)
            case inspect.DictType():
                return value if isinstance(value, dict) else self._unfit(value, path, "an object")
        return self._scalar(value, kind, path)

    def _union(self, value: Any, kinds: tuple[inspect.Type, ...], path: str) -> Any:
        if value is None and any(isinstance(kind, inspect.NoneType) for kind in kinds):
            return None
        rest = [kind for kind in kinds if not isinstance(kind, inspect.NoneType)]
        for kind in rest:
            if (isinstance(value, str) and isinstance(kind, inspect.StrType)) or (
                isinstance(value, list) and isinstance(kind, inspect.VarTupleType)
            ):
                return self._shape(value, kind, path)
        # What is neither of the obvious ones can only be a number (of str | float).
        last = [kind for kind in rest if not isinstance(kind, inspect.StrType)] or rest
        return self._shape(value, last[0], path)

    def _struct(self, value: Any, kind: inspect.StructType, path: str) -> Any:
        if not isinstance(value, dict):
            return self._unfit(value, path, "an object")
        fields, whole = self._fields(value, kind, path)
        return kind.cls(**fields) if whole else _UNFIT

    def _fields(
        self, value: Object, kind: inspect.StructType, path: str
    ) -> tuple[dict[str, Any], bool]:
        """The fields that fit, and whether all that are needed are among them."""
        fields: dict[str, Any] = {}
        whole = True
        for field in kind.fields:
            where = at_key(path, field.encode_name)
            made = _UNFIT
            if field.encode_name in value:
                made = self._keep(value[field.encode_name], field.type, where)
            elif field.required:
                self._problem("missing-field", f"{where} is missing; it is needed")
            if made is not _UNFIT:
                fields[field.name] = made
            whole = whole and (made is not _UNFIT or not field.required)
        known = {field.encode_name for field in kind.fields}
        for key in [key for key in value if key not in known]:
            where = at_key(path, key)
            self.kept[where] = value[key]
            self._problem("unknown-key", f"{where} is not a field of ATIF; expected only those")
        return fields, whole

    def _array(self, value: Any, item: inspect.Type, path: str) -> Any:
        if not isinstance(value, list):
            return self._unfit(value, path, "an array")
        made = [self._keep(each, item, f"{path}[{index}]") for index, each in enumerate(value)]
        return tuple(each for each in made if each is not _UNFIT)

    def _keep(self, value: Any, kind: inspect.Type, path: str) -> Any:
        made = self._shape(value, kind, path)
        if made is _UNFIT:
            self.kept[path] = value
        return made

    def _scalar(self, value: Any, kind: inspect.Type, path: str) -> Any:
        adapter, expected = _SCALARS[type(kind)]
        try:
            made = adapter.validate_python(value)
        except ValidationError:
            return self._unfit(value, path, expected)
        if isinstance(made, float) and not math.isfinite(made):
            # The texts "nan" and "inf" are numbers to pydantic.
            message = f"{path} is {render_summary(value)}; expected a finite number"
            self._problem("not-a-json-number", message)
            return _UNFIT
        if type(made) is not type(value) and not (type(value) is int and type(made) is float):
            note = f"{path} is {render_summary(value)}, read as {render_summary(made)}"
            message = f"{note}; expected {expected}"
            self.diagnostics.append(Diagnostic("other-type", message, is_problem=False))
        return made

    def _unfit(self, value: Any, path: str, expected: str) -> object:
        message = f"{path} is {render_summary(value)}; expected {expected}"
        self._problem("wrong-type", message)
        return _UNFIT

    def _problem(self, code: str, message: str) -> None:
        self.diagnostics.append(Diagnostic(code, message))


def _part_of_agent(value: Any) -> Agent:
    """The usable fields of an incomplete agent; the problems are known already."""
    if not isinstance(value, dict):
        return UNKNOWN_AGENT
    fields, _ = Shaper()._fields(value, _AGENT, "agent")
    return Agent(**{"name": UNKNOWN_AGENT.name, "version": UNKNOWN_AGENT.version, **fields})


_DECODER: Final = msgspec.json.Decoder(Atif)


MOST_VALUES: Final = 4_000_000
"""JSON values in a document at most; a trace of a hundred thousand steps has about two million."""


class AtifFile(msgspec.Struct, frozen=True, kw_only=True):
    """A document as it was read, and what was noticed."""

    atif: Atif
    diagnostics: tuple[Diagnostic, ...] = ()
    """Strict reading leaves notes only."""
    kept: Object = {}
    """What salvage could not place, unknown keys included: JSON path to value, as it was."""


def load_atif(path: Path, *, salvage: bool = False) -> AtifFile:
    """Read a file such as agent/trajectory.json.

    Raises:
        TraceError: it cannot be read, is no JSON object, or, unless salvaging, has a problem.
    """
    try:
        data = read_small(os.fspath(path))
    except OSError as error:
        raise TraceError(f"{path}: cannot be read: {error.strerror or error}") from error
    return parse_atif(data, name=os.fspath(path), salvage=salvage)


def parse_atif(data: bytes, *, name: str = "trajectory.json", salvage: bool = False) -> AtifFile:
    """Read a document from its bytes; errors call it by name.

    Raises:
        TraceError: it is no JSON object or, unless salvaging, has a problem.
    """
    if has_more_values(data, MOST_VALUES):
        raise TraceError(f"{name}: more than {MOST_VALUES:,} JSON values; it is not decoded")
    atif = _parse_good(data)
    if atif is not None:
        found = AtifFile(atif=atif, diagnostics=tuple(find_problems(atif)))
    else:
        found = _parse_slowly(data, name)
    problems = [each for each in found.diagnostics if each.is_problem]
    if problems and not salvage:
        more = "" if len(problems) == 1 else f" (and {len(problems) - 1} more problems)"
        line = "" if problems[0].line is None else f":{problems[0].line}"
        raise TraceError(f"{name}{line}: {problems[0].message}{more}")
    return found


def _parse_good(data: bytes) -> Atif | None:
    """The document, if every field has the right type and no key occurs twice."""
    try:
        # Most documents are valid: one fast decoding, and no second look.
        atif = _DECODER.decode(data)
        return None if has_doubled_key(data) else atif
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def _parse_slowly(data: bytes, name: str) -> AtifFile:
    value, diagnostics = parse_document(data, name)
    shaper = Shaper()
    try:
        atif = shaper.shape_document(value)
    except RecursionError as error:
        raise TraceError(f"{name}: nested too deeply to be read as an ATIF document") from error
    diagnostics += [*shaper.diagnostics, *find_problems(atif)]
    return AtifFile(atif=atif, diagnostics=tuple(diagnostics), kept=shaper.kept)
