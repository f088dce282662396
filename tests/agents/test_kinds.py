"""Which agent is made from what a job asks for."""

import asyncio
from pathlib import Path

import pytest

from proctor.agents.chat.agent import ChatAgent
from proctor.agents.command import CommandAgent
from proctor.agents.kinds import (
    NopAgent,
    OracleAgent,
    ScriptedAgent,
    agent_names,
    check_agent,
    make_agent,
)
from proctor.agents.replay import ReplayAgent
from proctor.errors import AgentError, PluginError, UnsupportedError
from proctor.harbor.agents import AGENTS
from proctor.harbor.configs import AgentConfig
from proctor.trial.agent import AgentContext
from tests.agents.places import make_place, order_for


def test_the_built_in_agents_go_by_name(tmp_path: Path) -> None:
    (tmp_path / "script").write_text("true\n")
    trace = tmp_path / "trajectory.jsonl"
    trace.write_text('{"role":"tool_call","step":1,"tool_name":"bash","command":"true"}\n')
    kwargs = {
        "command": {"command": "x"},
        "scripted": {"script": str(tmp_path / "script")},
        "chat": {"base_url": "http://127.0.0.1:1"},
        "replay": {"trajectory": str(trace)},
    }
    place = make_place(tmp_path)
    configs = [
        AgentConfig(name=name, kwargs=kwargs.get(name, {}), model_name="m")
        for name in agent_names()
    ]
    made = [type(make_agent(order_for(place, config))) for config in configs]
    assert made == [OracleAgent, NopAgent, CommandAgent, ScriptedAgent, ChatAgent, ReplayAgent]


def test_nothing_named_is_the_oracle(tmp_path: Path) -> None:
    assert isinstance(make_agent(order_for(make_place(tmp_path), AgentConfig())), OracleAgent)


def test_nop_does_nothing(tmp_path: Path) -> None:
    place = make_place(tmp_path)
    agent = make_agent(order_for(place, AgentConfig(name="nop")))
    context = AgentContext()
    asyncio.run(agent.setup(place))
    asyncio.run(agent.run("Do it.", place, context))
    assert (agent.name(), agent.version()) == ("nop", "1.0.0")
    assert place.calls == []
    assert context.is_empty()


def test_another_name_is_refused_and_the_way_shown(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError) as caught:
        make_agent(order_for(make_place(tmp_path), AgentConfig(name="mine")))
    assert str(caught.value) == (
        "there is no agent 'mine'; expected one of oracle, nop, command, scripted, chat, replay, "
        f"one of harbor's ({', '.join(AGENTS)}), or a class with --agent-import-path, such as "
        "my_package.my_module:MyAgent"
    )
    with pytest.raises(UnsupportedError):
        check_agent(AgentConfig(name="mine"))


def test_a_check_finds_bad_kwargs_before_any_trial() -> None:
    check_agent(AgentConfig(name="oracle"))
    check_agent(AgentConfig(import_path="not.looked:At"))
    with pytest.raises(AgentError, match="script is missing"):
        check_agent(AgentConfig(name="scripted"))


@pytest.mark.parametrize(
    ("import_path", "sentence"),
    [
        ("nowhere", "'nowhere' names no agent"),
        ("pathlib:Path", "pathlib:Path: has no name, version, setup, run; expected an agent"),
    ],
)
def test_an_import_path_to_no_agent_is_refused(
    tmp_path: Path, import_path: str, sentence: str
) -> None:
    with pytest.raises(PluginError) as caught:
        make_agent(order_for(make_place(tmp_path), AgentConfig(import_path=import_path)))
    assert str(caught.value).startswith(sentence)


def test_a_kwarg_that_every_agent_is_given_is_refused(tmp_path: Path) -> None:
    config = AgentConfig(
        import_path="proctor.agents.kinds:NopAgent", kwargs={"logs_dir": "x", "y": 1}
    )
    with pytest.raises(AgentError, match="kwarg logs_dir is given to every agent by proctor"):
        make_agent(order_for(make_place(tmp_path), config))
