"""Attempts made of a few facts."""

from typing import Any

from proctor.ledger.row import TrialRow


def attempt(**told: Any) -> TrialRow:
    """An attempt of which only what is told is known."""
    facts: dict[str, Any] = {
        "experiment": "nightly", "trial": "t1", "record": "0" * 64, "status": "sealed",
        "dataset": "d", "task": "a", "agent": "oracle", "revision": None, "model": None,
        "configuration": None, "run_conditions": None, "task_conditions": None, "reward": None,
        "reason": None, "completeness": "complete", "source": None, "when": None, "cost_usd": None,
        "tokens_in": None, "tokens_out": None, "advisor_calls": None, "seconds": None,
        "findings": (),
    }  # fmt: skip
    return TrialRow(**(facts | told))
