"""Nothing of a row is lost: every value in it is found in the turns that it becomes.

Each scalar of a generated row is made unique, so that finding it means that it was kept. Tags that
a turn shows by its form (type, event, part_kind and their like) are drawn from their known values
and not looked for; a tag that is not known is a value like any other.
"""

import copy
import json
from collections.abc import Iterator
from itertools import count
from typing import Any, Final

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.traces.conversation import find_dialect, parse_row

type Form = Any
"""A row whose scalars are still to be filled in."""


class Tag(str):
    """A string that says what something is; it is not filled in."""

    __slots__ = ()


class Encoded(tuple[Form]):
    """Something that stands in the row as JSON text."""

    __slots__ = ()


SCALARS: Final = st.sampled_from(["string", 0, 0.5])
KEYS: Final = st.sampled_from(
    [
        "role",
        "content",
        "text",
        "type",
        "kind",
        "name",
        "id",
        "function",
        "arguments",
        "input",
        "args",
        "tool_calls",
        "tool_call_id",
        "tool_use_id",
        "tool_name",
        "part_kind",
        "parts",
        "event",
        "usage",
        "timestamp",
        "reasoning",
        "thinking",
        "is_error",
        "refusal",
        "outcome",
        "custom",
        "function_call",
        "other",
    ]
)


def tags(*names: str) -> st.SearchStrategy[Form]:
    return st.sampled_from([*map(Tag, names), "string"])


KINDS: Final = tags(
    "text",
    "thinking",
    "tool_use",
    "tool_result",
    "web_search_tool_result",
    "refusal",
    "image_url",
    "function",
    "request",
    "response",
    "message",
    "tool_call",
    "tool",
    "assistant",
    "user",
    "system",
    "system-prompt",
    "user-prompt",
    "tool-call",
    "tool-return",
    "retry-prompt",
    "builtin-tool-return",
    "text-content",
    "binary",
    "success",
    "failed",
)
ANYTHING: Final = st.recursive(
    SCALARS | st.none() | KINDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=8,
)


def record(**keys: st.SearchStrategy[Form]) -> st.SearchStrategy[Form]:
    """An object with some of these keys, as they should be or as they should not, and others."""
    known = st.fixed_dictionaries(
        {}, optional={key: of | of | ANYTHING for key, of in keys.items()}
    )
    more = st.dictionaries(KEYS, ANYTHING, max_size=1)
    return st.builds(lambda known, more: more | known, known, more)


TEXT: Final = st.just("string")
ARGUMENTS: Final = st.dictionaries(KEYS, ANYTHING, max_size=2)
ARGUMENTS_OR_JSON: Final = ARGUMENTS | ARGUMENTS.map(lambda form: Encoded((form,)))
IMAGE: Final = record(type=tags("image", "image_url"), source=ARGUMENTS)
TEXT_BLOCK: Final = record(type=tags("text"), text=TEXT, citations=st.none())
OUTPUT: Final = TEXT | st.lists(TEXT_BLOCK | IMAGE | TEXT, max_size=3)
BLOCK: Final = st.one_of(
    TEXT_BLOCK,
    IMAGE,
    record(type=tags("thinking"), thinking=TEXT, signature=TEXT),
    record(type=tags("tool_use"), id=TEXT, name=TEXT, input=ARGUMENTS),
    record(type=tags("tool_result"), tool_use_id=TEXT, content=OUTPUT, is_error=st.none()),
)
FUNCTION: Final = record(name=TEXT, arguments=ARGUMENTS_OR_JSON)
CALL: Final = record(id=TEXT, type=tags("function"), function=FUNCTION)
CALL_OR_JSON: Final = CALL | CALL.map(lambda form: Encoded((form,)))
PART: Final = st.one_of(
    record(part_kind=tags("system-prompt"), content=TEXT, timestamp=TEXT),
    record(part_kind=tags("user-prompt"), content=OUTPUT, timestamp=TEXT),
    record(part_kind=tags("text", "thinking"), content=TEXT, id=TEXT, signature=TEXT),
    record(part_kind=tags("tool-call"), tool_name=TEXT, args=ARGUMENTS_OR_JSON, tool_call_id=TEXT),
    record(
        part_kind=tags("tool-return", "retry-prompt"), tool_name=TEXT, content=OUTPUT | ANYTHING
    ),
)
ROLE: Final = tags("system", "user", "assistant", "tool")
MESSAGE: Final = {"role": ROLE, "usage": ARGUMENTS, "timestamp": TEXT, "reasoning": TEXT}
EVENT: Final = tags("message", "tool_call", "tool_result")
DIALECTS: Final = {
    "plain": record(content=TEXT, **MESSAGE),
    "canonical": record(event=EVENT, content=OUTPUT, tool_name=TEXT, tool_call_id=TEXT, **MESSAGE),
    "openai": record(
        content=OUTPUT, tool_calls=st.lists(CALL_OR_JSON, max_size=3), refusal=TEXT, name=TEXT,
        tool_call_id=TEXT, function_call=FUNCTION, **MESSAGE,
    ),
    "anthropic": record(content=st.lists(BLOCK, max_size=4), **MESSAGE),
    "pydantic-ai": record(
        kind=tags("request", "response"), parts=st.lists(PART, max_size=4), timestamp=TEXT,
        usage=ARGUMENTS, model_name=TEXT,
    ),
    "anything": st.dictionaries(KEYS, ANYTHING, max_size=6),
}  # fmt: skip


def fill(form: Form, numbers: "count[int]") -> Any:
    """The form with every scalar replaced by one that is nowhere else."""
    if isinstance(form, Encoded):
        return json.dumps(fill(form[0], numbers))
    if isinstance(form, list):
        return [fill(item, numbers) for item in form]
    if isinstance(form, dict):
        return {key: fill(item, numbers) for key, item in form.items()}
    if form is None or isinstance(form, Tag):
        return form and str(form)
    return f"<{next(numbers)}>" if isinstance(form, str) else 1_000_003 * next(numbers) + form


def scalars(value: Any) -> Iterator[str | float]:
    """Everything in a value that is neither list nor object."""
    if isinstance(value, dict):
        for item in value.values():
            yield from scalars(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from scalars(item)
    elif value is not None:
        yield value


def marks(value: Any) -> set[str]:
    """Every scalar that was filled in, also those inside text."""
    text = json.dumps([str(scalar) for scalar in scalars(value)])
    words = "".join(at if at.isdigit() or at in "<>." else " " for at in text).split()
    return {word for word in words if word.startswith("<") or len(word) > 6}


@pytest.mark.parametrize("dialect", DIALECTS)
@given(data=st.data())
def test_every_value_of_a_row_is_in_its_turns(dialect: str, data: st.DataObject) -> None:
    row = fill(data.draw(DIALECTS[dialect]), count(1))
    before = copy.deepcopy(row)
    turns = parse_row(row, 1, find_dialect(row))
    assert row == before
    assert marks(row) - marks(msgspec.to_builtins(turns)) == set()


@given(form=DIALECTS["pydantic-ai"] | DIALECTS["openai"])
def test_a_lost_value_would_be_seen(form: Form) -> None:
    row = fill(form, count(1))
    row["lost"] = fill("string", count(10_000))
    turns = parse_row({key: row[key] for key in row if key != "lost"}, 1, find_dialect(row))
    assert marks(row) - marks(msgspec.to_builtins(turns)) == {"<10000>"}
