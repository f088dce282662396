"""The agents that harbor knows by name, and their import paths. Does not load them."""

import re
from collections.abc import Mapping

from proctor.harbor.configs import AgentConfig

_KEY = re.compile(r"(?:^|_)(?:API_KEY|ACCESS_KEY|TOKEN|TOKEN_BEDROCK)$")

CHAT = "chat"
"""proctor's own agent, which calls a model from this machine."""
CHAT_KEY = "OPENAI_API_KEY"
"""The variable with its key."""
SHORTEST_CHAT_KEY = 8
"""A shorter key is not a secret: endpoints without authentication get a word such as EMPTY."""

VERSION = "0.13.1"
"""The release of harbor that these agents belong to."""

AGENTS = {
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
"""Import paths below `harbor.agents.`; proctor has its own oracle and nop."""

LATER_AGENTS = {
    "acp": "installed.acp:AcpAgent",
    "antigravity-sdk": "installed.antigravity_sdk:AntigravitySDK",
    "code-puppy": "installed.code_puppy:CodePuppy",
    "computer-1": "computer_1:Computer1",
    "cortex-code": "installed.cortex_code:CortexCode",
    "deerflow": "installed.deerflow:DeerFlow",
    "dspy-rlm": "dspy_rlm:DspyRlmAgent",
    "eve": "installed.eve:Eve",
    "fabric": "installed.fabric:FabricAgent",
    "fx": "installed.fx:Fx",
    "fx-dev": "installed.fx_dev:FxDev",
    "grok-build": "installed.grok_build:GrokBuild",
    "junie": "installed.junie:Junie",
    "kimi-code": "installed.kimi_code:KimiCode",
    "langgraph": "installed.langgraph:LangGraph",
    "mcode": "installed.mcode:MCode",
    "mimo": "installed.mimo:MiMo",
    "muse-code": "installed.muse_code:MuseCode",
    "strands": "installed.strands:Strands",
    "vibe": "installed.vibe:Vibe",
}
"""Those that harbor has added since, up to 0.25.0."""

ALL_AGENTS = {**AGENTS, **LATER_AGENTS}

WITHOUT_CLASS = frozenset({"terminus", "terminus-1"})
"""Names that harbor lists without having an agent for them."""


def find_import_path(config: AgentConfig) -> str | None:
    """The import path of the agent's class; given both, harbor prefers the name."""
    theirs = ALL_AGENTS.get(config.name or "")
    return f"harbor.agents.{theirs}" if theirs else config.import_path


def is_harbors(config: AgentConfig) -> bool:
    """Whether an agent is part of harbor, by its name or import path."""
    return (find_import_path(config) or "").startswith("harbor.")


def find_keys(config: AgentConfig, host: Mapping[str, str]) -> dict[str, str]:
    """Host variables that an agent may use for its model without being given them."""
    if config.name == CHAT:
        return {name: value for name, value in host.items() if name == CHAT_KEY}
    if not is_harbors(config):
        return {}
    return {name: value for name, value in host.items() if _KEY.search(name)}
