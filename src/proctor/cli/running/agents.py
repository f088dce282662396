"""Sets the agents of a JobConfig from flags."""

from typing import Any

import click

from proctor.cli.running.flags import RunFlags
from proctor.cli.running.pairs import parse_arguments, parse_variables
from proctor.errors import InputError
from proctor.harbor.configs import AgentConfig, JobConfig
from proctor.job.mcp_file import load_mcp_servers
from proctor.task.network import parse_hosts

COMMAND = "command"
_WITHOUT_ARGUMENTS = ("oracle", "nop")


def set_agents(config: JobConfig, flags: RunFlags) -> None:
    """Set the agents of a config from flags, or change those that it has."""
    _check_flags(flags)
    given = _parse_given(flags)
    if _names_agent(flags):
        name, import_path = _find_named(flags)
        _check_takes(name, given["kwargs"])
        config.agents = [
            AgentConfig(name=name, import_path=import_path, model_name=model, **given).model_copy(
                deep=True
            )
            for model in flags.models or (None,)
        ]
        return
    for agent in config.agents:
        _check_takes(agent.name, given["kwargs"])
        agent.kwargs.update(given["kwargs"])
        agent.env.update(given["env"])
        agent.mcp_servers.extend(given["mcp_servers"])
        agent.skills.extend(given["skills"])
        agent.extra_allowed_hosts.extend(given["extra_allowed_hosts"])


def check_hosts(option: str, hosts: tuple[str, ...]) -> list[str]:
    """Host names in their canonical form.

    Raises:
        InputError: one is none.
    """
    try:
        return list(parse_hosts(hosts))
    except ValueError as error:
        raise InputError(f"{option} is {error}") from error


def _find_named(flags: RunFlags) -> tuple[str | None, str | None]:
    """The agent's name and the import path of its class; one of them is None."""
    if flags.shell_command is not None:
        return COMMAND, None
    if flags.agent is not None and _is_class(flags.agent):
        return None, flags.agent
    return flags.agent, flags.agent_import_path


def _is_class(agent: str) -> bool:
    """Whether --agent names a class, as harbor 0.25 has it; `acp:` is not a module there."""
    return ":" in agent and not agent.startswith("acp:")


def _check_takes(agent: str | None, kwargs: object) -> None:
    # harbor would accept these and ignore them.
    if kwargs and agent in _WITHOUT_ARGUMENTS:
        raise click.UsageError(f"--ak requires an agent that takes arguments; {agent} takes none")


def _names_agent(flags: RunFlags) -> bool:
    named = (flags.agent, flags.agent_import_path, flags.shell_command)
    return any(each is not None for each in named)


def _check_flags(flags: RunFlags) -> None:
    if flags.agent is not None and flags.agent_import_path is not None:
        raise click.UsageError("--agent cannot be combined with --agent-import-path")
    is_command = flags.shell_command is not None or flags.agent == COMMAND
    if flags.shell_command is not None and (
        flags.agent not in (None, COMMAND) or flags.agent_import_path is not None
    ):
        raise click.UsageError("--command cannot be combined with another agent")
    if flags.shell_command is not None and not flags.shell_command.strip():
        raise click.UsageError("--command is empty; expected a shell command")
    if flags.agent_tree is not None and not is_command:
        raise click.UsageError("--agent-tree requires --command")
    if flags.models and not _names_agent(flags):
        raise click.UsageError(
            "--model requires --agent, --agent-import-path or --command: without one of them "
            "no agent would use the model"
        )
    if not all(model.strip() for model in flags.models):
        raise click.UsageError("--model is empty; expected a name such as provider/model")


def _parse_given(flags: RunFlags) -> dict[str, Any]:
    """The values that flags set for every agent, by field of AgentConfig."""
    kwargs = parse_arguments("--ak", flags.agent_kwargs)
    if flags.shell_command is not None:
        kwargs["command"] = flags.shell_command
    if flags.agent_tree is not None:
        if not flags.agent_tree.is_dir():
            raise InputError(f"{flags.agent_tree}: no such directory; expected the agent's files")
        kwargs["tree"] = str(flags.agent_tree.resolve())
    return {
        "kwargs": kwargs,
        "env": parse_variables("--ae", flags.agent_env),
        "mcp_servers": [s for path in flags.mcp_config for s in load_mcp_servers(path)],
        "skills": list(flags.skills),
        "extra_allowed_hosts": check_hosts("--allow-agent-host", flags.allow_agent_host),
    }
