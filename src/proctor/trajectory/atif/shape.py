"""A JSON object as an Atif, field by field: slow, and only for documents that need it.

Harbor's validator takes some values of a neighbouring type ("1" for 1, "yes" for true); those are
taken here too, by the same rules of pydantic, with a note. What does not fit is a problem, and is
kept beside the document under its JSON path: an optional field becomes null, an element of an array
is left out, and an object without a field it needs is left out as a whole.
"""

import math
from typing import Any, Final, cast

from msgspec import inspect
from pydantic import TypeAdapter, ValidationError

from proctor.diagnostic import Diagnostic
from proctor.trajectory.atif.model import UNKNOWN_AGENT, Agent, Atif
from proctor.trajectory.entry import Object
from proctor.trajectory.loss import at_key, render_summary

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
        """The document, with what is unknown of the agent and no steps where there are none."""
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
    """What can be had of an agent that lacks something; the problems are known already."""
    if not isinstance(value, dict):
        return UNKNOWN_AGENT
    fields, _ = Shaper()._fields(value, _AGENT, "agent")
    return Agent(**{"name": UNKNOWN_AGENT.name, "version": UNKNOWN_AGENT.version, **fields})
