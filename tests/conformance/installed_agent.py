"""An agent as people write them for harbor: installed by a script, run by a command."""

import importlib
from pathlib import Path
from typing import Any

BASE: Any = importlib.import_module("harbor.agents.installed.base")


class InstalledAgent(BASE.BaseInstalledAgent):
    """Installs a script, runs it, and reads what it left."""

    def __init__(self, *args: Any, answer: str = "42", fails: bool = False, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.answer, self.fails = answer, fails
        self.post_run: list[str] = []

    @staticmethod
    def name() -> str:
        return "installed"

    def get_version_command(self) -> str | None:
        return "bash /installed-agent/agent.sh --version"

    async def install(self, environment: Any) -> None:
        script = Path(self.logs_dir) / "setup" / "agent.sh"
        script.write_text(
            '[ "$1" = --version ] && echo 9.9 && exit\n'
            'echo "model $MODEL, key $MY_KEY, answer $1"\n'
            '[ "$1" != fail ]\n'
        )
        await environment.upload_file(source_path=script, target_path="/installed-agent/agent.sh")
        await self.exec_as_root(environment, "chmod +x /installed-agent/agent.sh")

    @BASE.with_prompt_template  # type: ignore[untyped-decorator]  # all of harbor is Any
    async def run(self, instruction: str, environment: Any, context: Any) -> None:
        word = "fail" if self.fails else self.answer
        result = await self.exec_as_agent(
            environment,
            f"bash /installed-agent/agent.sh {word} | tee /logs/agent/out.txt",
            env={"MODEL": self.model_name or "none"},
        )
        context.n_input_tokens = len(instruction)
        context.metadata = {"said": result.stdout, "servers": [s.name for s in self.mcp_servers]}

    def populate_context_post_run(self, context: Any) -> None:
        self.post_run.append(repr(context.is_empty()))
