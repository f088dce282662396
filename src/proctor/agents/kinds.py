"""Makes the agent that a job names: built-in and harbor's agents by name, others by import path."""

import os
import shlex
import time
from collections.abc import Mapping
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from proctor.agents.command import CommandAgent, CommandSettings, check_program
from proctor.agents.foreign import make_foreign_agent
from proctor.agents.revision import file_digest, pin_command, run_version_command, tree_digest
from proctor.agents.settings import (
    Settings,
    load_text,
    open_trace,
    parse_settings,
    redact_env,
    warn_of_kwargs,
)
from proctor.errors import AgentError, UnsupportedError
from proctor.files import write_new
from proctor.harbor.agents import AGENTS, ALL_AGENTS, WITHOUT_CLASS, find_import_path
from proctor.harbor.configs import AgentConfig
from proctor.harbor.env import resolve_env
from proctor.task.presence import is_there
from proctor.trial.agent import Agent, AgentContext, AgentOrder, MakeAgent
from proctor.trial.environment import Environment, find_output_log
from proctor.trial.inside import exec_script
from proctor.trial.paths import INSIDE
from proctor.trial.trial_run import host_variables

# `oracle`: runs the task's own solution, as harbor's oracle does
#
# The only agent that sees the task's files. In a task of several steps it counts its runs: the n-th
# run solves the n-th step, as in harbor, because an agent is not told which step it is in.


LOG = "oracle.txt"
"""Output of the solution: /logs/agent/oracle.txt, collected as <trial>/agent/oracle.txt."""
EXIT_CODE = "exit-code.txt"
"""File in <trial>/agent with the solution's exit code; written only if it is not 0."""


class OracleAgent:
    """Runs solution/solve.sh of the task or step."""

    def __init__(self, order: AgentOrder) -> None:
        warn_of_kwargs(order, self.name())
        self._order = order
        self._runs = 0

    @staticmethod
    def name() -> str:
        """Return the name used in results."""
        return "oracle"

    def version(self) -> str | None:
        """Return the version that harbor gives this agent."""
        return "1.0.0"

    async def setup(self, environment: Environment) -> None:
        """Do nothing: no setup is needed."""

    async def run(self, instruction: str, environment: Environment, context: AgentContext) -> None:
        """Upload the solution and run it. A non-zero exit code is recorded, not raised."""
        self._runs += 1
        script = self._find_script(self._runs)
        place = f"{INSIDE.solution_dir}/{script.name}"
        inside = shlex.quote(place)
        await environment.upload_dir(source_dir=script.parent, target_dir=str(INSIDE.solution_dir))
        if log := find_output_log(environment):
            log.replaces_results = True
        command = f"({inside})" if log else f"({inside}) > {INSIDE.agent_dir / LOG} 2>&1"
        try:
            result = await exec_script(
                environment, command, place, self._env(), self._whole_seconds()
            )
        finally:
            if log is not None:
                log.write_text(LOG)
        if result.return_code != 0:
            path = self._order.trial_paths.agent_dir / EXIT_CODE
            # The solution may have left a symlink there, which must not be followed on the host.
            path.unlink(missing_ok=True)
            write_new(path, str(result.return_code).encode())

    def _find_script(self, run: int) -> Path:
        task = self._order.task
        step = task.steps[run - 1] if run <= len(task.steps) else None
        if step and is_there(step.directory / "solution"):
            if found := task.find_solution_script(step):
                return found
            expected = step.directory / "solution" / "solve.sh"
            raise FileNotFoundError(
                f"No OS-compatible solution script found for step '{step.name}': "
                f"expected {expected}"
            )
        if found := task.find_solution_script():
            return found
        expected = task.directory / "solution" / "solve.sh"
        raise FileNotFoundError(f"Solution script not found: {expected}")

    def _env(self) -> dict[str, str]:
        own = resolve_env(self._order.task.config.solution.env, os.environ)
        # As harbor's oracle: without it, apt may wait for an answer.
        return {"DEBIAN_FRONTEND": "noninteractive", **self._order.extra_env, **own}

    def _whole_seconds(self) -> int | None:
        # Rounded down, as harbor does: with a timeout of 1.5 s the command gets 1 s, so the
        # command times out before the agent.
        return int(self._order.timeout_sec) if self._order.timeout_sec else None


# `scripted`: runs the lines of a script one by one, and writes its trajectory live
#
#     proctor run -p TASKS -a scripted --ak script=replay.sh
#
# Each line runs in its own shell, as an agent's commands do: a `cd` does not affect the next line.
# Blank lines and lines that begin with # are skipped. A command that fails does not end the script;
# its exit code is in the trajectory. Useful for demos, regression tests of a task, and to replay
# what an agent did. The instruction is ignored.


_TOOL = "bash"


class ScriptedSettings(Settings):
    """kwargs of `scripted`."""

    script: Path
    """File on the host with one shell command per line."""


class ScriptedAgent:
    """Runs a script line by line."""

    writes_trace = True

    def __init__(self, order: AgentOrder) -> None:
        self._order = order
        self._commands = load_commands(parse_settings(ScriptedSettings, order.config).script)

    @staticmethod
    def name() -> str:
        """Return the name used in results."""
        return "scripted"

    def version(self) -> str | None:
        """Return the version of this runner; the script itself is pinned by its digest."""
        return "1.0.0"

    async def setup(self, environment: Environment) -> None:
        """Do nothing: no setup is needed."""

    async def run(self, instruction: str, environment: Environment, context: AgentContext) -> None:
        """Run every line, each as a step of <trial>/agent/trajectory.jsonl."""
        with open_trace(self._order.logs_dir, redact_env(self._order.extra_env)) as trace:
            trace.user(instruction)
            for command in self._commands:
                trace.new_step()
                trace.tool_call(_TOOL, command)
                start = time.monotonic()
                result = await environment.exec(command=command, env=dict(self._order.extra_env))
                trace.tool_result(
                    _TOOL,
                    stdout=result.stdout or "",
                    stderr=result.stderr or "",
                    exit_code=result.return_code,
                    duration_ms=round((time.monotonic() - start) * 1000),
                )


def load_commands(script: Path) -> tuple[str, ...]:
    """Load the commands of a script, in order.

    Raises:
        AgentError: it cannot be read, is not UTF-8, or contains no command.
    """
    lines = (line.strip() for line in load_text(script).split("\n"))
    commands = tuple(line for line in lines if line and not line.startswith("#"))
    if not commands:
        raise AgentError(f"{script}: contains no command; expected one shell command per line")
    return commands


class NopAgent:
    """Does nothing, to check that a task's verifier gives no reward for it."""

    def __init__(self, order: AgentOrder) -> None:
        warn_of_kwargs(order, self.name())

    @staticmethod
    def name() -> str:
        """Return the name used in results."""
        return "nop"

    def version(self) -> str | None:
        """Return the version that harbor gives this agent."""
        return "1.0.0"

    async def setup(self, environment: Environment) -> None:
        """Do nothing: no setup is needed."""

    async def run(self, instruction: str, environment: Environment, context: AgentContext) -> None:
        """Do nothing."""


if TYPE_CHECKING:
    from proctor.agents.chat.settings import ChatSettings
    from proctor.agents.replay import ReplaySettings


def _make_chat(order: AgentOrder) -> Agent:
    # Check first: importing httpx takes longer than finding a wrong setting.
    _check_chat(order.config, order.extra_env)
    agent: Agent = import_module("proctor.agents.chat.agent").ChatAgent(order)
    return agent


def _check_chat(config: AgentConfig, given: Mapping[str, str]) -> None:
    host = {**host_variables(), **given}
    import_module("proctor.agents.chat.settings").check_chat(config, host)


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
    """Return the names of the built-in agents."""
    return tuple(_BUILT_IN)


def make_agent(order: AgentOrder) -> Agent:
    """Make the agent of a trial, without running anything yet.

    Raises:
        UnsupportedError: there is no agent of this name.
        PluginError: its import path does not name an agent.
        AgentError: its kwargs are invalid.
    """
    config = order.config
    if config.name in _BUILT_IN:
        return _BUILT_IN[config.name](order)
    import_path = find_import_path(config)
    if import_path is None:
        raise _unknown(config.name or "")
    return make_foreign_agent(import_path, order)


def check_agent(config: AgentConfig, given: Mapping[str, str] = MappingProxyType({})) -> None:
    """Check, before any trial begins, that an agent exists and that its kwargs are valid.

    `given` are variables that a trial will add to the host's. Classes by import path and harbor's
    agents are not imported here.

    Raises:
        UnsupportedError, AgentError: as make_agent, and for files that cannot be read.
    """
    if config.name not in _BUILT_IN and find_import_path(config) is None:
        raise _unknown(config.name or "")
    if config.name == "chat":
        _check_chat(config, given)
    if config.name == "command":
        check_program(parse_settings(CommandSettings, config))
    find_revision(config)
    if config.name == "replay":
        import_module("proctor.agents.replay").load_replay(config)


def find_revision(config: AgentConfig, version_command: str | None = None) -> str | None:
    """Return what pins an agent in the record: its version command's output and files' digest.

    None if it has neither; the version that the agent itself reports is recorded anyway.
    """
    said = [run_version_command(version_command)] if version_command else []
    files = _find_files(config)
    if files is not None:
        said.append(tree_digest(files) if files.is_dir() else file_digest(files))
    return " ".join(said) or None


def find_command_pin(config: AgentConfig) -> str | None:
    """Return what pins a shell command that has no files and no version; None for other agents."""
    if config.name != "command":
        return None
    return pin_command(parse_settings(CommandSettings, config).command)


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
            f"agent {name!r}: harbor lists this name but has no such agent; use terminus-2 instead"
        )
    alike = get_close_matches(name, (*_BUILT_IN, *ALL_AGENTS), 1)
    meant = f"did you mean {alike[0]}? Expected" if alike else "expected"
    return UnsupportedError(
        f"there is no agent {name!r}; {meant} one of {', '.join(_BUILT_IN)}, one of harbor's "
        f"({', '.join(AGENTS)}), or a class with --agent-import-path, such as "
        "my_package.my_module:MyAgent"
    )
