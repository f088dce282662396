"""Ledgers to make boards of."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from proctor.ledger.api import Ledger
from proctor.ledger.entry import Source, TrialScore
from proctor.ledger.query import find_trial
from proctor.ledger.row import TrialRow
from proctor.ledger.sealing import Submission
from proctor.reward.profile import DEFAULT_PROFILE
from tests.ledger.ledgers import find_key, make_ledger, record_bytes

DATASET = "aec-core@0.1.0"
"""The dataset of the records."""
MISSING = "harbor_reward_missing"


def open_board_ledger(directory: Path) -> Ledger:
    """A new ledger for writing."""
    make_ledger(directory).close()
    return Ledger.open(directory / "ledger", key=find_key(directory))


def sit(
    ledger: Ledger,
    trial: str,
    reward: float | None = 1.0,
    *,
    task: str = "add",
    model: str = "provider/one",
    source: str | None = None,
    profile: str = DEFAULT_PROFILE.name,
    group: str | None = None,
    exception: str | None = None,
    findings: tuple[str, ...] = (),
    experiment: str = "experiment-001",
    record: Mapping[str, Any] | None = None,
) -> TrialRow:
    """Seal a trial; `record` is what else its record says, at dotted places."""
    data = record_bytes(
        trial,
        **{
            "task.task_id": task,
            "agent.model": model,
            "evaluation.reward": reward,
            "experiment_id": experiment,
            **(record or {}),
        },
    )
    rewards = None if reward is None else {"reward": float(reward).hex()}
    certificate = {
        "task": task, "rewards": rewards, "basis": "reward file", "exception": exception,
        "group": group,
    }  # fmt: skip
    submission = Submission(
        record=data,
        where=trial,
        score=TrialScore(profile=profile, certificate=certificate),
        reason_code=MISSING if reward is None else None,
        source=Source(kind=source, name=trial) if source else None,
        findings=tuple({"code": code, "message": "seen"} for code in findings),
    )
    ledger.seal_all([submission])
    return find_trial(ledger, f"{experiment}/{trial}")


def certified(reward: float | None) -> dict[str, Any]:
    """What a trial that is marked again has."""
    rewards = None if reward is None else {"reward": float(reward).hex()}
    return {"task": "add", "rewards": rewards, "basis": "reward file", "exception": None}
