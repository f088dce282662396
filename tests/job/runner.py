"""A runner of a small job as a process of its own, to be killed or interrupted.

python -m tests.job.runner PLACE [run|resume] [AGENT [KEY=VALUE…]]
"""

import os
import signal
import sys
from pathlib import Path

from proctor.harbor.configs import RetryConfig
from proctor.harbor.stats import JobStats
from proctor.harbor.trial_result import TrialResult
from proctor.job.options import LedgerOptions
from tests.job.jobs import NOP, Listener, agent, make_config, resume, run


class Mortal(Listener):
    """Kills its process at one point of a job's life."""

    def __init__(self, point: str | None) -> None:
        super().__init__()
        self.point = point

    def die_at(self, point: str) -> None:
        if point == self.point:
            os.kill(os.getpid(), signal.SIGKILL)

    def job_planned(self, n_total: int, n_kept: int) -> None:
        self.die_at("planned")

    def trial_started(self, trial: str, task: str, attempt: int) -> None:
        self.die_at("started")

    def phase_began(self, trial: str, phase: str) -> None:
        self.die_at(phase)

    def trial_ended(self, trial: str, result: TrialResult, stats: JobStats) -> None:
        self.die_at("ended")

    def trial_retried(
        self, trial: str, attempt: int, result: TrialResult, delay_sec: float
    ) -> None:
        self.die_at("retried")


def main() -> int:
    """Run or resume the job of a place; 130 when it was interrupted."""
    place, verb, *rest = sys.argv[1:]
    kind, *settings = rest or ["nop"]
    kwargs = dict(setting.split("=", 1) for setting in settings)
    sits = NOP if kind == "nop" else agent(kind, **kwargs)
    retry = RetryConfig(max_retries=2, min_wait_sec=0.001)
    config = make_config(
        Path(place, "set"), Path(place, "jobs"), agents=[sits], retry=retry, n_attempts=3
    )
    listener = Mortal(os.environ.get("DIE_AT"))
    if verb == "run":
        outcome = run(config, listener, ledger=LedgerOptions(Path(place, "ledger").absolute()))
    else:
        outcome = resume(Path(place, "jobs", "job"), listener)
    return 130 if outcome.interrupted else 0


if __name__ == "__main__":
    sys.exit(main())
