"""What came of every check of a policy."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from proctor.report.policy.model import Policy
from proctor.report.policy.reason import Check, PolicyCode


@dataclass(frozen=True, slots=True)
class Failure:
    """One thing that is not as the policy asks."""

    code: PolicyCode
    subject: str | None
    """The trial as EXPERIMENT/TRIAL, or a task; None: the submission as a whole."""
    message: str
    is_trial: bool = True
    """Whether the subject is a trial."""


@dataclass(frozen=True, slots=True)
class Unchecked:
    """What a check could not tell."""

    why: str
    is_whole: bool = False
    """Whether it is all that the check is for."""


@dataclass(frozen=True, slots=True)
class CheckOutcome:
    """What came of one check."""

    check: Check
    is_asked: bool
    """Whether the policy asks for it at all."""
    failures: tuple[Failure, ...] = ()
    unchecked: tuple[str, ...] = ()
    """What it could not tell, one sentence each."""
    is_checked: bool = True
    """Whether it could tell anything."""

    @property
    def is_passed(self) -> bool:
        """Whether nothing is wrong, as far as could be told."""
        return not self.failures


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a submission is what a policy asks for."""

    policy: Policy
    submission: str
    n_trials: int
    """Trials that numbers are made of."""
    outcomes: Sequence[CheckOutcome]
    counts: dict[str, int]
    """Trials by what became of them, and what was withheld without naming one."""
    unchecked: Sequence[str] = field(default=())
    """What no check could tell of such a submission."""

    @property
    def is_passed(self) -> bool:
        """Whether no check failed."""
        return all(outcome.is_passed for outcome in self.outcomes)

    @property
    def failures(self) -> list[Failure]:
        """All that is not as asked, in the order of the checks."""
        return [failure for outcome in self.outcomes for failure in outcome.failures]

    @property
    def codes(self) -> frozenset[PolicyCode]:
        """Every reason, once."""
        return frozenset(failure.code for failure in self.failures)

    def by_trial(self) -> dict[str, list[Failure]]:
        """The failures of each trial that has some."""
        found: dict[str, list[Failure]] = {}
        for failure in self.failures:
            if failure.is_trial and failure.subject is not None:
                found.setdefault(failure.subject, []).append(failure)
        return found

    def beside_trials(self) -> list[Failure]:
        """Failures of tasks, and of the submission as a whole."""
        return [each for each in self.failures if not (each.is_trial and each.subject)]
