"""The scripted agent: a script's lines one by one, each a step of a trajectory written live."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from proctor.agents.kinds import ScriptedAgent
from proctor.errors import AgentError
from proctor.harbor.configs import AgentConfig
from proctor.traces.entry import Entry
from proctor.traces.trajectory import load_trajectory
from proctor.trial.agent import AgentContext
from tests.agents.places import Place, make_place, order_for


def scripted(place: Place, text: str, **wishes: Any) -> ScriptedAgent:
    script = place.root / "script.sh"
    script.write_text(text)
    config = AgentConfig(name="scripted", kwargs={"script": str(script)})
    return ScriptedAgent(order_for(place, config, **wishes))


def run(agent: ScriptedAgent, place: Place) -> None:
    asyncio.run(agent.run("Do it.", place, AgentContext()))


def steps_of(place: Place) -> list[Entry]:
    return load_trajectory(str(place.trial_paths.agent_dir / "trajectory.jsonl")).entries


def test_each_line_is_a_step_with_output_and_exit_code(tmp_path: Path) -> None:
    place = make_place(tmp_path)
    run(scripted(place, "# a comment\n\n  echo hello\n(exit 4)\necho last > done\n"), place)
    said, *entries = steps_of(place)
    assert (said.role, said.step, said.content) == ("user", 0, "Do it.")
    calls = [(entry.step, entry.command) for entry in entries if entry.role == "tool_call"]
    assert calls == [(1, "echo hello"), (2, "(exit 4)"), (3, "echo last > done")]
    results = [
        (entry.step, entry.stdout, entry.exit_code)
        for entry in entries
        if entry.role == "tool_result"
    ]
    assert results == [(1, "hello\n", 0), (2, "", 4), (3, "", 0)]
    assert (place.root / "work" / "done").read_text() == "last\n"


async def test_a_killed_run_leaves_the_steps_up_to_its_last_command(tmp_path: Path) -> None:
    place = make_place(tmp_path)
    agent = scripted(place, "echo one\ntouch began; sleep 600\necho never\n")
    running = asyncio.create_task(agent.run("Do it.", place, AgentContext()))
    while not (place.root / "work" / "began").exists():
        await asyncio.sleep(0.01)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert [(entry.step, entry.role) for entry in steps_of(place)] == [
        (0, "user"),
        (1, "tool_call"),
        (1, "tool_result"),
        (2, "tool_call"),
    ]


def test_variables_are_passed_and_secrets_are_not_written(tmp_path: Path) -> None:
    place = make_place(tmp_path)
    env = {"API_KEY": "s3cr3t-value", "WORD": "plain-value", "A_TOKEN": "x"}
    run(scripted(place, "echo $API_KEY $WORD\n", extra_env=env), place)
    assert steps_of(place)[-1].stdout == "[redacted:API_KEY] plain-value\n"


def test_a_link_in_place_of_the_trajectory_is_not_followed(tmp_path: Path) -> None:
    place = make_place(tmp_path, mounted=True)
    (place.trial_paths.agent_dir / "trajectory.jsonl").symlink_to(tmp_path / "elsewhere")
    run(scripted(place, "true\n"), place)
    assert not (tmp_path / "elsewhere").exists()
    assert len(steps_of(place)) == 3


@pytest.mark.parametrize(
    ("script", "sentence"),
    [
        (b"# nothing\n\n", "contains no command; expected one shell command per line"),
        (b"echo \xff\n", "not UTF-8: invalid start byte at offset 5"),
        (None, "cannot be read: No such file or directory"),
    ],
)
def test_a_script_that_cannot_be_run_gets_a_sentence(
    tmp_path: Path, script: bytes | None, sentence: str
) -> None:
    path = tmp_path / "script"
    if script is not None:
        path.write_bytes(script)
    config = AgentConfig(name="scripted", kwargs={"script": str(path)})
    with pytest.raises(AgentError) as caught:
        ScriptedAgent(order_for(make_place(tmp_path), config))
    assert str(caught.value) == f"{path}: {sentence}"
