"""Who looks on while a job runs: the command line draws, a test counts."""

from typing import Protocol

from proctor.harbor.stats import JobStats
from proctor.harbor.trial_result import TrialResult


class Watch(Protocol):
    """What a job tells of its progress, in its own event loop; each call returns at once."""

    def job_planned(self, n_total: int, n_kept: int) -> None:
        """The job has so many trials, of which so many are done already."""

    def trial_started(self, trial: str, task: str, attempt: int) -> None:
        """A trial has a slot and begins."""

    def phase_began(self, trial: str, phase: str) -> None:
        """A trial is in another phase."""

    def trial_ended(self, trial: str, result: TrialResult, stats: JobStats) -> None:
        """A trial ended and counts; `stats` is the job so far."""

    def trial_retried(
        self, trial: str, attempt: int, result: TrialResult, delay_sec: float
    ) -> None:
        """An attempt failed and does not count: the trial will be begun again."""

    def said(self, sentence: str) -> None:
        """Something that the person should know."""


class NullWatch:
    """Nobody looks."""

    def job_planned(self, n_total: int, n_kept: int) -> None:
        """See Watch."""

    def trial_started(self, trial: str, task: str, attempt: int) -> None:
        """See Watch."""

    def phase_began(self, trial: str, phase: str) -> None:
        """See Watch."""

    def trial_ended(self, trial: str, result: TrialResult, stats: JobStats) -> None:
        """See Watch."""

    def trial_retried(
        self, trial: str, attempt: int, result: TrialResult, delay_sec: float
    ) -> None:
        """See Watch."""

    def said(self, sentence: str) -> None:
        """See Watch."""
