"""The command line, in a process that kills itself at one point of a job's life.

DIE_AT=POINT python -m tests.faults.mortal WORD…      POINT: planned, started, ended, or a phase
"""

import os
import signal

from proctor.cli.main import main
from proctor.cli.running import display
from proctor.harbor.stats import JobStats
from proctor.harbor.trial_result import TrialResult


def die_at(point: str) -> None:
    """Die, if this is the point; the second trial that comes there is the one."""
    if point != os.environ.get("DIE_AT"):
        return
    left = int(os.environ.get("DIE_NTH", "1")) - 1
    os.environ["DIE_NTH"] = str(left)
    if left <= 0:
        os.kill(os.getpid(), signal.SIGKILL)


class Mortal(display.Lines):
    """Looks on, and kills its process."""

    def job_planned(self, n_total: int, n_kept: int) -> None:
        """See Watch."""
        die_at("planned")

    def trial_started(self, trial: str, task: str, attempt: int) -> None:
        """See Watch."""
        die_at("started")

    def phase_began(self, trial: str, phase: str) -> None:
        """See Watch."""
        die_at(phase)

    def trial_ended(self, trial: str, result: TrialResult, stats: JobStats) -> None:
        """See Watch."""
        die_at("ended")


if __name__ == "__main__":
    display.Lines = Mortal  # type: ignore[misc]
    main()
