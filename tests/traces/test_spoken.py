"""A conversation as entries: each turn of the assistant begins a step, and nothing is dropped."""

import json
from pathlib import Path

import msgspec
import pytest

from proctor.traces.conversation import load_conversation
from proctor.traces.entry import ROLES
from proctor.traces.turn import ToolCall, ToolResult, Turn, turns_to_entries

DATA = Path(__file__).resolve().parent.parent / "data" / "conversations"
CONVERSATIONS = sorted(path for path in DATA.glob("*.jsonl") if path.stem != "aec-bench")


def turn(role: str, text: str = "", **fields: object) -> Turn:
    return msgspec.structs.replace(Turn(line=1, role=role, text=text), **fields)


def test_steps_are_counted_by_the_assistants_turns() -> None:
    call = ToolCall(name="bash", arguments={"command": "ls"}, call_id="c")
    result = ToolResult(text="a", name="bash", call_id="c")
    turns = [
        turn("system", "s"),
        turn("user", "u"),
        turn("assistant", "thinking aloud", calls=(call,)),
        turn("tool", results=(result,)),
        turn("assistant", "done"),
        turn("user", "thanks"),
    ]
    entries = list(turns_to_entries(turns))
    assert [(entry.step, entry.role) for entry in entries] == [
        (0, "system"),
        (0, "user"),
        (1, "assistant"),
        (1, "tool_call"),
        (1, "tool_result"),
        (2, "assistant"),
        (2, "user"),
    ]
    assert (entries[3].tool_name, entries[3].command) == ("bash", "ls")
    assert entries[3].arguments == {"command": "ls"}
    assert (entries[4].stdout, entries[4].exit_code) == ("a", None)


@pytest.mark.parametrize(
    ("arguments", "command"),
    [
        ({"command": "a", "cmd": "b"}, "a"),
        ({"cmd": "b"}, "b"),
        ({"keystrokes": "k\n"}, "k\n"),
        ({"command": ["ls"]}, ""),
        ({}, ""),
    ],
)
def test_a_command_is_what_a_tool_calls_so(arguments: dict[str, object], command: str) -> None:
    call = ToolCall(name="t", arguments=arguments)
    (entry,) = turns_to_entries([turn("assistant", calls=(call,))])
    assert (entry.role, entry.command, entry.arguments) == ("tool_call", command, arguments)


def test_what_an_entry_has_no_field_for_is_in_its_metadata() -> None:
    call = ToolCall(name="t", arguments={}, call_id="c", unparsed="{not", rest={"type": "x"})
    result = ToolResult(text="r", call_id="c", is_error=True, rest={"cache": 1})
    spoken = turn(
        "developer",
        "d",
        thinking="hm",
        usage={"in": 1},
        rest={"id": "i"},
        calls=(call,),
        results=(result,),
        timestamp="2026-01-01",
    )
    said, called, answered = turns_to_entries([spoken])
    assert (said.role, said.content) == ("system", "d")
    beside = {"id": "i", "role": "developer", "thinking": "hm", "usage": {"in": 1}}
    assert said.metadata == {"conversation": beside}
    unparsed = {"call_id": "c", "unparsed": "{not", "type": "x"}
    assert called.metadata == {"conversation": unparsed}
    failed = {"call_id": "c", "is_error": True, "cache": 1}
    assert answered.metadata == {"conversation": failed}
    assert {each.timestamp for each in (said, called, answered)} == {"2026-01-01"}


def test_a_turn_of_results_is_no_entry_of_its_own() -> None:
    results = (ToolResult(text="a", call_id="c"), ToolResult(text="b"))
    first, second = turns_to_entries([turn("tool", results=results, rest={"id": "i"})])
    assert (first.role, second.role) == ("tool_result", "tool_result")
    assert first.metadata == {"conversation": {"call_id": "c", "turn": {"id": "i"}}}
    assert second.metadata is None


def test_a_turn_that_says_nothing_is_still_there() -> None:
    (entry,) = turns_to_entries([turn("assistant")])
    assert (entry.role, entry.step, entry.content, entry.metadata) == ("assistant", 1, "", None)


def strings_in(value: object) -> set[str]:
    if isinstance(value, dict):
        return set().union(*map(strings_in, value.values())) if value else set()
    if isinstance(value, list):
        return set().union(*map(strings_in, value)) if value else set()
    return {value} if isinstance(value, str) else set()


@pytest.mark.parametrize("path", CONVERSATIONS, ids=lambda path: path.stem)
def test_no_text_of_a_turn_is_dropped(path: Path) -> None:
    turns = load_conversation(str(path)).turns
    assert turns
    entries = list(turns_to_entries(turns))
    assert {entry.role for entry in entries} <= set(ROLES)
    written = json.loads(msgspec.json.encode(entries))
    kept = strings_in(written)
    for each in json.loads(msgspec.json.encode(turns)):
        del each["role"]
        assert {text for text in strings_in(each) if text} <= kept
