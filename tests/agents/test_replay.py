"""The replay agent: the commands of a trace once more, each a step of a trajectory written live."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from proctor.agents.kinds import check_agent, find_revision
from proctor.agents.replay import ReplayAgent
from proctor.errors import AgentError
from proctor.harbor.configs import AgentConfig
from proctor.traces.entry import Entry
from proctor.traces.trajectory import load_trajectory
from proctor.trial.agent import AgentContext
from tests.agents.places import Place, make_place, order_for


def line(command: str, tool: str = "bash", **arguments: Any) -> dict[str, Any]:
    told = {"arguments": {"command": command, **arguments}} if arguments else {}
    return {"role": "tool_call", "step": 1, "tool_name": tool, "command": command, **told}


def write_trace(path: Path, *lines: dict[str, Any]) -> Path:
    path.write_text("".join(f"{json.dumps(each)}\n" for each in lines))
    return path


def config_for(trace: Path) -> AgentConfig:
    return AgentConfig(name="replay", kwargs={"trajectory": str(trace)})


def replay(place: Place, trace: Path, **wishes: Any) -> ReplayAgent:
    agent = ReplayAgent(order_for(place, config_for(trace), **wishes))
    asyncio.run(agent.run("Do it.", place, AgentContext()))
    return agent


def steps_of(place: Place) -> list[Entry]:
    return load_trajectory(str(place.trial_paths.agent_dir / "trajectory.jsonl")).entries


def results_of(place: Place) -> list[tuple[str | None, int | None]]:
    return [(each.stdout, each.exit_code) for each in steps_of(place) if each.role == "tool_result"]


def test_commands_are_run_again_in_order(tmp_path: Path) -> None:
    place = make_place(tmp_path)
    replay(
        place, write_trace(tmp_path / "t.jsonl", line("echo one | tee a"), line("cat a; exit 3"))
    )
    assert results_of(place) == [("one\n", 0), ("one\n", 3)]
    assert [each.step for each in steps_of(place)] == [0, 1, 1, 2, 2]


def test_directory_and_limit_are_those_on_record(tmp_path: Path) -> None:
    place = make_place(tmp_path)
    (tmp_path / "there").mkdir()
    trace = write_trace(
        tmp_path / "t.jsonl",
        line("pwd", cwd=str(tmp_path / "there")),
        line("sleep 600", timeout_sec=1),
        line("echo on"),
    )
    replay(place, trace)
    assert results_of(place) == [(f"{tmp_path}/there\n", 0), ("", -1), ("on\n", 0)]


def test_what_is_no_shell_command_is_said_and_passed_over(tmp_path: Path) -> None:
    place = make_place(tmp_path)
    trace = write_trace(tmp_path / "t.jsonl", line("", "edit", path="/a"), line("echo on"))
    agent = replay(place, trace)
    assert results_of(place) == [("on\n", 0)]
    said = "step 1: tool 'edit' is not known to run shell commands"
    assert f"Not replayed: {said}." in [each.content for each in steps_of(place)]
    (finding,) = agent.take_findings()
    assert finding.code == "steps-not-replayed"
    assert finding.message == f"1 call of 2 could not be replayed: {said}"
    assert agent.take_findings() == []


def test_a_conversation_is_a_trace_too(tmp_path: Path) -> None:
    place = make_place(tmp_path)
    call = {"id": "1", "function": {"name": "bash", "arguments": '{"command": "echo said"}'}}
    rows: list[dict[str, Any]] = [
        {"role": "user", "content": "Do."},
        {"role": "assistant", "tool_calls": [call]},
    ]
    replay(place, write_trace(tmp_path / "conversation.jsonl", *rows))
    assert results_of(place) == [("said\n", 0)]


def test_so_is_what_harbors_agents_leave(tmp_path: Path, root: Path) -> None:
    place = make_place(tmp_path)
    job = root / "tests/data/harbor/jobs/04-binary-scripted-k5/pass-simple__35oQqES"
    replay(place, job / "agent" / "trajectory.json")
    assert results_of(place) == [("nope", 0)]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (None, "cannot be read: No such file"),
        (
            '{"role":"user","step":0,"content":"hi"}\n',
            "contains no shell command; the tools called",
        ),
        ('{"role":"tool_call","step":1,"tool_name":"edit"}\n', "called in it: edit"),
        ('{"role":"tool_call","step":1,"tool_name":"bash","comm', "t.jsonl:1"),
        ("hello\n", "t.jsonl"),
    ],
)
def test_a_file_that_cannot_be_replayed_is_refused_before_any_trial(
    tmp_path: Path, text: str | None, reason: str
) -> None:
    trace = tmp_path / "t.jsonl"
    if text is not None:
        trace.write_text(text)
    with pytest.raises(AgentError, match=reason):
        check_agent(config_for(trace))


def test_its_revision_is_the_digest_of_the_trace(tmp_path: Path) -> None:
    first = find_revision(config_for(write_trace(tmp_path / "a.jsonl", line("true"))))
    assert first is not None
    assert first.startswith("sha256:")
    assert find_revision(config_for(write_trace(tmp_path / "b.jsonl", line("false")))) != first
