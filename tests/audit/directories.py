"""Job directories to test with: copies of real ones, edited, and small ones made up.

PROCTOR_HARBOR_JOBS names another directory of real jobs.
"""

import hashlib
import json
import math
import os
import re
import shutil
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from proctor.audit.scoring import score_jobs
from proctor.exchange.harbor_trial import RecordRequest, make_record
from proctor.harbor.job import load_job
from proctor.harbor.render import render_json
from proctor.harbor.stats import stats_document
from proctor.record.read import render_record
from proctor.reward.profile import DEFAULT_PROFILE

COPIED = Path(__file__).parent.parent / "data" / "harbor" / "jobs"
JOBS = Path(os.environ.get("PROCTOR_HARBOR_JOBS") or COPIED)
NAMES = sorted(path.parent.name for path in JOBS.glob("*/result.json"))

every_job = pytest.mark.parametrize("name", NAMES)

type Document = Any
"""A JSON document, as the standard library reads it."""


def copy_job(name: str, into: Path) -> Path:
    """A copy of one of our real jobs, to be changed."""
    target = into / name
    shutil.copytree(COPIED / name, target)
    return target


def find_trial(job: Path, task: str) -> Path:
    """The first trial directory of a task."""
    return min(job.glob(f"{task}__*"))


def read_json(path: Path) -> Document:
    return json.loads(path.read_text(encoding="utf-8"))


def write_json(path: Path, document: Document) -> None:
    path.write_text(json.dumps(document, indent=4, ensure_ascii=False), encoding="utf-8")


def edit_json(path: Path, change: Callable[[Document], object]) -> None:
    """Change a JSON file in place."""
    document = read_json(path)
    change(document)
    write_json(path, document)


def edit_config(trial: Path, change: Callable[[Document], object]) -> None:
    """Change a trial's config, in config.json and in result.json alike."""
    edit_json(trial / "config.json", change)
    edit_json(trial / "result.json", lambda result: change(result["config"]))


def set_reward(trial: Path, value: float) -> None:
    """Change the reward that a trial result claims."""

    def change(result: Document) -> None:
        result["verifier_result"] = {"rewards": {"reward": value}}

    edit_json(trial / "result.json", change)


def publish(job: Path) -> None:
    """Make the job result fit the trials that are there, as a careful forger would."""
    published = score_jobs([load_job(str(job))], DEFAULT_PROFILE, add_up=False)
    stats = json.loads(render_json(stats_document(published.stats)))
    edit_json(job / "result.json", lambda result: result.update(stats=stats))


def make_job(directory: Path, rewards: dict[str, list[str]], *, config: Document = None) -> Path:
    """A job as harbor would have left it: reward.txt texts by task, one trial each."""
    directory.mkdir()
    n_attempts = max(map(len, rewards.values()), default=0)
    write_json(directory / "config.json", config or {"n_attempts": n_attempts, "metrics": []})
    for task, texts in rewards.items():
        for number, text in enumerate(texts, 1):
            make_trial(directory / f"{task}__{directory.name}{number}", task, text)
    empty = {"n_total_trials": sum(map(len, rewards.values())), "stats": {"evals": {}}}
    write_json(directory / "result.json", {**empty, "finished_at": "2026-01-01T00:00:00"})
    publish(directory)
    return directory


def make_trial(directory: Path, task: str, text: str, **fields: Document) -> None:
    """One trial with a reward.txt."""
    (directory / "verifier").mkdir(parents=True)
    (directory / "verifier" / "reward.txt").write_text(text, encoding="utf-8")
    reward = float(text)
    config = {"task": {"path": f"tasks/{task}"}, "agent": {"name": "oracle"}}
    write_json(directory / "config.json", config)
    document = {
        "task_name": task,
        "trial_name": directory.name,
        "agent_info": {"name": "oracle"},
        "config": config,
        # harbor writes null for what is no finite number.
        "verifier_result": {"rewards": {"reward": reward if math.isfinite(reward) else None}},
        **fields,
    }
    write_json(directory / "result.json", document)


def write_record(trial: Path) -> None:
    """The record.json that proctor would have written into a trial of harbor."""
    record, _ = make_record(RecordRequest(trial=str(trial), experiment="audited"))
    (trial / "record.json").write_bytes(render_record(record))


def listing(directory: Path) -> dict[str, tuple[int, int, str]]:
    """Every path under a directory, with its mode, time of change and digest."""
    found = {}
    above = len(str(directory)) + 1
    for path in [directory, *directory.rglob("*")]:
        status = path.lstat()
        digest = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
        # Hundreds of tests list hundreds of files: relative_to() takes longer than reading them.
        found[str(path)[above:] or "."] = (status.st_mode, status.st_mtime_ns, digest)
    return found


def shift_trial(trial: Path, by: timedelta) -> None:
    """Other times in a trial result, all by the same."""
    path = trial / "result.json"

    def shift(match: re.Match[str]) -> str:
        return (datetime.fromisoformat(match[0]) + by).isoformat().replace("+00:00", "Z")

    path.write_text(re.sub(r"\d{4}-\d\d-\d\dT[0-9:.]+Z", shift, path.read_text()))
