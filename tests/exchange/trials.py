"""Trial directories to make records of: the real ones, and copies of them to change."""

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any, NamedTuple

from proctor.exchange.harbor_trial import RecordRequest, make_record
from proctor.record.cost import CostBasis
from proctor.record.model import TrialRecord
from proctor.record.read import render_record
from tests.audit.directories import COPIED, edit_json, read_json

HARBOR = COPIED.parent
SCRIPTED = "04-binary-scripted-k5"
TRIALS = sorted(path for path in COPIED.glob("*/*") if path.is_dir())
PRICED = "anthropic/claude-sonnet-4-20250514"
"""A model whose price is listed."""


def copy_trial(into: Path, job: str = SCRIPTED, task: str = "pass-two") -> Path:
    """A copy of a real trial, in a job with nothing else but its lock."""
    real = min((COPIED / job).glob(f"{task}__*"))
    target = into / job / real.name
    shutil.copytree(real, target)
    shutil.copy(COPIED / job / "lock.json", target.parent)
    return target


def find_task(trial: Path) -> Path:
    """The task that a real trial says it sat, whether or not it is here."""
    return HARBOR / str(read_json(trial / "config.json")["task"]["path"])


class Made(NamedTuple):
    """A record, and the source of its cost."""

    record: TrialRecord
    cost_basis: CostBasis


def make(trial: Path, **wishes: Any) -> Made:
    """The record of a trial."""
    wishes = {key: str(wish) if isinstance(wish, Path) else wish for key, wish in wishes.items()}
    return Made(*make_record(RecordRequest(trial=str(trial), experiment="nightly", **wishes)))


def write_record(trial: Path, path: Path) -> None:
    """Write the record of a trial to a file."""
    path.write_bytes(render_record(make(trial).record))


def edit_result(trial: Path, **changes: object) -> None:
    """Change what a trial result says: `agent_result__cost_usd=None` reaches inside."""

    def change(result: Any) -> None:
        for path, value in changes.items():
            *parents, last = path.split("__")
            inner = result
            for parent in parents:
                inner = inner[parent]
            inner[last] = value

    edit_json(trial / "result.json", change)


def edit_model(trial: Path, model: str) -> None:
    """Let a trial have asked for a model, and no trace say which one answered."""
    edit_result(trial, config__agent__model_name=model)
    (trial / "agent" / "trajectory.json").unlink(missing_ok=True)


def write_trajectory(trial: Path, *entries: dict[str, object], folder: str = "agent") -> Path:
    """Put a trajectory into a trial."""
    path = trial / folder / "trajectory.jsonl"
    lines = [{"version": 1, "format": "aec-bench-trajectory"}, *entries]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return path


def sha256sum(*paths: Path) -> dict[Path, str]:
    """What the program of that name says."""
    done = subprocess.run(["sha256sum", *paths], capture_output=True, text=True, check=True)
    digests = [line.split()[0].removeprefix("\\") for line in done.stdout.splitlines()]
    return dict(zip(paths, digests, strict=True))
