"""Attempts made of a few facts."""

from typing import Any

from proctor.ledger.row import TrialRow


def attempt(**told: Any) -> TrialRow:
    """An attempt of which only what is told is known."""
    facts: dict[str, Any] = {
        "seq": 1, "experiment_id": "nightly", "trial_id": "t1", "record": "0" * 64,
        "status": "sealed", "task_id": "a", "agent": "oracle", "completeness": "complete",
    }  # fmt: skip
    return TrialRow(**(facts | told))
