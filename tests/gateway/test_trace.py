"""Exchanges become a trajectory in which everything that was said stands once."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from proctor.gateway.exchange import ModelAnswer, ModelRequest, Wire
from proctor.gateway.trace import CALL_KEY, ExchangeFacts, TraceBuilder
from proctor.gateway.wire import read_answer, read_request
from proctor.harbor.trial_cost import count_trace
from proctor.record.cost import CostBasis, Usage
from proctor.traces.atif.convert import from_entries, to_entries
from proctor.traces.entry import Entry, TraceKind
from proctor.traces.summary import summarise
from proctor.traces.trace import load_trace_file
from proctor.traces.turn import ToolCall, ToolResult, Turn
from tests.gateway import bodies

START = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
SYSTEM = Turn(line=1, role="system", text="You are an engineer.\nBe brief.")
TOOLS = ({"name": "bash"},)


def user(text: str) -> Turn:
    return Turn(line=1, role="user", text=text)


def said(text: str, *calls: ToolCall) -> Turn:
    return Turn(line=1, role="assistant", text=text, calls=calls)


def call(name: str, number: int) -> ToolCall:
    return ToolCall(name=name, arguments={"command": f"do {number}"}, call_id=f"c{number}")


def result(number: int, text: str = "done") -> Turn:
    return Turn(line=1, role="tool", results=(ToolResult(text=text, call_id=f"c{number}"),))


class Talk:
    """Feeds a builder, and keeps what it returns."""

    def __init__(self) -> None:
        self.builder = TraceBuilder()
        self.entries: list[Entry] = []
        self.number = 0

    def ask(self, turns: list[Turn], answer: Turn | None, **more: Any) -> list[Entry]:
        """One exchange; its answer is added to the turns."""
        self.number += 1
        tools = more.pop("tools", TOOLS)
        previous_id = more.pop("previous_id", None)
        request = ModelRequest(turns=tuple(turns), tools=tools, previous_id=previous_id)
        usage = more.pop("usage", Usage(input=10, output=2, cache_read=4, cache_write=1))
        given = ModelAnswer(turn=answer, model="gpt-x", usage=usage, **more)
        facts = ExchangeFacts(number=self.number)
        entries = self.builder.add(request, given, START, 1.5, facts)
        self.entries += entries
        if answer is not None:
            turns.append(answer)
        return entries


def shape(entries: list[Entry]) -> list[tuple[str, str]]:
    """Role and text of each entry."""
    return [(entry.role, entry.content or entry.stdout or entry.command or "") for entry in entries]


def numbers(entries: list[Entry]) -> list[int]:
    """The conversation of each entry."""
    return [(entry.metadata or {})[CALL_KEY]["conversation"] for entry in entries]


def test_a_long_conversation_has_each_message_once() -> None:
    talk, turns = Talk(), [SYSTEM, user("Go.")]
    for number in range(50):
        talk.ask(turns, said(f"Step {number}.", call("bash", number)))
        turns.append(result(number, f"result {number}"))
    assert shape(talk.entries[:2]) == [("system", SYSTEM.text), ("user", "Go.")]
    expected = []
    for number in range(50):
        expected += [("assistant", f"Step {number}."), ("tool_call", f"do {number}")]
        # The last result is in no request.
        expected += [("tool_result", f"result {number}")] if number < 49 else []
    assert shape(talk.entries[2:]) == expected
    assert {entry.call_type for entry in talk.entries} == {"main"}
    steps = [entry.step for entry in talk.entries if entry.role == "tool_result"]
    assert steps == list(range(1, 50))


def test_results_of_parallel_calls_belong_to_their_calls() -> None:
    talk, turns = Talk(), [user("Go.")]
    talk.ask(turns, said("", call("bash", 1), call("read", 2), call("bash", 3)))
    turns += [result(3, "three"), result(1, "one"), result(2, "two")]
    entries = talk.ask(turns, said("Done."))
    found = [
        (entry.tool_name, entry.stdout, (entry.metadata or {})["atif"]["source_call_id"])
        for entry in entries
        if entry.role == "tool_result"
    ]
    assert found == [("bash", "three", "c3"), ("bash", "one", "c1"), ("read", "two", "c2")]


def test_calls_without_ids_get_some() -> None:
    talk, turns = Talk(), [user("Go.")]
    bare = ToolCall(name="bash", arguments={})
    talk.ask(turns, said("", bare, bare))
    pair = tuple(ToolResult(text=text, name="bash", call_id=f"call_{text}") for text in "12")
    turns.append(Turn(line=1, role="user", results=pair))
    talk.ask(turns, said("Done."))
    ids = [
        (entry.metadata or {})["atif"].get("tool_call_id")
        or (entry.metadata or {})["atif"].get("source_call_id")
        for entry in talk.entries
        if entry.role.startswith("tool")
    ]
    assert ids == ["call_1_1", "call_1_2", "call_1_1", "call_1_2"]


def test_subagents_are_told_apart_and_return_to_the_main_conversation() -> None:
    talk, main = Talk(), [SYSTEM, user("Build it.")]
    talk.ask(main, said("I delegate.", call("task", 1)))
    other = [Turn(line=1, role="system", text="You search."), user("Search.")]
    first = talk.ask(other, said("Looking.", call("grep", 2)), tools=())
    other.append(result(2, "found"))
    second = talk.ask(other, said("Found."), tools=())
    main.append(result(1, "Found."))
    last = talk.ask(main, said("Built."))
    assert {entry.call_type for entry in (*first, *second)} == {"subagent"}
    assert set(numbers(first + second)) == {2}
    assert shape(second) == [("tool_result", "found"), ("assistant", "Found.")]
    assert shape(last) == [("tool_result", "Found."), ("assistant", "Built.")]
    assert set(numbers(last)) == {1}
    assert last[0].step == 1


def test_a_second_conversation_with_the_same_prompt_names_it() -> None:
    talk = Talk()
    talk.ask([SYSTEM, user("One.")], said("1"), tools=())
    entries = talk.ask([SYSTEM, user("Two.")], said("2"), tools=())
    assert entries[0].content == "[the system prompt of conversation 1]"
    assert entries[0].call_type == "subagent"


def test_a_compaction_continues_in_a_new_conversation() -> None:
    talk, turns = Talk(), [SYSTEM, user("Go.")]
    for number in range(5):
        talk.ask(turns, said(f"Step {number}.", call("bash", number)))
        turns.append(result(number))
    shorter = [SYSTEM, user("Go."), user("Summary of what was done."), turns[-2], turns[-1]]
    entries = talk.ask(shorter, said("Going on."))
    assert shape(entries) == [
        ("user", "Summary of what was done."),
        ("tool_result", "done"),
        ("assistant", "Going on."),
    ]
    assert set(numbers(entries)) == {2}
    assert {entry.call_type for entry in entries} == {"main"}
    assert (entries[0].metadata or {})[CALL_KEY]["continues"] == 1
    shorter.append(user("More."))
    assert shape(talk.ask(shorter, said("Yes."))) == [("user", "More."), ("assistant", "Yes.")]


def test_edits_of_old_results_begin_no_conversation() -> None:
    talk, turns = Talk(), [SYSTEM, user("Go.")]
    talk.ask(turns, said("A.", call("bash", 1)))
    turns.append(result(1, "a long output"))
    talk.ask(turns, said("B."))
    turns[3] = result(1, "[cleared]")
    turns.append(user("And?"))
    entries = talk.ask(turns, said("C."))
    assert shape(entries) == [("user", "And?"), ("assistant", "C.")]
    assert set(numbers(entries)) == {1}


def test_an_answer_that_is_asked_for_again_repeats_nothing() -> None:
    talk, turns = Talk(), [SYSTEM, user("Go.")]
    talk.ask(list(turns), said("Bad."))
    assert shape(talk.ask(turns, said("Good."))) == [("assistant", "Good.")]
    turns.append(user("More."))
    assert shape(talk.ask(turns, said("Yes."))) == [("user", "More."), ("assistant", "Yes.")]
    assert set(numbers(talk.entries)) == {1}


def test_an_answer_that_the_agent_repeats_in_other_words_is_marked() -> None:
    talk, turns = Talk(), [SYSTEM, user("Go.")]
    talk.ask(turns, said("<think>hm</think>Yes.", call("bash", 1)))
    turns[-1] = said("Yes.", call("bash", 1))
    turns.append(result(1))
    entries = talk.ask(turns, said("Done."))
    assert shape(entries) == [("tool_result", "done"), ("assistant", "Done.")]
    assert (entries[-1].metadata or {})[CALL_KEY]["is_altered"] is True


def test_what_no_model_said_in_the_trial_is_marked() -> None:
    talk = Talk()
    entries = talk.ask([user("2+2?"), said("4"), user("3+3?")], said("6"))
    assert shape(entries)[1] == ("assistant", "4")
    assert (entries[1].metadata or {})[CALL_KEY]["is_repeated"] is True
    assert "is_repeated" not in (entries[-1].metadata or {})[CALL_KEY]


def test_of_a_system_prompt_that_changes_only_new_lines_are_entries() -> None:
    talk, turns = Talk(), [SYSTEM, user("Go.")]
    talk.ask(turns, said("1"))
    turns[0] = Turn(line=1, role="system", text=f"{SYSTEM.text}\nIt is noon.")
    turns.append(user("More."))
    entries = talk.ask(turns, said("2"))
    new = "[lines that are new in the system prompt]\nIt is noon."
    assert shape(entries) == [("system", new), ("user", "More."), ("assistant", "2")]


def test_a_failed_exchange_says_so_and_its_retry_repeats_nothing() -> None:
    talk, turns = Talk(), [user("Go.")]
    failed = talk.ask(turns, None, usage=None, error="Overloaded.")
    assert shape(failed)[-1] == ("system", "The request to the model failed: Overloaded.")
    cut = talk.ask(turns, None, usage=None, is_complete=False)
    assert "ended before it said anything" in (cut[-1].content or "")
    assert shape(talk.ask(turns, said("Yes."))) == [("assistant", "Yes.")]


def test_a_conversation_that_the_provider_keeps_is_followed_by_its_ids() -> None:
    talk = Talk()
    talk.ask([SYSTEM, user("Go.")], said("A.", call("bash", 1)), response_id="r1")
    entries = talk.ask([SYSTEM, result(1)], said("B."), previous_id="r1", response_id="r2")
    assert shape(entries) == [("tool_result", "done"), ("assistant", "B.")]
    assert set(numbers(entries)) == {1}


def test_a_request_that_was_not_understood_has_an_answer() -> None:
    talk = Talk()
    assert shape(talk.ask([], said("A."))) == [("assistant", "A.")]
    talk.ask([user("Go.")], said("B."))
    assert shape(talk.ask([], said("C."))) == [("assistant", "C.")]


def test_tokens_models_and_thinking_are_counted_from_the_trace(tmp_path: Path) -> None:
    builder, path = TraceBuilder(), tmp_path / "model-trace.jsonl"
    turn = Turn(line=1, role="assistant", text="Yes.", thinking="Hm.")
    usage = Usage(input=100, output=20, cache_read=60, cache_write=10)
    answer = ModelAnswer(
        turn=turn, model="gpt-x-1", usage=usage, reasoning_tokens=5, finish_reason="stop"
    )
    cost = CostBasis(kind="estimated", amount_usd=0.5)
    entries: list[Entry] = []
    for number in (1, 2):
        request = ModelRequest(turns=(user(f"Question {number}."),))
        facts = ExchangeFacts(number=number, cost=cost, n_tries=2)
        entries += builder.add(request, answer, START, 0.25, facts)
    path.write_bytes(b"\n".join(msgspec.json.encode(entry) for entry in entries) + b"\n")
    trace = load_trace_file(str(path), TraceKind.TRAJECTORY)
    assert trace.diagnostics == []
    assert trace.entries == entries
    counted = count_trace(trace)
    assert counted.models == ("gpt-x-1",)
    assert counted.usage == Usage(input=200, output=40, cache_read=120, cache_write=20)
    summary = summarise(trace.entries)
    assert summary.times.model_seconds == 0.5
    assert entries[1].timestamp == "2026-01-02T03:04:05.250+00:00"
    carried = (entries[1].metadata or {})["atif"]
    assert carried["reasoning_content"] == "Hm."
    assert carried["metrics"]["cost_usd"] == 0.5


def test_a_trace_converts_to_atif_and_back() -> None:
    talk, turns = Talk(), [SYSTEM, user("Go.")]
    talk.ask(turns, said("A.", call("bash", 1)))
    turns.append(
        Turn(line=1, role="tool", results=(ToolResult(text="x", call_id="c1", is_error=True),))
    )
    talk.ask(turns, said("B."))
    atif, losses = from_entries(talk.entries)
    assert losses == []
    assert to_entries(atif)[0] == talk.entries
    assert summarise(talk.entries).errors.total == 1


def test_real_bodies_of_all_protocols_make_the_same_trace() -> None:
    streams = {
        Wire.OPENAI_CHAT: ("/v1/chat/completions", bodies.CHAT_REQUEST, bodies.CHAT_STREAM),
        Wire.OPENAI_RESPONSES: ("/v1/responses", bodies.RESPONSES_REQUEST, bodies.RESPONSES_STREAM),
        Wire.ANTHROPIC: ("/v1/messages", bodies.ANTHROPIC_REQUEST, bodies.ANTHROPIC_STREAM),
        Wire.GEMINI: (bodies.GEMINI_PATH, bodies.GEMINI_REQUEST, bodies.GEMINI_STREAM),
    }
    shapes = []
    for wire, (path, body, stream) in streams.items():
        request = read_request(wire, path, bodies.encode(body))
        answer = read_answer(wire, stream, is_stream=True)
        facts = ExchangeFacts(number=1)
        shapes.append(shape(TraceBuilder().add(request, answer, START, 1.0, facts)))
    assert [role for role, _ in shapes[0]] == [
        *("system", "user", "assistant", "tool_call", "tool_result"),
        *("assistant", "tool_call", "tool_call"),
    ]
    assert all(other == shapes[0] for other in shapes[1:])
