"""The results of the checks of a policy."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from proctor.report.policy.model import Policy
from proctor.report.policy.reason import Check, PolicyCode


@dataclass(frozen=True, slots=True)
class Failure:
    """One violation of the policy."""

    code: PolicyCode
    subject: str | None
    """The trial as EXPERIMENT/TRIAL, or a task; None: the submission as a whole."""
    message: str
    is_trial: bool = True
    """Whether the subject is a trial."""


@dataclass(frozen=True, slots=True)
class Unchecked:
    """Something that a check could not determine."""

    why: str
    is_whole: bool = False
    """Whether the whole check could not be made."""


@dataclass(frozen=True, slots=True)
class CheckOutcome:
    """The result of one check."""

    check: Check
    is_asked: bool
    """Whether the policy requires it."""
    failures: tuple[Failure, ...] = ()
    unchecked: tuple[str, ...] = ()
    """What could not be determined, one sentence each."""
    is_checked: bool = True
    """Whether anything could be determined."""

    @property
    def is_passed(self) -> bool:
        """Whether there is no failure."""
        return not self.failures


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of all checks."""

    policy: Policy
    submission: str
    n_trials: int
    """Trials that count."""
    outcomes: Sequence[CheckOutcome]
    counts: dict[str, int]
    """Trials by status, and withholdings that name no trial."""
    unchecked: Sequence[str] = field(default=())
    """What cannot be checked in a submission of this kind."""

    @property
    def is_passed(self) -> bool:
        """Whether no check failed."""
        return all(outcome.is_passed for outcome in self.outcomes)

    @property
    def failures(self) -> list[Failure]:
        """All failures, in the order of the checks."""
        return [failure for outcome in self.outcomes for failure in outcome.failures]

    @property
    def codes(self) -> frozenset[PolicyCode]:
        """All distinct reasons."""
        return frozenset(failure.code for failure in self.failures)

    def by_trial(self) -> dict[str, list[Failure]]:
        """The failures of each trial that has any."""
        found: dict[str, list[Failure]] = {}
        for failure in self.failures:
            if failure.is_trial and failure.subject is not None:
                found.setdefault(failure.subject, []).append(failure)
        return found

    def of_submission(self) -> list[Failure]:
        """Failures of tasks, and of the submission as a whole."""
        return [each for each in self.failures if not (each.is_trial and each.subject)]
