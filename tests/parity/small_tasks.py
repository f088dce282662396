"""Tasks for what the recorded ones do not show."""

from pathlib import Path

_TOML = """version = "1.0"
[agent]
timeout_sec = {agent}
[verifier]
timeout_sec = 30.0
[environment]
{environment}
"""


def write_task(
    directory: Path, *, solve: str, test: str, agent: float = 30.0, environment: str = ""
) -> Path:
    """A task with a solution and a test, both in bash."""
    for name in ("environment", "solution", "tests"):
        (directory / name).mkdir(parents=True)
    config = _TOML.format(agent=agent, environment=environment)
    (directory / "task.toml").write_text(config, encoding="utf-8")
    (directory / "instruction.md").write_text("Do it.\n", encoding="utf-8")
    dockerfile = "FROM debian:bookworm-slim\nWORKDIR /app\n"
    (directory / "environment" / "Dockerfile").write_text(dockerfile, encoding="utf-8")
    for path, text in (("solution/solve.sh", solve), ("tests/test.sh", test)):
        (directory / path).write_text(f"#!/bin/bash\n{text}\n", encoding="utf-8")
    return directory


def score(condition: str) -> str:
    """A test that gives 1 where a condition of the shell holds, else 0."""
    return f"if {condition}; then r=1; else r=0; fi; echo $r > /logs/verifier/reward.txt"
