"""Task directories that harbor takes, as small as they can be, and jobs of them."""

import asyncio
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from proctor.harbor.configs import JobConfig
from proctor.job.planned import Resolved
from proctor.job.settings import Settings
from proctor.job.tasks import resolve_tasks


def write_task(directory: Path, config: str = "", instruction: str = "Do it.\n") -> Path:
    """A whole task."""
    for name in ("environment", "tests", "solution"):
        (directory / name).mkdir(parents=True)
    (directory / "task.toml").write_text(config)
    (directory / "instruction.md").write_text(instruction)
    (directory / "environment" / "Dockerfile").write_text("FROM debian:12\n")
    (directory / "tests" / "test.sh").write_text("echo 1 > /logs/verifier/reward.txt\n")
    (directory / "solution" / "solve.sh").write_text("true\n")
    return directory


def write_dataset(directory: Path, *names: str) -> Path:
    """A directory of whole tasks, each with its own instruction."""
    for name in names:
        write_task(directory / name, instruction=f"Do {name}.\n")
    return directory


def job_config(**values: Any) -> JobConfig:
    """What a job is told; paths may be text."""
    return JobConfig.model_validate({"job_name": "job", **values})


def resolve(
    config: JobConfig, settings: Settings | None = None, host: Mapping[str, str] = os.environ
) -> Resolved:
    """Everything that a job is planned from."""
    return asyncio.run(resolve_tasks(config, settings or Settings(), host=host))


def resolve_path(path: Path, **values: Any) -> Resolved:
    """The tasks of a dataset in a directory."""
    return resolve(job_config(datasets=[{"path": path, **values}]))
