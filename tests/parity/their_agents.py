"""Agents as people write them for harbor: subclasses of its classes, nothing of proctor in them."""

import asyncio
import json
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from harbor.agents.base import BaseAgent
from harbor.agents.installed.base import BaseInstalledAgent, NonZeroAgentExitCodeError

_RUNS: Counter[object] = Counter()
"""How often something was run, in this process."""


class Scripted(BaseAgent):
    """Answers right or wrong after a pattern, tells what it cost, and leaves an ATIF trajectory."""

    SUPPORTS_ATIF = True

    def __init__(self, logs_dir: Path, *args: Any, pattern: Any = "1", **kwargs: Any) -> None:
        super().__init__(logs_dir, *args, **kwargs)
        self.pattern = str(pattern)

    @staticmethod
    def name() -> str:
        return "scripted"

    def version(self) -> str:
        return "0.0.1"

    async def setup(self, environment: Any) -> None:
        await environment.exec("mkdir -p /installed-agent", user="root")

    async def run(self, instruction: str, environment: Any, context: Any) -> None:
        index = self._count(environment.environment_name, self.model_name)
        good = self.pattern[index % len(self.pattern)] == "1"
        await self._answer(instruction, environment, "42" if good else "nope")
        context.n_input_tokens, context.n_cache_tokens, context.n_output_tokens = 230, 100, 25
        context.cost_usd = 0.00175
        context.metadata = {"good": good, "attempt_index": index}

    def _count(self, *what: object) -> int:
        """How often this was done before in the job."""
        key = (self.logs_dir.parent.parent, *what)
        _RUNS[key] += 1
        return _RUNS[key] - 1

    async def _answer(self, instruction: str, environment: Any, word: str) -> None:
        command = f"printf '%s' {word} > answer.txt; cat answer.txt"
        done = await environment.exec(command)
        call = {
            "tool_call_id": "c1",
            "function_name": "bash",
            "arguments": {"command": command},
        }
        steps = [
            {"step_id": 1, "source": "user", "message": instruction},
            {
                "step_id": 2,
                "source": "agent",
                "message": "I write it down.",
                "tool_calls": [call],
                "observation": {"results": [{"source_call_id": "c1", "content": done.stdout}]},
                "metrics": {"prompt_tokens": 230, "completion_tokens": 25, "cost_usd": 0.00175},
            },
        ]
        trajectory = {
            "schema_version": "ATIF-v1.7",
            "session_id": environment.session_id,
            "agent": {"name": self.name(), "version": self.version()},
            "steps": [{**step, "timestamp": datetime.now(UTC).isoformat()} for step in steps],
        }
        (self.logs_dir / "trajectory.json").write_text(json.dumps(trajectory), encoding="utf-8")


class Failing(Scripted):
    """Answers, then says that its command failed."""

    async def run(self, instruction: str, environment: Any, context: Any) -> None:
        await self._answer(instruction, environment, "42")
        raise NonZeroAgentExitCodeError("Command failed (exit 3): scripted")


class Hanging(Scripted):
    """Answers, tells what it cost so far, and never ends."""

    async def run(self, instruction: str, environment: Any, context: Any) -> None:
        context.n_input_tokens, context.n_cache_tokens, context.n_output_tokens = 11, 3, 7
        context.cost_usd = 0.0001
        await self._answer(instruction, environment, "42")
        await asyncio.Event().wait()


class Flaky(Scripted):
    """Loses its connection so many times in every trial, then does it."""

    def __init__(self, *args: Any, n_fail: int = 2, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.n_fail = n_fail

    @staticmethod
    def name() -> str:
        return "flaky"

    async def run(self, instruction: str, environment: Any, context: Any) -> None:
        failed = self._count("failed", self.logs_dir.parent.name)
        if failed < self.n_fail:
            raise ConnectionError(f"flaky failure {failed + 1}")
        await super().run(instruction, environment, context)


class Installed(BaseInstalledAgent):
    """Installs a script, runs it with arguments and variables, and reads what it left."""

    @staticmethod
    def name() -> str:
        return "installed"

    def get_version_command(self) -> str | None:
        return "bash /installed-agent/agent.sh --version"

    async def install(self, environment: Any) -> None:
        script = self.logs_dir / "agent.sh"
        script.write_text(
            '[ "$1" = --version ] && echo 9.9 && exit\n'
            'echo "model $MODEL"; printf %s "$1" > answer.txt\n',
            encoding="utf-8",
        )
        await environment.upload_file(source_path=script, target_path="/installed-agent/agent.sh")
        await self.exec_as_root(environment, "chmod +x /installed-agent/agent.sh")

    async def run(self, instruction: str, environment: Any, context: Any) -> None:
        done = await self.exec_as_agent(
            environment,
            "/bin/bash /installed-agent/agent.sh 42 | tee /logs/agent/out.txt",
            env={"MODEL": self.model_name or "none"},
        )
        context.metadata = {"said": done.stdout}

    def populate_context_post_run(self, context: Any) -> None:
        context.n_input_tokens = len((self.logs_dir / "out.txt").read_text(encoding="utf-8"))


class Unmakeable(Scripted):
    """Cannot be made at all."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        raise ValueError("a setting of it is wrong")
