"""An agent from what a job asks for: a built-in one or harbor's by name, others by import path."""

import os
import shlex
import time
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from proctor.agents.command import CommandAgent, CommandSettings
from proctor.agents.foreign import make_foreign_agent
from proctor.agents.live import open_trace
from proctor.agents.revision import file_digest, run_version_command, tree_digest
from proctor.agents.secrets import redact_env
from proctor.agents.settings import Settings, load_text, parse_settings, warn_of_kwargs
from proctor.errors import AgentError, UnsupportedError
from proctor.files import write_new
from proctor.harbor.agents import AGENTS, WITHOUT_CLASS, find_import_path
from proctor.harbor.configs import AgentConfig
from proctor.harbor.env import resolve_env
from proctor.task.presence import is_there
from proctor.traces.writer import TrajectoryWriter
from proctor.trial.agent import Agent, AgentContext
from proctor.trial.environment import Environment
from proctor.trial.inside import exec_script
from proctor.trial.order import AgentOrder, MakeAgent
from proctor.trial.paths import INSIDE
from proctor.trial.trial_run import host_variables

# `oracle`: runs the task's own solution, as harbor's oracle does
#
# The only agent that is given the task. In a task of several steps it counts its runs: the n-th is
# the n-th step's, as in harbor, where nothing else tells an agent which step it is in.


LOG = "oracle.txt"
"""What the solution printed: /logs/agent/oracle.txt, collected as <trial>/agent/oracle.txt."""
EXIT_CODE = "exit-code.txt"
"""The solution's exit code, in <trial>/agent, where it is not 0."""


class OracleAgent:
    """Runs solution/solve.sh, or the step's."""

    def __init__(self, order: AgentOrder) -> None:
        warn_of_kwargs(order, self.name())
        self._order = order
        self._runs = 0

    @staticmethod
    def name() -> str:
        """Its name in results."""
        return "oracle"

    def version(self) -> str | None:
        """Harbor's version of it."""
        return "1.0.0"

    async def setup(self, environment: Environment) -> None:
        """Needs nothing."""

    async def run(self, instruction: str, environment: Environment, context: AgentContext) -> None:
        """Put the solution into the environment and run it; its exit code ends nothing.

        Raises:
            FileNotFoundError: there is no solution; harbor's words.
            ValueError: [solution].env names a variable that the host does not have.
            RuntimeError: it took longer than the whole seconds that it is given.
        """
        self._runs += 1
        script = self._find_script(self._runs)
        place = f"{INSIDE.solution_dir}/{script.name}"
        inside = shlex.quote(place)
        log = INSIDE.agent_dir / LOG
        await environment.upload_dir(source_dir=script.parent, target_dir=str(INSIDE.solution_dir))
        result = await exec_script(
            environment, f"({inside}) > {log} 2>&1", place, self._env(), self._whole_seconds()
        )
        if result.return_code != 0:
            self._write_exit_code(result.return_code)

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
        return {"DEBIAN_FRONTEND": "noninteractive", **self._order.extra_env, **own}

    def _whole_seconds(self) -> int | None:
        # Cut off as harbor does it: of 1.5 s the command gets 1 s, and then it is the command
        # that times out, not the agent.
        return int(self._order.timeout_sec) if self._order.timeout_sec else None

    def _write_exit_code(self, code: int) -> None:
        path = self._order.trial_paths.agent_dir / EXIT_CODE
        # The solution may have put a link there, which must not be followed on the host.
        path.unlink(missing_ok=True)
        write_new(path, str(code).encode())


# `scripted`: runs the lines of a script one by one, and writes its trajectory live
#
#     proctor run -p TASKS -a scripted --ak script=replay.sh
#
# Each line is a shell command of its own, as an agent would give it: a `cd` does not last to the
# next. Blank lines and lines that begin with # are passed over. A command that fails does not end
# the script; its exit code stands in the trajectory. Good for demos, for regression tests of a
# task, and to replay what an agent did. It decides nothing: it does not look at the instruction.


_TOOL = "bash"


class ScriptedSettings(Settings):
    """kwargs of `scripted`."""

    script: Path
    """File on the host with one shell command per line."""


class ScriptedAgent:
    """Runs a script line by line."""

    def __init__(self, order: AgentOrder) -> None:
        self._order = order
        self._commands = load_commands(parse_settings(ScriptedSettings, order.config).script)

    @staticmethod
    def name() -> str:
        """Its name in results."""
        return "scripted"

    def version(self) -> str | None:
        """Version of how a script is run; the script has a digest."""
        return "1.0.0"

    async def setup(self, environment: Environment) -> None:
        """Needs nothing."""

    async def run(self, instruction: str, environment: Environment, context: AgentContext) -> None:
        """Run every line; each is a step of <trial>/agent/trajectory.jsonl."""
        with open_trace(self._order.logs_dir, redact_env(self._order.extra_env)) as trace:
            trace.user(instruction)
            for command in self._commands:
                await self._run_command(command, environment, trace)

    async def _run_command(
        self, command: str, environment: Environment, trace: TrajectoryWriter
    ) -> None:
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
    """The commands of a script, in order.

    Raises:
        AgentError: it cannot be read, is not UTF-8, or holds no command.
    """
    lines = (line.strip() for line in load_text(script).split("\n"))
    commands = tuple(line for line in lines if line and not line.startswith("#"))
    if not commands:
        raise AgentError(f"{script}: holds no command; expected one shell command per line")
    return commands


# `nop`: does nothing, so that a task's verifier can be seen to give nothing for it


class NopAgent:
    """Does nothing."""

    def __init__(self, order: AgentOrder) -> None:
        warn_of_kwargs(order, self.name())

    @staticmethod
    def name() -> str:
        """Its name in results."""
        return "nop"

    def version(self) -> str | None:
        """Harbor's version of it."""
        return "1.0.0"

    async def setup(self, environment: Environment) -> None:
        """Needs nothing."""

    async def run(self, instruction: str, environment: Environment, context: AgentContext) -> None:
        """Do nothing."""


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
