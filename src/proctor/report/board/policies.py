"""Rows of a board before a policy: every experiment that a row rests on is checked as a whole."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from proctor.ledger.reader import LedgerReader
from proctor.ledger.row import TrialRow
from proctor.report.board.model import PolicyMark
from proctor.report.policy.checking import check_attempts
from proctor.report.policy.document import load_policy
from proctor.report.policy.from_ledger import opened_experiment, verify_as_asked
from proctor.report.policy.verdict import Verdict


class PolicyDesk:
    """A policy, and what it says of the experiments of a ledger; each is looked at once."""

    def __init__(self, ledger: LedgerReader, policy: str) -> None:
        """Load a policy, and verify the ledger whose trials are held against it.

        Raises:
            PolicyError: it cannot be read.
        """
        self._policy = load_policy(policy)
        self.name = self._policy.name
        self._ledger = ledger
        self._sealed = verify_as_asked(Path(ledger.where))
        self._verdicts: dict[tuple[str, int], Verdict] = {}

    def mark(self, attempts: Sequence[TrialRow], size: int) -> PolicyMark:
        """How the trials of a row stand at a size of the log.

        Raises:
            DamageError: the ledger does not hold what it should.
        """
        names = {each.name: each.record for each in attempts}
        reasons: Counter[str] = Counter()
        codes: dict[str, tuple[str, ...]] = {}
        for experiment in dict.fromkeys(each.experiment_id for each in attempts):
            verdict = self._check(experiment, size)
            reasons.update(str(failure.code) for failure in verdict.beside_trials())
            for name, failures in verdict.by_trial().items():
                if name in names:
                    codes[names[name]] = tuple(str(failure.code) for failure in failures)
        reasons.update(code for each in codes.values() for code in each)
        return PolicyMark(self.name, dict(sorted(reasons.items())), codes)

    def _check(self, experiment: str, size: int) -> Verdict:
        key = experiment, size
        if key not in self._verdicts:
            with opened_experiment(self._ledger, experiment, self._sealed, at=size) as submission:
                self._verdicts[key] = check_attempts(self._policy, submission)
        return self._verdicts[key]
