"""Checks the rows of a board against a policy; every experiment of a row is checked as a whole."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from proctor.ledger.reader import LedgerReader
from proctor.ledger.row import TrialRow
from proctor.report.board.model import PolicyMark
from proctor.report.policy.checking import check_submission
from proctor.report.policy.document import load_policy
from proctor.report.policy.from_ledger import opened_experiment, verify_sealed
from proctor.report.policy.verdict import Verdict


class LedgerPolicyCheck:
    """Checks the experiments of a ledger against a policy, each once."""

    def __init__(self, ledger: LedgerReader, policy: str) -> None:
        """Load the policy, and verify the ledger."""
        self._policy = load_policy(policy)
        self.name = self._policy.name
        self._ledger = ledger
        self._sealed = verify_sealed(Path(ledger.log.where))
        self._verdicts: dict[tuple[str, int], Verdict] = {}

    def mark(self, rows: Sequence[TrialRow], size: int) -> PolicyMark:
        """Check the trials of a row at a size of the log."""
        names = {each.name: each.record for each in rows}
        reasons: Counter[str] = Counter()
        codes: dict[str, tuple[str, ...]] = {}
        for experiment in dict.fromkeys(each.experiment_id for each in rows):
            verdict = self._check(experiment, size)
            reasons.update(str(failure.code) for failure in verdict.of_submission())
            for name, failures in verdict.by_trial().items():
                if name in names:
                    codes[names[name]] = tuple(str(failure.code) for failure in failures)
        reasons.update(code for each in codes.values() for code in each)
        return PolicyMark(self.name, dict(sorted(reasons.items())), codes)

    def _check(self, experiment: str, size: int) -> Verdict:
        key = experiment, size
        if key not in self._verdicts:
            with opened_experiment(self._ledger, experiment, self._sealed, at=size) as submission:
                self._verdicts[key] = check_submission(self._policy, submission)
        return self._verdicts[key]
