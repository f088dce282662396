"""What aec-bench itself would refuse in a record of ours, so that an export can say it.

It exports nothing and changes nothing.
"""

from collections.abc import Iterator

from proctor.diagnostic import Diagnostic
from proctor.record.model import TrialRecord


def find_foreign(record: TrialRecord) -> list[Diagnostic]:
    """All that keeps aec-bench from reading this record."""
    return list(_find(record))


def _find(record: TrialRecord) -> Iterator[Diagnostic]:
    reward = record.evaluation.reward
    if reward is None:
        message = "evaluation.reward is null (not scored); aec-bench expects a number"
        yield Diagnostic("reward-null", message)
    elif not 0 <= reward <= 1:
        message = f"evaluation.reward is {reward!r}; aec-bench expects 0 to 1"
        yield Diagnostic("reward-out-of-range", message)
    if reward and not record.evaluation.validity.schema_valid:
        # Its rule since 2026-07-27; older versions take such a record.
        message = (
            f"evaluation.reward is {reward!r} although validity.schema_valid is false; "
            "later versions of aec-bench expect 0"
        )
        yield Diagnostic("reward-of-invalid", message, is_problem=False)
