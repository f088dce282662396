"""Each dialect's rows, and the turns they become."""

from pathlib import Path
from typing import Any

import pytest

from proctor.traces.conversation import Conversation, find_dialect, load_conversation, parse_row
from proctor.traces.turn import ToolCall, ToolResult, Turn

DATA = Path(__file__).parent.parent / "data" / "conversations"


def load(name: str) -> Conversation:
    return load_conversation(str(DATA / name))


def parse(row: dict[str, Any]) -> Turn:
    (turn,) = parse_row(row, 1, find_dialect(row))
    return turn


# Which dialect


@pytest.mark.parametrize(
    ("row", "dialect"),
    [
        ({"role": "user", "content": "x"}, None),
        ({}, None),
        ({"role": "assistant", "content": []}, None),
        ({"role": "assistant", "content": ["x"]}, None),
        ({"role": "assistant", "content": [{"text": "x"}]}, None),
        ({"kind": "request", "content": "x"}, None),
        ({"kind": ["request"], "role": ["tool"], "content": {"type": 1}}, None),
        ({"event": None, "role": "tool", "tool_calls": []}, "canonical"),
        ({"role": "tool"}, "openai"),
        ({"role": "function"}, "openai"),
        ({"role": "assistant", "tool_calls": None}, "openai"),
        ({"role": "assistant", "function_call": {"name": "f"}}, "openai"),
        ({"role": "assistant", "content": [{"type": "text"}], "tool_calls": []}, "openai"),
        ({"role": "user", "content": [{"type": "text"}, {"type": "image_url"}]}, "openai"),
        ({"role": "user", "content": [{"type": "text", "text": "x"}]}, "anthropic"),
        ({"role": "user", "content": [{"type": ["image_url"]}]}, "anthropic"),
        ({"kind": "request", "parts": []}, "pydantic-ai"),
        ({"kind": "response", "parts": [{"part_kind": "text"}]}, "pydantic-ai"),
    ],
)
def test_a_row_shows_its_dialect(row: dict[str, Any], dialect: str | None) -> None:
    assert find_dialect(row) == dialect


# Rows without a mark


def test_a_plain_row_is_a_role_and_a_text() -> None:
    assert parse({"role": "user", "content": "hello"}) == Turn(line=1, role="user", text="hello")


def test_a_row_without_anything_is_an_empty_turn() -> None:
    assert parse({}) == Turn(line=1, role="")


def test_what_is_of_another_kind_than_expected_stays_as_it_was() -> None:
    row = {"role": 5, "content": {"a": 1}, "usage": "much", "timestamp": 17.5, "reasoning": [1]}
    assert parse(row) == Turn(line=1, role="", rest=row)


@pytest.mark.parametrize("key", ["timestamp", "occurred_at", "created_at"])
def test_a_time_is_a_time_under_any_of_its_names(key: str) -> None:
    assert parse({"role": "user", key: "2026-03-01"}).timestamp == "2026-03-01"


# Canonical


def test_a_canonical_conversation() -> None:
    found = load("canonical.jsonl")
    assert found.dialect == "canonical"
    assert [turn.role for turn in found.turns] == [
        "system",
        "user",
        "assistant",
        "tool",
        "assistant",
    ]
    assert found.turns[2] == Turn(
        line=3,
        role="assistant",
        text="python calc.py",
        calls=(ToolCall(name="bash", arguments={}, call_id="c1"),),
        timestamp="2026-03-01T10:00:02Z",
        usage={"input_tokens": 120, "output_tokens": 9},
    )
    assert found.turns[3].results == (ToolResult(text="5.2 V", name="bash", call_id="c1"),)
    assert found.turns[3].text == ""


def test_a_canonical_call_may_bring_arguments() -> None:
    row = {"event": "tool_call", "role": "assistant", "tool_name": "f", "arguments": {"x": 1}}
    assert parse(row).calls == (ToolCall(name="f", arguments={"x": 1}),)


def test_an_event_that_the_turn_does_not_show_is_kept() -> None:
    assert parse({"event": "handover", "role": "assistant"}).rest == {"event": "handover"}
    turn = parse({"event": "message", "role": "tool", "content": "out"})
    assert (turn.results[0].text, turn.rest) == ("out", {"event": "message"})


# OpenAI


def test_an_openai_conversation() -> None:
    found = load("openai.jsonl")
    assert found.dialect == "openai"
    asked, called, *answers, last = found.turns[1:]
    picture = {"url": "https://example.org/a.png", "detail": "low"}
    assert asked.text == "What is in this picture?"
    assert asked.rest == {
        "content": [{"type": "text"}, {"type": "image_url", "image_url": picture}],
        "name": "ann",
    }
    assert called.thinking == "Look first."
    assert called.calls == (
        ToolCall(name="bash", arguments={"command": "ls"}, call_id="call-1"),
        ToolCall(name="submit_answer", arguments={"content": "5.2"}, call_id="call-2"),
    )
    assert [answer.results for answer in answers] == [
        (ToolResult(text="a.png", name="bash", call_id="call-1"),),
        (ToolResult(text="taken", name="submit_answer", call_id="call-2"),),
    ]
    assert last == Turn(line=6, role="assistant", text="A cable.")


@pytest.mark.parametrize(
    ("arguments", "parsed", "unparsed"),
    [
        ('{"a": [1, 1.0]}', {"a": [1, 1.0]}, None),
        ({"a": 1}, {"a": 1}, None),
        ("", {}, None),
        (None, {}, None),
        ("{bad", {}, "{bad"),
        ("[1]", {}, "[1]"),
        ('{"a": NaN}', {}, '{"a": NaN}'),
        ('{"a": 1e999}', {}, '{"a": 1e999}'),
        ('{"a": 1, "a": 2}', {}, '{"a": 1, "a": 2}'),
        ('{"a": "\\ud800"}', {}, '{"a": "\\ud800"}'),
        ('{"a": "\\ud83d\\ude00"}', {"a": "😀"}, None),
        ('{"a": ' + "[" * 100_000, {}, '{"a": ' + "[" * 100_000),
        ("9" * 5000, {}, "9" * 5000),
    ],
)
def test_arguments_are_parsed_whole_or_kept_as_written(
    arguments: object, parsed: object, unparsed: str | None
) -> None:
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": arguments}}
    turn = parse({"role": "assistant", "content": "", "tool_calls": [call]})
    assert turn.calls == (
        ToolCall(name="f", arguments=parsed, unparsed=unparsed, call_id="c"),  # type: ignore[arg-type]
    )
    assert turn.rest == {}


def test_a_call_keeps_what_it_says_beyond_name_and_arguments() -> None:
    function = {"name": "f", "arguments": [1], "strict": True, "id": "inner", "": "nameless"}
    turn = parse({"tool_calls": [{"id": 7, "type": "x", "index": 0, "function": function}]})
    left = {"arguments": [1], "strict": True, "id": "inner", "": "nameless"}
    rest = {"id": 7, "type": "x", "index": 0, "function": left}
    assert turn.calls == (ToolCall(name="f", arguments={}, rest=rest),)


def test_calls_of_other_forms() -> None:
    flat = {"id": "a", "name": "f", "arguments": '{"x": 1}'}
    free = {"id": "b", "type": "custom", "custom": {"name": "g", "input": "ls -l"}}
    assert parse({"tool_calls": [flat, free]}).calls == (
        ToolCall(name="f", arguments={"x": 1}, call_id="a"),
        ToolCall(name="g", arguments={}, unparsed="ls -l", call_id="b", rest={"type": "custom"}),
    )
    older = {"role": "assistant", "function_call": {"name": "f", "arguments": "{}", "more": 1}}
    assert parse(older).calls == (ToolCall(name="f", arguments={}, rest={"more": 1}),)
    answer = parse({"role": "function", "name": "f", "content": "out"})
    assert answer.results == (ToolResult(text="out", name="f"),)


@pytest.mark.parametrize("none", [None, [], ""])
def test_no_calls_in_any_form(none: object) -> None:
    assert parse({"role": "assistant", "tool_calls": none}) == Turn(line=1, role="assistant")


def test_calls_that_are_none_stay_in_the_rest() -> None:
    turn = parse({"tool_calls": [3, "text", '{"a": 1, "a": 2}', {"function": {"name": "f"}}]})
    assert [call.name for call in turn.calls] == ["f"]
    assert turn.rest == {"tool_calls": [3, "text", '{"a": 1, "a": 2}']}


def test_a_refusal_is_the_text_where_there_is_no_other() -> None:
    refused: dict[str, Any] = {
        "role": "assistant",
        "content": None,
        "refusal": "No.",
        "tool_calls": [],
    }
    assert parse(refused) == Turn(line=1, role="assistant", text="No.", rest={"refusal": "No."})
    assert parse(refused | {"content": "Well."}).text == "Well."
    block = [{"type": "refusal", "refusal": "No."}]
    turn = parse({"role": "assistant", "content": block})
    assert (turn.text, turn.rest) == ("No.", {"content": [{"type": "refusal"}]})


@pytest.mark.parametrize(
    ("content", "text", "rest"),
    [
        (None, "", {}),
        ([], "", {}),
        ({"ok": True}, '{"ok": true}', {"content": {"ok": True}}),
        ([1, {"é": 2}], '[1, {"é": 2}]', {"content": [1, {"é": 2}]}),
        (["a"], "a", {}),
        (["a", "b"], "a\nb", {"content": ["a", "b"]}),
        ([{"type": "image", "data": "x"}], "", {"content": [{"type": "image", "data": "x"}]}),
        ([{"type": "tool_use", "id": "a"}], "", {"content": [{"type": "tool_use", "id": "a"}]}),
        (
            [{"type": "text", "text": "a"}, {"type": "image"}],
            "a",
            {"content": [{"type": "text"}, {"type": "image"}]},
        ),
    ],
)
def test_a_result_is_text_as_far_as_it_can_be(content: object, text: str, rest: object) -> None:
    (result,) = parse({"role": "tool", "content": content}).results
    assert (result.text, result.rest) == (text, rest)


# Anthropic


def test_an_anthropic_conversation() -> None:
    found = load("anthropic.jsonl")
    assert found.dialect == "anthropic"
    system, asked, called, answered, last = found.turns
    assert (system.role, system.text) == ("system", "Be brief.")
    assert asked.text == "What is in this picture?"
    assert asked.rest["content"][1]["source"]["data"] == "iVBORw=="
    assert (called.text, called.thinking) == ("I will look.", "Look first.")
    assert called.usage == {"input_tokens": 210, "output_tokens": 40}
    assert [(call.call_id, call.arguments) for call in called.calls] == [
        ("t1", {"command": "ls"}),
        ("t2", {"command": "false"}),
    ]
    assert called.rest["content"] == [
        {"type": "thinking", "signature": "c2ln"},
        {"type": "redacted_thinking", "data": "cmVk"},
        {"type": "text"},
        {"type": "tool_use"},
        {"type": "tool_use"},
    ]
    assert called.rest["model"] == "claude-sonnet-4"
    assert (answered.role, answered.text) == ("user", "Go on.")
    assert [(got.text, got.name, got.is_error) for got in answered.results] == [
        ("a.png\nb.png", "bash", None),
        ("[exit code: 1]", "bash", True),
    ]
    assert last.text == "A cable."


def test_blocks_in_the_usual_order_leave_nothing() -> None:
    blocks = [
        {"type": "thinking", "thinking": "Hm."},
        {"type": "text", "text": "So."},
        {"type": "tool_use", "id": "a", "name": "f", "input": {}},
        {"type": "tool_use", "id": "b", "name": "g", "input": {}},
    ]
    assert parse({"role": "assistant", "content": blocks}).rest == {}


def test_another_order_of_blocks_is_kept() -> None:
    blocks = [{"type": "tool_use", "id": "a", "name": "f"}, {"type": "text", "text": "after"}]
    turn = parse({"role": "assistant", "content": blocks})
    assert (turn.text, turn.calls[0].call_id) == ("after", "a")
    assert turn.rest == {"content": [{"type": "tool_use"}, {"type": "text"}]}


def test_where_one_of_several_texts_ends_is_kept() -> None:
    blocks = [{"type": "text", "text": "one\ntwo"}, {"type": "text", "text": "three"}]
    turn = parse({"role": "assistant", "content": blocks})
    assert (turn.text, turn.rest) == ("one\ntwo\nthree", {"content": blocks})


def test_blocks_of_server_tools_are_calls_and_results_too() -> None:
    blocks = [
        {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {"query": "q"}},
        {"type": "web_search_tool_result", "tool_use_id": "s", "content": [{"url": "u"}]},
    ]
    turn = parse({"role": "assistant", "content": blocks})
    assert turn.calls[0].rest == {"type": "server_tool_use"}
    assert turn.results[0].text == '[{"url": "u"}]'
    assert turn.results[0].rest == {"type": "web_search_tool_result", "content": [{"url": "u"}]}
