"""Runs made of a few trials."""

from proctor.ledger.counting import UNSEALED
from proctor.ledger.row import TrialRow
from proctor.report.gate.runs import Run, Trial


def run_of(*rewards: float | None, name: str = "nightly", text: str = "x") -> Run:
    """A run of one group; every name in it is the text, or holds it."""
    trials = [
        Trial(
            row=TrialRow(
                place,
                name,
                f"{text}{place}",
                record="",
                status=UNSEALED,
                task_id=text,
                reward=reward,
                exception=None if reward is not None else text,
                reason_code=None if reward is not None else "harbor_trial_failed",
            ),
            group=text,
            rewards=None if reward is None else {"reward": reward},
        )
        for place, reward in enumerate(rewards)
    ]
    return Run(name=name, kind="job", place="jobs/x", trials=trials, planned=len(trials))
