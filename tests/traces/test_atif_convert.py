"""ATIF to entries and back: what comes back is what went in, or the list of losses says so."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings

from proctor.errors import TraceError
from proctor.traces.atif.convert import from_entries, to_entries
from proctor.traces.atif.model import UNKNOWN_AGENT, VERSIONS, Agent, Atif
from proctor.traces.atif.read import parse_atif
from proctor.traces.atif.rules import find_problems
from proctor.traces.entry import Entry
from proctor.traces.loss import Loss, list_losses
from tests.examples import examples
from tests.traces.atif_mutations import DATA, every_field, mutations_of
from tests.traces.atif_values import documents, entry_lists


def atif_of(*steps: dict[str, Any], **fields: Any) -> Atif:
    """A small document; its steps are numbered here."""
    numbered = [{"step_id": number, **step} for number, step in enumerate(steps, 1)]
    document = {"agent": {"name": "a", "version": "1"}, "steps": numbered, **fields}
    return parse_atif(json.dumps(document).encode()).atif


def agent_step(*calls: tuple[str, dict[str, Any]], results: list[Any]) -> dict[str, Any]:
    """An agent step that calls tools by these ids."""
    tool_calls = [
        {"tool_call_id": name, "function_name": f"tool-{name}", "arguments": arguments}
        for name, arguments in calls
    ]
    observation = {"results": results}
    return {
        "source": "agent",
        "message": "m",
        "tool_calls": tool_calls,
        "observation": observation,
    }


@settings(max_examples=examples(60))
@given(documents())
def test_a_document_comes_back_equal_from_its_entries(atif: Atif) -> None:
    entries, losses = to_entries(atif)
    assert losses == []
    assert from_entries(entries) == (atif, [])


@settings(max_examples=examples(25))
@given(documents())
def test_a_document_comes_back_equal_from_a_written_trajectory(atif: Atif) -> None:
    lines = [msgspec.json.encode(entry) for entry in to_entries(atif)[0]]
    entries = [msgspec.json.decode(line, type=Entry) for line in lines]
    assert from_entries(entries)[0] == atif


@settings(max_examples=examples(120))
@given(entry_lists())
def test_entries_of_any_harness_come_back_or_are_listed(entries: list[Entry]) -> None:
    atif, losses = from_entries(entries)
    assert list(find_problems(atif)) == []
    back, _ = to_entries(atif)
    lost = {loss.path.partition(".")[0] for loss in losses}
    assert {f"entries[{i}]" for i, e in enumerate(entries) if e != back[i]} <= lost
    # Only what the first entry says of the document can clash with what the document says.
    assert all(path == "entries[0]" for path in lost)


@settings(max_examples=examples(100))
@given(entry_lists())
def test_a_document_made_from_entries_survives_the_way_back(entries: list[Entry]) -> None:
    atif, _ = from_entries(entries)
    assert from_entries(to_entries(atif)[0])[0] == atif


@settings(max_examples=examples(30))
@given(documents("ATIF-v1.8"))
def test_of_audio_all_is_kept_but_the_parts_themselves(atif: Atif) -> None:
    entries, losses = to_entries(atif)
    back, _ = from_entries(entries)
    assert list(find_problems(back)) == []
    text = json.dumps(msgspec.to_builtins(atif))
    named = [loss for loss in losses if loss.why == "ATIF-v1.7 has no audio"]
    assert len(named) == text.count('"type": "audio"')
    # With a false rest of an entry in `extra` there are other losses, and they are listed.
    assert "trajectory_entry" in text or all(
        "schema_version" in x.path for x in losses if x not in named
    )


def test_every_changed_document_converts_and_what_comes_back_is_valid() -> None:
    changes = list(mutations_of(every_field()))[::11]
    for document in changes:
        read = parse_atif(json.dumps(document).encode(), salvage=True)
        entries, losses = to_entries(read.atif)
        if not entries:
            assert read.atif.steps == ()
            continue
        back, _ = from_entries(entries)
        assert list(find_problems(back)) == []
        assert back == read.atif or losses


def test_a_document_reads_as_entries_in_the_order_of_the_run() -> None:
    atif = parse_atif((DATA / "every-field.json").read_bytes()).atif
    entries, losses = to_entries(atif)
    assert losses == []
    told = [(e.role, e.step, e.content or e.command or e.stdout) for e in entries]
    assert entries[6].command == ""
    assert told == [
        ("system", 0, "Be brief."),
        ("user", 0, "What is this?"),
        ("tool_result", 0, "a file was attached"),
        ("assistant", 1, "Looking."),
        ("tool_call", 1, "ls -la"),
        ("tool_result", 1, "total 0"),
        ("tool_call", 1, None),
        ("tool_result", 1, "a cat"),
        ("tool_result", 1, None),
        ("user", 1, "Go on."),
        ("assistant", 2, None),
    ]
    assert entries[1].media == ["https://example.org/a.png"]
    assert entries[4].arguments == {"command": "ls -la"}
    assert [e.tool_name for e in entries[4:9]] == ["bash", "bash", "delegate", "delegate", None]


def test_an_exit_code_is_never_made_up() -> None:
    atif = atif_of(agent_step(("a", {}), results=[{"source_call_id": "a", "content": "ok"}]))
    (result,) = [e for e in to_entries(atif)[0] if e.role == "tool_result"]
    assert (result.stdout, result.stderr, result.exit_code) == ("ok", None, None)


@pytest.mark.parametrize(
    ("arguments", "command"),
    [
        ({"command": "ls", "cmd": "no"}, "ls"),
        ({"cmd": "ls"}, "ls"),
        ({"keystrokes": "ls\n"}, "ls\n"),
        ({"command": ["ls"]}, ""),
        ({"path": "/x"}, ""),
        ({}, ""),
    ],
)
def test_a_call_has_the_command_its_arguments_name(arguments: Any, command: str) -> None:
    entries, _ = to_entries(atif_of(agent_step(("a", arguments), results=[])))
    assert (entries[1].command, entries[1].arguments) == (command, arguments)


def test_results_follow_the_call_they_name_and_keep_their_own_order() -> None:
    results = [{"source_call_id": "b", "content": "1"}, {"source_call_id": "a", "content": "2"}]
    atif = atif_of(agent_step(("a", {}), ("b", {}), results=[*results, {"content": "3"}]))
    entries, losses = to_entries(atif)
    assert [e.stdout for e in entries if e.role == "tool_result"] == ["2", "1", "3"]
    assert (from_entries(entries)[0], losses) == (atif, [])


def test_calls_that_share_an_id_take_their_results_in_turn() -> None:
    results = [{"source_call_id": "a", "content": str(n)} for n in range(3)]
    atif = atif_of(agent_step(("a", {"n": 1}), ("a", {"n": 2}), results=results))
    entries, _ = to_entries(atif)
    told = [e.stdout or e.arguments for e in entries[1:]]
    assert told == [{"n": 1}, "0", {"n": 2}, "1", "2"]
    assert from_entries(entries)[0] == atif


@pytest.mark.parametrize("version", VERSIONS)
def test_a_document_of_another_version_comes_back_as_v1_7(version: str) -> None:
    atif = atif_of({"source": "user", "message": "x"}, schema_version=version)
    entries, losses = to_entries(atif)
    assert from_entries(entries)[0] == msgspec.structs.replace(atif, schema_version="ATIF-v1.7")
    expected = Loss("schema_version", f'"{version}"', "documents are written as ATIF-v1.7")
    assert losses == ([] if version == "ATIF-v1.7" else [expected])


def test_an_audio_part_is_listed_with_its_file() -> None:
    sound = {"type": "audio", "source": {"media_type": "audio/mp3", "path": "a.mp3"}}
    parts = [{"type": "text", "text": "hear"}, sound]
    atif = atif_of({"source": "user", "message": parts}, schema_version="ATIF-v1.8")
    entries, losses = to_entries(atif)
    assert (entries[0].content, entries[0].media) == ("hear", ["a.mp3"])
    assert str(losses[1]) == 'steps[0].message[1] ("a.mp3"): ATIF-v1.7 has no audio'
    back, others = from_entries(entries)
    assert others == []
    assert back.steps[0].extra is not None
    assert back.steps[0].extra["trajectory_entry"]["media"] == ["a.mp3"]


def test_a_salvaged_document_lists_what_the_rules_forbid() -> None:
    step = {"step_id": 4, "source": "user", "message": "x", "model_name": "m"}
    data = {"agent": {"name": "a", "version": "1"}, "steps": [step]}
    read = parse_atif(json.dumps(data).encode(), salvage=True)
    _, losses = to_entries(read.atif)
    assert [str(loss) for loss in losses] == [
        "steps[0].step_id (4): it comes back as 1",
        'steps[0].model_name ("m"): there is no place for it',
    ]


def test_a_document_without_steps_has_no_entries_and_loses_all() -> None:
    read = parse_atif(b'{"agent":{"name":"a","version":"1"},"notes":"n"}', salvage=True)
    entries, losses = to_entries(read.atif)
    assert entries == []
    assert {loss.path for loss in losses} >= {"agent", "notes"}


FOREIGN = [
    Entry(role="system", step=0, content="Be brief.", timestamp="2026-03-01T10:00:00Z"),
    Entry(role="user", step=0, content="Add 2 and 2."),
    Entry(role="assistant", step=1, content="Calling.", call_type="main"),
    Entry(role="tool_call", step=1, tool_name="bash", command="echo 4"),
    Entry(
        role="tool_result",
        step=1,
        tool_name="bash",
        stdout="4\n",
        stderr="",
        exit_code=0,
        duration_ms=12,
        metadata={"tokens": {"call_input": 5}},
    ),
    Entry(role="tool_call", step=2, tool_name="calc", command="", arguments={"a": 2}),
]


def test_a_trajectory_of_another_harness_becomes_steps() -> None:
    atif, losses = from_entries(FOREIGN)
    assert losses == []
    assert atif.agent == UNKNOWN_AGENT
    assert [(s.step_id, s.source, s.message) for s in atif.steps] == [
        (1, "system", "Be brief."),
        (2, "user", "Add 2 and 2."),
        (3, "agent", "Calling."),
        (4, "agent", ""),
    ]
    (call,) = atif.steps[2].tool_calls or ()
    assert (call.tool_call_id, call.arguments) == ("call_3_1", {"command": "echo 4"})
    assert atif.steps[2].observation is not None
    (result,) = atif.steps[2].observation.results
    assert (result.source_call_id, result.content) == ("call_3_1", "4\n")
    assert result.extra == {
        "trajectory_entry": {
            "stderr": "",
            "exit_code": 0,
            "duration_ms": 12,
            "metadata": {"tokens": {"call_input": 5}},
        }
    }
    assert to_entries(atif)[0] == FOREIGN


def test_an_agent_and_session_that_are_given_are_written() -> None:
    agent = Agent(name="mine", version="3")
    atif, losses = from_entries(FOREIGN, agent=agent, session_id="s")
    assert (atif.agent, atif.session_id, losses) == (agent, "s", [])
    other, losses = from_entries(to_entries(atif)[0], agent=Agent(name="yours", version="3"))
    assert other.agent.name == "yours"
    expected = 'entries[0].metadata.atif.document.agent.name ("mine"): it comes back as "yours"'
    assert [str(loss) for loss in losses] == [expected]


def test_an_extra_cannot_make_an_entry_say_what_the_step_does_not() -> None:
    lie = {"trajectory_entry": {"content": "I did it.", "role": "user", "exit_code": 0}}
    atif = atif_of({"source": "agent", "message": "I gave up.", "extra": lie})
    entries, losses = to_entries(atif)
    assert [(e.role, e.content, e.exit_code) for e in entries] == [
        ("assistant", "I gave up.", None)
    ]
    assert (from_entries(entries)[0], losses) == (atif, [])


def test_metadata_cannot_make_a_step_say_what_the_entry_does_not() -> None:
    parts = [{"type": "text", "text": "I did it."}]
    entry = Entry(
        role="assistant", step=1, content="I gave up.", metadata={"atif": {"message": parts}}
    )
    atif, losses = from_entries([entry])
    assert (atif.steps[0].message, losses) == ("I gave up.", [])


def test_no_entries_make_no_document() -> None:
    with pytest.raises(TraceError, match="there are no entries; expected at least one"):
        from_entries([])


def test_a_step_of_very_many_calls_takes_no_longer_than_it_must() -> None:
    calls = 10_000
    many: list[tuple[str, dict[str, Any]]] = [("a", {}) for _ in range(calls)]
    results = [{"source_call_id": "a"} for _ in range(calls)]
    entries, losses = to_entries(atif_of(agent_step(*many, results=results)))
    assert (len(entries), losses) == (2 * calls + 1, [])


BEFORE = {"a": {"b": [1, 2, {"c": "x" * 90}]}, "n": None, "same": [1.5, True]}


@pytest.mark.parametrize(
    ("after", "losses"),
    [
        (BEFORE, []),
        ({"a": {"b": [1, 2, {"c": "x" * 90}]}, "same": [1.5, True], "new": 1}, []),
        ({"a": {"b": [1, 2]}, "same": None}, ["a.b[2]", "same"]),
        ({"a": {"b": [1, 3, {}]}, "same": {"k": 1}}, ["a.b[1]", "a.b[2].c", "same"]),
    ],
)
def test_a_loss_is_found_wherever_it_is(after: Any, losses: list[str]) -> None:
    found = list(list_losses(BEFORE, after))
    assert [loss.path for loss in found] == losses
    assert all(len(loss.value_summary) < 80 for loss in found)


def test_halves_of_characters_and_endless_nesting_are_refused_with_a_sentence() -> None:
    half = Entry(role="user", step=0, content="x", metadata={"atif": {"extra": {"k": "\ud800"}}})
    with pytest.raises(TraceError, match="half of a surrogate pair in a text; expected whole"):
        from_entries([half])
    deep: Any = 1
    for _ in range(200_000):
        deep = [deep]
    entry = Entry(role="user", step=0, metadata={"deep": deep})
    with pytest.raises(TraceError, match="nested too deeply"):
        from_entries([entry])
