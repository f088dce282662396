"""Observers of a running job, such as the progress display."""

from proctor.harbor.stats import JobStats
from proctor.harbor.trial_result import TrialResult


class Watch:
    """Receives the progress of a job, in its event loop; each call must return at once.

    This one ignores it; subclasses override what they show.
    """

    def job_planned(self, n_total: int, n_kept: int) -> None:
        """The job has this many trials, of which some are done already."""

    def trial_started(self, trial: str, task: str, attempt: int) -> None:
        """A trial begins."""

    def phase_began(self, trial: str, phase: str) -> None:
        """A trial entered another phase."""

    def models_used(self, trial: str, n_requests: int, cost_usd: float | None) -> None:
        """The agent of a trial has made so many requests to models; the cost may be unknown."""

    def trial_ended(self, trial: str, result: TrialResult, stats: JobStats) -> None:
        """A trial ended and counts; `stats` are the job's statistics so far."""

    def trial_retried(
        self, trial: str, attempt: int, result: TrialResult, delay_sec: float
    ) -> None:
        """An attempt failed and does not count: the trial will be retried."""

    def said(self, sentence: str) -> None:
        """A message for the user."""
