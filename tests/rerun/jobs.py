"""Real jobs in the sandbox to be run again, and ways to doctor them."""

import asyncio
import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from proctor.harbor.configs import AgentConfig, JobConfig, TaskConfig
from proctor.job.job import run_job
from proctor.job.options import JobOptions, LedgerOptions
from proctor.job.watch import Watch

type Again = Callable[..., dict[str, Any]]
"""Runs one trial of a job again: what was said of it, and the exit code."""

HONEST = "mkdir -p /app\necho 42 > /app/answer\ncat /app/answer; exit 3\n"
SOLUTION = "#!/bin/bash\nmkdir -p /app\necho 42 > /app/answer\n"
TEST = '[ "$(cat /app/answer)" = 42 ] && r=1 || r=0\necho $r > /logs/verifier/reward.txt\n'


def write_task(directory: Path, test: str = TEST) -> Path:
    """A task that wants 42 in /app/answer."""
    for name, text in {
        "task.toml": '[environment]\nnetwork_mode = "no-network"\n',
        "instruction.md": "Write 42 to /app/answer.\n",
        "environment/Dockerfile": "FROM debian:12\n",
        "tests/test.sh": test,
        "solution/solve.sh": SOLUTION,
    }.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return directory


def scripted(place: Path, script: str) -> AgentConfig:
    """An agent that runs these lines."""
    path = place / "script.sh"
    path.write_text(script)
    return AgentConfig(name="scripted", kwargs={"script": str(path)})


def run_trial(place: Path, agent: AgentConfig, ledger: LedgerOptions | None = None) -> Path:
    """The directory of a job of one trial, at the task in `place/task`."""
    task = place / "task"
    config = JobConfig(
        job_name="job",
        jobs_dir=place / "jobs",
        agents=[agent],
        tasks=[TaskConfig(path=task if task.exists() else write_task(task))],
    )
    outcome = asyncio.run(run_job(JobOptions(config=config, ledger=ledger), Watch()))
    assert outcome.counts.scored == 1
    return outcome.directory


def only_trial(job: Path) -> Path:
    """The directory of its one trial."""
    (result,) = job.glob("*/result.json")
    return result.parent


def trace_of(job: Path) -> Path:
    """The trajectory of its one trial."""
    return only_trial(job) / "agent" / "trajectory.jsonl"


def load(path: Path) -> Any:
    """A JSON file."""
    return json.loads(path.read_text())


def edit_json(path: Path, change: Callable[[Any], object]) -> None:
    """Change a JSON file in place."""
    document = load(path)
    change(document)
    path.write_text(json.dumps(document, indent=4))


def edit_lines(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change every line of a trajectory in place."""
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    for line in lines:
        change(line)
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))


def digest_tree(directory: Path) -> str:
    """One digest over the names, modes, times and contents of all that is there."""
    hasher = hashlib.sha256()
    for folder, folders, names in os.walk(directory):
        folders.sort()
        for name in sorted([*folders, *names]):
            path = Path(folder, name)
            seen = path.lstat()
            hasher.update(f"{path}\0{seen.st_mode}\0{seen.st_mtime_ns}\0".encode())
            hasher.update(path.read_bytes() if path.is_file() else b"")
    return hasher.hexdigest()
