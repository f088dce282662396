"""Message dumps of pydantic-ai, real ones of three releases among them."""

from pathlib import Path

import pytest

from proctor.traces.conversation import Conversation, find_dialect, load_conversation, parse_row
from proctor.traces.turn import Turn

DATA = Path(__file__).parent.parent / "data" / "conversations"


def load(name: str) -> Conversation:
    return load_conversation(str(DATA / name))


@pytest.mark.parametrize("release", ["0.4.0", "1.0.0", "2.66.0"])
def test_a_real_pydantic_ai_dump(release: str) -> None:
    found = load(f"pydantic-ai-{release}.jsonl")
    assert found.dialect == "pydantic-ai"
    assert found.diagnostics == ()
    assert [(turn.line, turn.role) for turn in found.turns] == [
        (1, "system"),
        (1, "user"),
        (2, "assistant"),
        (3, "tool"),
        (4, "assistant"),
        (5, "tool"),
        (6, "assistant"),
        (7, "tool"),
        (8, "assistant"),
    ]
    system, user, first = found.turns[:3]
    assert (system.text, user.text) == ("Be brief.", "What is in this picture?")
    assert user.rest["parts"][0]["content"][2]["data"] == "iVBORw=="
    assert (first.text, first.thinking) == ("I will look.", "Look first.")
    assert [(call.call_id, call.arguments) for call in first.calls] == [
        ("c1", {"command": "ls"}),
        ("c2", {"command": "pwd"}),
    ]
    assert first.usage is not None
    assert first.rest["model_name"] == "function:model:"
    assert all(turn.timestamp for turn in found.turns)


@pytest.mark.parametrize(
    ("release", "succeeded"), [("0.4.0", None), ("1.0.0", None), ("2.66.0", False)]
)
def test_results_in_a_real_pydantic_ai_dump(release: str, succeeded: bool | None) -> None:
    found = load(f"pydantic-ai-{release}.jsonl")
    results = [result for turn in found.turns for result in turn.results]
    assert [(got.name, got.call_id, got.text, got.is_error) for got in results] == [
        ("bash", "c1", "ran ls", succeeded),
        ("bash", "c2", "ran pwd", succeeded),
        ("bash", "c3", "exit code 1: no such file", True),
        ("table", "c4", '{"rows": [1, 2.5, null]}', succeeded),
    ]
    assert results[3].rest["content"] == {"rows": [1, 2.5, None]}


def messages(*parts: object, kind: str = "request", **more: object) -> tuple[Turn, ...]:
    row = {"kind": kind, "parts": list(parts), **more}
    return parse_row(row, 1, find_dialect(row))


def test_a_message_without_parts_is_one_turn() -> None:
    assert messages(run_id="r", metadata=None) == (Turn(line=1, role="user", rest={"run_id": "r"}),)
    assert messages(kind="response") == (Turn(line=1, role="assistant"),)


def test_voices_follow_the_parts() -> None:
    turns = messages(
        {"part_kind": "tool-return", "tool_name": "f", "content": "out", "tool_call_id": "a"},
        {"part_kind": "retry-prompt", "content": "again", "tool_name": "g", "tool_call_id": "b"},
        {"part_kind": "retry-prompt", "content": "Plain text is not allowed."},
        {"part_kind": "user-prompt", "content": "Go on."},
        instructions="Mind the units.",
    )
    assert [turn.role for turn in turns] == ["tool", "user"]
    assert turns[0].rest == {"instructions": "Mind the units."}
    assert [(got.name, got.is_error) for got in turns[0].results] == [("f", None), ("g", True)]
    assert turns[1].text == "Plain text is not allowed.\nGo on."
    assert [part["part_kind"] for part in turns[1].rest["parts"]] == ["retry-prompt", "user-prompt"]


def test_parts_that_are_no_words_stay_in_their_place() -> None:
    file = {"part_kind": "file", "content": {"data": "AA==", "kind": "binary"}}
    compaction = {"part_kind": "compaction", "content": None, "provider_details": {"x": 1}}
    (turn,) = messages(
        file, 5, compaction, {"part_kind": "text", "content": "So."}, kind="response"
    )
    assert turn.text == "So."
    assert turn.rest == {"parts": [file, 5, compaction, {"part_kind": "text"}]}


def test_a_tool_that_the_provider_runs_answers_in_the_same_turn() -> None:
    (turn,) = messages(
        {"part_kind": "builtin-tool-call", "tool_name": "web_search", "args": '{"q": 1}'},
        {"part_kind": "builtin-tool-return", "tool_name": "web_search", "content": [1]},
        kind="response",
    )
    assert (turn.calls[0].name, turn.calls[0].arguments) == ("web_search", {"q": 1})
    assert (turn.results[0].text, turn.results[0].rest["content"]) == ("[1]", [1])


@pytest.mark.parametrize(
    ("outcome", "is_error"),
    [("failed", True), ("retried", True), ("denied", False), ("interrupted", False), ("new", None)],
)
def test_an_outcome_other_than_success_is_kept(outcome: str, is_error: bool | None) -> None:
    part = {"part_kind": "tool-return", "tool_name": "f", "content": "x", "outcome": outcome}
    (result,) = messages(part)[0].results
    assert (result.is_error, result.rest) == (is_error, {"outcome": outcome})


def test_words_among_other_content_are_text() -> None:
    tagged = {"kind": "text-content", "content": "tagged", "metadata": {"a": 1}}
    (turn,) = messages({"part_kind": "user-prompt", "content": ["said", tagged, 7]})
    assert turn.text == "said\ntagged"
    assert turn.rest["parts"][0]["content"] == ["said", tagged, 7]
