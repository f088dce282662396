"""The command agent: a shell command inside the environment, and what it is told and leaves."""

import asyncio
import json
import logging
import re
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from proctor.agents.command import CommandAgent
from proctor.errors import AgentError, NonZeroAgentExitCodeError
from proctor.harbor.configs import AgentConfig
from proctor.task.environment import McpServer
from proctor.trial.agent import AgentContext
from proctor.trial.finding import FindingCode
from tests.agents.places import Place, make_place, order_for

INSTRUCTION = 'Say "hello" to $USER; don\'t `run` this.\nÜber zwei Zeilen.'


def command(
    place: Place, text: Any = "true", model: str | None = None, *, wishes: Any = None, **kwargs: Any
) -> CommandAgent:
    config = AgentConfig(name="command", model_name=model, kwargs={"command": text, **kwargs})
    return CommandAgent(order_for(place, config, **(wishes or {})))


def run(agent: CommandAgent, place: Place) -> AgentContext:
    context = AgentContext()
    asyncio.run(agent.run(INSTRUCTION, place, context))
    return context


def output(place: Place) -> str:
    return place.inside("/logs/agent/command.txt").read_text()


@pytest.mark.parametrize("mounted", [True, False])
def test_the_instruction_is_on_stdin_and_in_a_file(tmp_path: Path, mounted: bool) -> None:
    place = make_place(tmp_path, mounted=mounted)
    run(command(place, 'cat; printf -- --; cat "$PROCTOR_INSTRUCTION_FILE"'), place)
    assert output(place) == f"{INSTRUCTION}--{INSTRUCTION}"


def test_model_servers_skills_and_variables_are_in_the_environment(tmp_path: Path) -> None:
    place = make_place(tmp_path)
    servers = (
        McpServer(name="files", transport="stdio", command="serve", args=("--all",)),
        McpServer(name="web", transport="streamable-http", url="http://web/mcp"),
        McpServer(name="old", url="http://old/sse"),
    )
    wishes = {"mcp_servers": servers, "skills_dir": "/skills", "extra_env": {"MINE": "yes"}}
    text = 'echo "$PROCTOR_MODEL $PROCTOR_SKILLS_DIR $MINE"; cat "$PROCTOR_MCP_SERVERS"'
    run(command(place, text, "anthropic/claude", wishes=wishes), place)
    first, _, rest = output(place).partition("\n")
    assert first == "anthropic/claude /skills yes"
    assert json.loads(rest) == {
        "mcpServers": {
            "files": {"type": "stdio", "command": "serve", "args": ["--all"]},
            "web": {"type": "http", "url": "http://web/mcp"},
            "old": {"type": "sse", "url": "http://old/sse"},
        }
    }


def test_what_is_not_there_is_not_in_the_environment(tmp_path: Path) -> None:
    place = make_place(tmp_path)
    run(command(place, "env | grep -o '^PROCTOR_[A-Z_]*'"), place)
    assert output(place) == "PROCTOR_INSTRUCTION_FILE\n"


def test_variables_of_the_job_win(tmp_path: Path) -> None:
    place = make_place(tmp_path)
    wishes = {"extra_env": {"PROCTOR_MODEL": "theirs"}}
    run(command(place, 'echo "$PROCTOR_MODEL"', "ours", wishes=wishes), place)
    assert output(place) == "theirs\n"


def test_a_failing_command_raises_with_the_end_of_its_output(tmp_path: Path) -> None:
    place = make_place(tmp_path)
    with pytest.raises(NonZeroAgentExitCodeError) as caught:
        run(command(place, "yes 0123456789 | head -n 1000; echo the end; exit 3"), place)
    first, _, rest = str(caught.value).partition("\n")
    assert first == "Command failed (exit 3): yes 0123456789 | head -n 1000; echo the end; exit 3"
    assert rest.endswith("0123456789\nthe end")
    assert len(rest) == 4000


def test_the_first_command_of_a_pipe_may_fail_it(tmp_path: Path) -> None:
    place = make_place(tmp_path)
    with pytest.raises(NonZeroAgentExitCodeError, match=r"exit 5.*\n\(no output\)$"):
        run(command(place, "(exit 5) | cat"), place)


def test_bad_syntax_is_the_commands_own_failure(tmp_path: Path) -> None:
    place = make_place(tmp_path)
    with pytest.raises(NonZeroAgentExitCodeError, match="syntax error"):
        run(command(place, "if ) then"), place)


def test_a_secret_in_the_output_is_not_in_the_error(tmp_path: Path) -> None:
    place = make_place(tmp_path)
    wishes = {"extra_env": {"API_KEY": "s3cr3t-value"}}
    with pytest.raises(NonZeroAgentExitCodeError) as caught:
        run(command(place, "echo bad key $API_KEY; false", wishes=wishes), place)
    assert str(caught.value).endswith("\nbad key [redacted:API_KEY]")


async def test_what_it_printed_is_there_when_it_is_killed(tmp_path: Path) -> None:
    place = make_place(tmp_path)
    agent = command(place, "echo begun; sleep 600")
    running = asyncio.create_task(agent.run(INSTRUCTION, place, AgentContext()))
    log = place.inside("/logs/agent/command.txt")
    while not log.exists() or not log.read_text():
        await asyncio.sleep(0.01)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert output(place) == "begun\n"


def test_its_tree_lies_inside_and_caches_stay_behind(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    (tree / "__pycache__").mkdir(parents=True)
    (tree / "__pycache__" / "x.pyc").write_text("x")
    (tree / "agent.sh").write_text('#!/bin/bash\n[ "$1" = --version ] && printf "1.2\\nmore"\n')
    (tree / "agent.sh").chmod(0o755)
    place = make_place(tmp_path)
    agent = command(place, version_command="/installed-agent/agent.sh --version", tree=str(tree))
    assert agent.version() is None
    asyncio.run(agent.setup(place))
    assert agent.version() == "1.2"
    assert [path.name for path in place.inside("/installed-agent").iterdir()] == ["agent.sh"]
    assert ("exec", "chmod -R a+rX /installed-agent", None, {}, None, "root") in place.calls


def test_a_version_command_that_fails_ends_the_setup(tmp_path: Path) -> None:
    place = make_place(tmp_path)
    with pytest.raises(NonZeroAgentExitCodeError, match=r"version_command failed \(exit 127\)"):
        asyncio.run(command(place, version_command="no-such-program").setup(place))
    with pytest.raises(AgentError, match="it printed nothing"):
        asyncio.run(command(place, version_command=True).setup(place))


def test_usage_that_it_leaves_is_taken_over(tmp_path: Path) -> None:
    place = make_place(tmp_path)
    agent = command(place)
    text = '{"n_input_tokens": 12, "n_output_tokens": 3, "cost_usd": 1}'
    (place.trial_paths.agent_dir / "usage.json").write_text(text)
    context = AgentContext()
    agent.populate_context_post_run(context)
    said = (context.n_input_tokens, context.n_cache_tokens, context.n_output_tokens)
    assert said == (12, None, 3)
    assert context.cost_usd == 1.0


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", '{"n_input_tokens": -1}', '{"n_input_tokens": 1.5}', '{"cost_usd": "1"}',
     '{"cost_usd": NaN}', '{"cost_usd": 1e999}', '{"cost_usd": true}', '{"tokens": 1}'],
)  # fmt: skip
def test_bad_usage_is_a_note_in_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, text: str
) -> None:
    place = make_place(tmp_path)
    (place.trial_paths.agent_dir / "usage.json").write_text(text)
    context = AgentContext()
    with caplog.at_level(logging.WARNING):
        command(place).populate_context_post_run(context)
    assert context.is_empty()
    assert re.search("/logs/agent/usage.json:? ignored: ", caplog.text)


def test_one_bad_key_of_usage_does_not_void_the_others(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Agents write what they have: unknown keys are named in the log, and the rest counts."""
    place = make_place(tmp_path)
    text = (
        '{"n_input_tokens": 12, "n_cache_tokens": "many", "cost_usd": 0.5, "turns": 3,'
        ' "cache_write_tokens": 4}'
    )
    (place.trial_paths.agent_dir / "usage.json").write_text(text)
    context = AgentContext()
    with caplog.at_level(logging.WARNING):
        command(place).populate_context_post_run(context)
    assert (context.n_input_tokens, context.n_cache_tokens, context.cost_usd) == (12, None, 0.5)
    assert context.metadata == {"cache_write_tokens": 4}
    assert "ignored: 'turns' is unknown; expected n_input_tokens, " in caplog.text
    assert "ignored: Expected `int | null`, got `str` - at `$.n_cache_tokens`" in caplog.text


def test_usage_behind_a_link_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "host.json").write_text('{"n_input_tokens": 1}')
    place = make_place(tmp_path)
    (place.trial_paths.agent_dir / "usage.json").symlink_to(tmp_path / "host.json")
    context = AgentContext()
    command(place).populate_context_post_run(context)
    assert context.is_empty()


LONG = "printf begin; head -c 20000000 /dev/zero; printf end"
"""Prints 20,000,008 bytes; 16 MiB of them are kept."""


@pytest.mark.parametrize("ending", ["", "; exit 3", "; sleep 600"])
async def test_of_a_very_long_output_both_ends_are_kept_also_when_it_fails_or_is_killed(
    tmp_path: Path, ending: str
) -> None:
    place = make_place(tmp_path)
    agent = command(place, LONG + ending)
    running = asyncio.ensure_future(agent.run(INSTRUCTION, place, AgentContext()))
    file = place.inside("/logs/agent/command.txt")
    while not running.done() and not (file.exists() and file.stat().st_size == 20_000_008):
        await asyncio.sleep(0.01)
    if "sleep" in ending:
        running.cancel()
    with suppress(asyncio.CancelledError, NonZeroAgentExitCodeError):
        await running
    kept = output(place)
    n_cut = 20_000_008 - (16 << 20)
    assert len(kept) == (16 << 20) + len(f"\n[{n_cut} bytes cut here]\n")
    assert kept[(8 << 20) - 1 :].lstrip("\0").startswith(f"\n[{n_cut} bytes cut here]\n\0")
    assert (kept[:5], kept[-3:]) == ("begin", "end")
    (finding,) = agent.take_findings()
    assert (finding.code, finding.detail["bytes_cut"]) == (FindingCode.OUTPUT_CUT, n_cut)
    assert agent.take_findings() == []
    assert [path.name for path in place.inside("/logs/agent").glob("command*")] == ["command.txt"]


def test_an_output_that_is_not_long_stays_as_it_is(tmp_path: Path) -> None:
    place = make_place(tmp_path)
    agent = command(place, f"head -c {16 << 20} /dev/zero")
    run(agent, place)
    assert (len(output(place)), agent.take_findings()) == (16 << 20, [])


def test_two_commands_can_have_two_names(tmp_path: Path) -> None:
    place = make_place(tmp_path)
    assert command(place).name() == "command"
    assert command(place, name="claude-2.0").name() == "claude-2.0"


@pytest.mark.parametrize(
    ("kwargs", "fault"),
    [
        ({}, "command is missing"),
        ({"command": " "}, "command is ' ': "),
        ({"command": 5}, "command is 5: "),
        ({"command": "x", "cmd": "y"}, "cmd is unknown"),
        ({"command": "x", "name": "../x"}, "name is '../x': "),
    ],
)
def test_bad_kwargs_get_a_sentence(tmp_path: Path, kwargs: dict[str, Any], fault: str) -> None:
    config = AgentConfig(name="command", kwargs=kwargs)
    with pytest.raises(AgentError) as caught:
        CommandAgent(order_for(make_place(tmp_path), config))
    assert str(caught.value).startswith(f"agent 'command': {fault}")
    assert str(caught.value).endswith(
        "its kwargs are command (required), version_command, tree, name, given as --ak NAME=VALUE"
    )
