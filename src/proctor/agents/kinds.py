"""An agent from what a job asks for: a built-in one or harbor's by name, others by import path."""

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from proctor.agents.command import CommandAgent, CommandSettings
from proctor.agents.foreign import make_foreign_agent
from proctor.agents.nop import NopAgent
from proctor.agents.oracle import OracleAgent
from proctor.agents.revision import file_digest, run_version_command, tree_digest
from proctor.agents.scripted import ScriptedAgent, ScriptedSettings
from proctor.agents.settings import parse_settings
from proctor.errors import UnsupportedError
from proctor.harbor.agents import AGENTS, WITHOUT_CLASS, find_import_path
from proctor.harbor.configs import AgentConfig
from proctor.trial.agent import Agent
from proctor.trial.order import AgentOrder, MakeAgent
from proctor.trial.sitting import host_variables

if TYPE_CHECKING:
    from proctor.agents.chat.settings import ChatSettings
    from proctor.agents.replay import ReplaySettings


def _make_chat(order: AgentOrder) -> Agent:
    # Before httpx is loaded, which takes longer than to see that a setting is wrong.
    _check_chat(order.config)
    agent: Agent = import_module("proctor.agents.chat.agent").ChatAgent(order)
    return agent


def _check_chat(config: AgentConfig) -> None:
    import_module("proctor.agents.chat.settings").check_chat(config, host_variables())


def _make_replay(order: AgentOrder) -> Agent:
    agent: Agent = import_module("proctor.agents.replay").ReplayAgent(order)
    return agent


_BUILT_IN: dict[str, MakeAgent] = {
    "oracle": OracleAgent,
    "nop": NopAgent,
    "command": CommandAgent,
    "scripted": ScriptedAgent,
    "chat": _make_chat,
    "replay": _make_replay,
}


def agent_names() -> tuple[str, ...]:
    """The names of the built-in agents."""
    return tuple(_BUILT_IN)


def make_agent(order: AgentOrder) -> Agent:
    """The agent that a trial wants; it touches nothing yet.

    Raises:
        UnsupportedError: there is no agent of this name.
        PluginError: its import path names no agent.
        AgentError: its kwargs cannot be used.
    """
    config = order.config
    if config.name in _BUILT_IN:
        return _BUILT_IN[config.name](order)
    import_path = find_import_path(config)
    if import_path is None:
        raise _unknown(config.name or "")
    return make_foreign_agent(import_path, order)


def check_agent(config: AgentConfig) -> None:
    """Look, before any trial begins, whether there is such an agent and its kwargs can be used.

    A class by import path is not loaded, nor one of harbor's.

    Raises:
        UnsupportedError, AgentError: as make_agent, and for files that cannot be read.
    """
    if config.name not in _BUILT_IN and find_import_path(config) is None:
        raise _unknown(config.name or "")
    if config.name == "chat":
        _check_chat(config)
    find_revision(config)
    if config.name == "replay":
        import_module("proctor.agents.replay").load_replay(config)


def find_revision(config: AgentConfig, version_command: str | None = None) -> str | None:
    """What pins an agent for the record: its version command's output and its files' digest.

    None where neither is there: then the version that the agent itself gives is all there is.

    Raises:
        AgentError: the command fails, or the files cannot be read.
    """
    said = [run_version_command(version_command)] if version_command else []
    files = _find_files(config)
    if files is not None:
        said.append(tree_digest(files) if files.is_dir() else file_digest(files))
    return " ".join(said) or None


def _find_files(config: AgentConfig) -> Path | None:
    match config.name:
        case "command":
            return parse_settings(CommandSettings, config).tree
        case "scripted":
            return parse_settings(ScriptedSettings, config).script
        case "chat":
            chat: type[ChatSettings] = import_module("proctor.agents.chat.settings").ChatSettings
            return parse_settings(chat, config).system_prompt_file
        case "replay":
            replay: type[ReplaySettings] = import_module("proctor.agents.replay").ReplaySettings
            return parse_settings(replay, config).trajectory
    return None


def _unknown(name: str) -> UnsupportedError:
    if name in WITHOUT_CLASS:
        return UnsupportedError(
            f"agent {name!r}: harbor lists the name and has no such agent; expected terminus-2, "
            "which it has"
        )
    return UnsupportedError(
        f"there is no agent {name!r}; expected one of {', '.join(_BUILT_IN)}, one of harbor's "
        f"({', '.join(AGENTS)}), or a class by --agent-import-path, such as "
        "my_package.my_module:MyAgent"
    )
