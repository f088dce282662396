"""An agent from what a job asks for: a built-in one by name, any other by its import path."""

from pathlib import Path

from proctor.agents.command import CommandAgent, CommandSettings
from proctor.agents.foreign import make_foreign_agent
from proctor.agents.nop import NopAgent
from proctor.agents.oracle import OracleAgent
from proctor.agents.replay import ReplayAgent, ReplaySettings, load_replay
from proctor.agents.revision import file_digest, run_version_command, tree_digest
from proctor.agents.scripted import ScriptedAgent, ScriptedSettings
from proctor.agents.settings import parse_settings
from proctor.errors import UnsupportedError
from proctor.harbor.configs import AgentConfig
from proctor.trial.agent import Agent
from proctor.trial.order import AgentOrder, MakeAgent

_BUILT_IN: dict[str, MakeAgent] = {
    "oracle": OracleAgent,
    "nop": NopAgent,
    "command": CommandAgent,
    "scripted": ScriptedAgent,
    "replay": ReplayAgent,
}

HARBORS = {
    "aider": "installed.aider:Aider",
    "antigravity-cli": "installed.antigravity_cli:AntigravityCli",
    "claude-code": "installed.claude_code:ClaudeCode",
    "cline-cli": "installed.cline.cline:ClineCli",
    "codex": "installed.codex:Codex",
    "copilot-cli": "installed.copilot_cli:CopilotCli",
    "cursor-cli": "installed.cursor_cli:CursorCli",
    "devin": "installed.devin:Devin",
    "gemini-cli": "installed.gemini_cli:GeminiCli",
    "goose": "installed.goose:Goose",
    "hermes": "installed.hermes:Hermes",
    "kimi-cli": "installed.kimi_cli:KimiCli",
    "mini-swe-agent": "installed.mini_swe_agent:MiniSweAgent",
    "nemo-agent": "installed.nemo_agent:NemoAgent",
    "openclaw": "installed.openclaw:OpenClaw",
    "opencode": "installed.opencode:OpenCode",
    "openhands": "installed.openhands:OpenHands",
    "openhands-sdk": "installed.openhands_sdk:OpenHandsSDK",
    "pi": "installed.pi:Pi",
    "qwen-coder": "installed.qwen_code:QwenCode",
    "rovodev-cli": "installed.rovodev_cli:RovodevCli",
    "swe-agent": "installed.swe_agent:SweAgent",
    "terminus-2": "terminus_2.terminus_2:Terminus2",
    "trae-agent": "installed.trae_agent:TraeAgent",
}
"""Where harbor 0.13.1 keeps the agents that it knows by name, below `harbor.agents.`."""


def agent_names() -> tuple[str, ...]:
    """The names of the built-in agents."""
    return tuple(_BUILT_IN)


def make_agent(order: AgentOrder) -> Agent:
    """The agent that a trial wants; it touches nothing yet.

    Raises:
        UnsupportedError: no agent of this name is built in.
        PluginError: its import path names no agent.
        AgentError: its kwargs cannot be used.
    """
    config = order.config
    if config.name in _BUILT_IN:
        return _BUILT_IN[config.name](order)
    if config.import_path is not None:
        return make_foreign_agent(config.import_path, order)
    raise _unknown(config.name or "")


def check_agent(config: AgentConfig) -> None:
    """Look, before any trial begins, whether there is such an agent and its kwargs can be used.

    A class by import path is not loaded.

    Raises:
        UnsupportedError, AgentError: as make_agent, and for files that cannot be read.
    """
    if config.name not in _BUILT_IN and config.import_path is None:
        raise _unknown(config.name or "")
    find_revision(config)
    if config.name == "replay":
        load_replay(config)


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
        case "replay":
            return parse_settings(ReplaySettings, config).trajectory
    return None


def _unknown(name: str) -> UnsupportedError:
    theirs = HARBORS.get(name)
    path = f"harbor.agents.{theirs}" if theirs else "my_package.my_module:MyAgent"
    where = "; with harbor installed this one is" if theirs else ", such as"
    return UnsupportedError(
        f"agent {name!r} is not built in; expected one of {', '.join(_BUILT_IN)}, or a class by "
        f"--agent-import-path{where} {path}"
    )
