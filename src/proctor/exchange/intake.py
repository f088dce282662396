"""Import many trials: each is sealed, was sealed before, or is refused with a reason.

A refused trial does not stop the others, and the counts add up to the number found. No ledger is
created if no trial can be sealed.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import batched
from typing import NoReturn

from proctor.errors import ConflictError, InputError, NotSealedError, RecordError
from proctor.ledger.belonging import Admission
from proctor.ledger.reader import LedgerWriter
from proctor.ledger.sealing import (
    Sealed,
    Secrets,
    Submission,
    check_submission,
    find_by_evidence,
    seal,
)
from proctor.ledger.trial_sealing import find_before, place_rerun

# Trials sealed under one signature.
_TOGETHER = 100
# Errors of a single trial; any other error is the ledger's.
_REFUSALS = (NotSealedError, ConflictError, RecordError)


@dataclass(frozen=True, slots=True)
class Offer:
    """One trial that was found."""

    where: str
    """Its path or name, for messages."""
    submit: Callable[[], Submission]
    """Reads the trial. An InputError refuses only this trial."""


def refuse(error: InputError) -> NoReturn:
    """For an offer of what is known to be unreadable: raise the reason again."""
    raise error


@dataclass(frozen=True, slots=True)
class Refused:
    """A trial that was refused, with the reason."""

    where: str
    message: str
    is_conflict: bool = False
    """Whether it is already sealed with different bytes."""


@dataclass(frozen=True, slots=True)
class Later:
    """A trial that cannot be sealed yet, with the reason."""

    where: str
    message: str


@dataclass(slots=True)
class Reconciliation:
    """The outcome of an import, by trial."""

    sealed: list[Sealed] = field(default_factory=list)
    """Sealed now, or already with the same bytes."""
    refused: list[Refused] = field(default_factory=list)
    reworded: int = 0
    """How many of the known are sealed with the same evidence but another record."""
    later: list[Later] = field(default_factory=list)
    """Left for a later import."""
    notes: list[str] = field(default_factory=list)
    """Notes about the counts."""

    @property
    def found(self) -> int:
        """The number of trials found."""
        return len(self.sealed) + len(self.refused) + len(self.later)

    @property
    def new(self) -> list[Sealed]:
        """Sealed now."""
        return [each for each in self.sealed if each.is_new]

    @property
    def known(self) -> list[Sealed]:
        """Already sealed with the same bytes."""
        return [each for each in self.sealed if not each.is_new]


type Watch = Callable[[int], None]
"""Called after each batch with the number of offers done."""


def seal_offers(
    offers: Iterable[Offer],
    open_ledger: Callable[[], LedgerWriter],
    secrets: Secrets | None = None,
    watch: Watch | None = None,
    *,
    by_evidence: bool = False,
    admission: Admission | None = None,
) -> Reconciliation:
    """Seal the offered trials; opens the ledger once one can be sealed, and closes it.

    With `by_evidence`, a trial that is sealed with the same evidence counts as known even if its
    record differs: for runs that consist only of their evidence and are sometimes renamed. An
    `admission` refuses trials that do not belong to the experiment they name.
    """
    intake = _Intake(open_ledger, secrets or Secrets(), Reconciliation(), by_evidence, admission)
    done = 0
    try:
        for batch in batched(offers, _TOGETHER):
            intake.take(batch)
            done += len(batch)
            if watch is not None:
                watch(done)
    finally:
        if intake.ledger is not None:
            intake.ledger.close()
    return intake.outcome


@dataclass(slots=True)
class _Intake:
    open_ledger: Callable[[], LedgerWriter]
    secrets: Secrets
    outcome: Reconciliation
    by_evidence: bool
    admission: Admission | None
    ledger: LedgerWriter | None = None

    def take(self, batch: tuple[Offer, ...]) -> None:
        submissions = [found for offer in batch if (found := self._read(offer)) is not None]
        if self.ledger is None:
            submissions = [each for each in submissions if self._is_sealable(each)]
            if not submissions:
                return
            self.ledger = self.open_ledger()
        ledger = self.ledger
        submissions = [each for each in submissions if self._belongs(ledger, each)]
        placed = [found for each in submissions if (found := self._place(ledger, each)) is not None]
        self._seal(ledger, placed)

    def _read(self, offer: Offer) -> Submission | None:
        try:
            return offer.submit()
        except InputError as error:
            self.outcome.refused.append(Refused(offer.where, str(error)))
            return None

    def _is_sealable(self, submission: Submission) -> bool:
        try:
            check_submission(submission, self.secrets)
        except InputError as error:
            self.outcome.refused.append(Refused(submission.where, str(error)))
            return False
        return True

    def _belongs(self, ledger: LedgerWriter, submission: Submission) -> bool:
        try:
            if self.admission is not None:
                self.admission.check(ledger, submission)
        except NotSealedError as error:
            self.outcome.refused.append(Refused(submission.where, str(error)))
            return False
        return True

    def _place(self, ledger: LedgerWriter, submission: Submission) -> Submission | None:
        """Return the trial under its final name, or None if it is already sealed.

        A trial that proctor ran again has the name of the earlier one, and replaces it.
        """
        if submission.own_trial is None:
            return submission
        ledger.keep_up()
        before = find_before(ledger, submission, submission.own_trial)
        if before is not None:
            self.outcome.sealed.append(before)
            return None
        placed, supersedes = place_rerun(ledger, submission)
        if supersedes is not None:
            if not self._is_sealable(placed):
                return None
            # Append this first: if we are killed in between, the two are never both counted.
            with ledger.writing():
                ledger.append([supersedes])
        return placed

    def _seal(self, ledger: LedgerWriter, submissions: list[Submission]) -> None:
        """Seal under one signature; if one is refused, seal one by one."""
        if not submissions:
            return
        try:
            self.outcome.sealed += seal(ledger, submissions, self.secrets)
        except _REFUSALS as error:
            self._seal_apart(ledger, submissions, error)

    def _seal_apart(
        self, ledger: LedgerWriter, submissions: list[Submission], error: InputError
    ) -> None:
        if len(submissions) > 1:
            for each in submissions:
                self._seal(ledger, [each])
            return
        is_conflict = isinstance(error, ConflictError)
        if is_conflict and self.by_evidence:
            known = find_by_evidence(ledger, submissions[0])
            if known is not None:
                self.outcome.sealed.append(known)
                self.outcome.reworded += 1
                return
        self.outcome.refused.append(Refused(submissions[0].where, str(error), is_conflict))
