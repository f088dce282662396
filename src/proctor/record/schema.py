"""The JSON Schema of the format: what is accepted and written as a record of the first generation.

It covers types and ranges. Rules between fields (an unparseable answer scores 0, a lineage matches
its variation) and the requirements of `complete` are not part of it.
"""

import ast
import inspect
import json
from collections.abc import Iterator
from itertools import pairwise
from typing import Any, Final

from proctor.record import cost, model
from proctor.record.model import TrialRecord

SCHEMA_ID: Final = "urn:proctor:trial-record:1"
DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"


def render_schema() -> bytes:
    """Render the schema as JSON with an indent of 2 and a final newline."""
    body = TrialRecord.model_json_schema()
    parts = {**body["$defs"], TrialRecord.__name__: body}
    for name, explained in _explain_fields().items():
        if name in parts:
            _describe(parts[name]["properties"], explained)
    schema = {"$schema": DIALECT, "$id": SCHEMA_ID, **body}
    return (json.dumps(schema, indent=2, ensure_ascii=False) + "\n").encode()


def _explain_fields() -> dict[str, dict[str, str]]:
    """Read the docstring below each field of each class from the source.

    pydantic can do this, but on every load of the models, where it would take most of the time;
    only the schema needs it.
    """
    trees = (ast.parse(inspect.getsource(module)) for module in (cost, model))
    classes = (node for tree in trees for node in tree.body if isinstance(node, ast.ClassDef))
    return {each.name: dict(_explained(each.body)) for each in classes}


def _explained(body: list[ast.stmt]) -> Iterator[tuple[str, str]]:
    for field, below in pairwise(body):
        match field, below:
            case (
                ast.AnnAssign(target=ast.Name(id=name)),
                ast.Expr(value=ast.Constant(value=str(text))),
            ):
                yield name, inspect.cleandoc(text)


def _describe(properties: dict[str, Any], explained: dict[str, str]) -> None:
    for name, text in explained.items():
        # pydantic writes keys in sorted order.
        properties[name] = dict(sorted({**properties[name], "description": text}.items()))
