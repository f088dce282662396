"""The leaderboard grade of one attempt: what keeps its number from standing on a board.

Rests on what boards have of an attempt and nothing else: pure, and quick enough for all of a
ledger. The policy `leaderboard` asks for the same, and for what only the files can tell.
"""

from proctor.record.comparable import UNKNOWN
from proctor.report.attempt import Attempt
from proctor.report.policy.reason import PolicyCode

_UNKNOWN = frozenset({UNKNOWN, "unresolved", ""})
_COMPLETE = "complete"
_NONE: tuple[PolicyCode, ...] = ()


def grade_attempt(attempt: Attempt) -> tuple[PolicyCode, ...]:
    """Why it is not of leaderboard grade; empty: it is.

    A complete record, a known revision of the task, an image by its digest, and the verifier's
    files and rules on record. An attempt without a reward may have had no image: one that could
    not be built. That all attempts at a task have one revision is for whoever has all of them.
    """
    task, run = attempt.task_conditions, attempt.run_conditions
    if task is None or run is None:
        return (PolicyCode.WITHHELD_TRIAL,)
    is_complete = attempt.completeness == _COMPLETE
    is_pinned = attempt.reward is None or task.has_pinned_image
    if is_complete and is_pinned and task.verifier and run.profile:
        return (PolicyCode.UNKNOWN_TASK,) if task.revision in _UNKNOWN else _NONE
    lacks = (
        (not is_complete, PolicyCode.PARTIAL_RECORD),
        (task.revision in _UNKNOWN, PolicyCode.UNKNOWN_TASK),
        (not is_pinned, PolicyCode.UNPINNED_IMAGE),
        (task.verifier is None, PolicyCode.NO_VERIFIER),
        (run.profile is None, PolicyCode.NO_CERTIFICATE),
    )
    return tuple(code for is_lacking, code in lacks if is_lacking)
