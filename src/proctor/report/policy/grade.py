"""The leaderboard grade of one attempt: what keeps its number from standing on a board.

Rests on what boards have of an attempt and nothing else: pure, and quick enough for all of a
ledger. The policy `leaderboard` asks for the same, and for what only the files can tell.
"""

from proctor.record.comparable import UNKNOWN_REVISION
from proctor.report.attempt import Attempt
from proctor.report.policy.reason import PolicyCode

_UNKNOWN = frozenset({UNKNOWN_REVISION, "unresolved", ""})
_COMPLETE = "complete"
_NONE: tuple[PolicyCode, ...] = ()


def grade_attempt(attempt: Attempt) -> tuple[PolicyCode, ...]:
    """Why it is not of leaderboard grade; empty: it is.

    A complete record, a known revision of the task, an image by its digest, and the verifier's
    files and rules on record. That all attempts at a task have one revision is for whoever has all
    of them to see.
    """
    task, run = attempt.task_conditions, attempt.run_conditions
    if task is None or run is None:
        return (PolicyCode.WITHHELD_TRIAL,)
    is_complete = attempt.completeness == _COMPLETE
    if is_complete and task.has_pinned_image and task.verifier and run.profile:
        return (PolicyCode.UNKNOWN_TASK,) if task.revision in _UNKNOWN else _NONE
    lacks = (
        (not is_complete, PolicyCode.PARTIAL_RECORD),
        (task.revision in _UNKNOWN, PolicyCode.UNKNOWN_TASK),
        (not task.has_pinned_image, PolicyCode.UNPINNED_IMAGE),
        (task.verifier is None, PolicyCode.NO_VERIFIER),
        (run.profile is None, PolicyCode.NO_CERTIFICATE),
    )
    return tuple(code for is_lacking, code in lacks if is_lacking)
