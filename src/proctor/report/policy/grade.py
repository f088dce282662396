"""The leaderboard grade of one attempt: what keeps its number from standing on a board.

Rests on what boards have of an attempt and nothing else, and is quick enough for all of a ledger.
Which findings are open is what the bundled policy `leaderboard` says, which is read once. That
policy asks for the same as the grade, and for what only the files can tell.
"""

from functools import cache

from proctor.ledger.row import TrialRow
from proctor.record.comparable import UNKNOWN
from proctor.report.policy.document import load_policy
from proctor.report.policy.model import IntegrityRule
from proctor.report.policy.reason import PolicyCode

_UNKNOWN = frozenset({UNKNOWN, "unresolved", ""})
_COMPLETE = "complete"
_NONE: tuple[PolicyCode, ...] = ()


@cache
def load_leaderboard_rule() -> IntegrityRule:
    """What the bundled policy `leaderboard` asks of integrity findings."""
    return load_policy("leaderboard").integrity


def grade_attempt(attempt: TrialRow) -> tuple[PolicyCode, ...]:
    """Why it is not of leaderboard grade; empty: it is.

    A complete record, a known revision of the task, an image by its digest, the verifier's files
    and rules on record, and no open integrity finding: a task whose image was substituted is not
    the one that others sat, and one whose image could not be built was not run at all. That all
    attempts at a task have one revision is for whoever has all of them.
    """
    task, run = attempt.task_conditions, attempt.run_conditions
    if task is None or run is None:
        return (PolicyCode.WITHHELD_TRIAL,)
    is_complete = attempt.completeness == _COMPLETE
    is_pinned = task.has_pinned_image
    is_open = bool(attempt.findings) and bool(find_open(attempt, load_leaderboard_rule()))
    if is_complete and is_pinned and task.verifier and run.profile and not is_open:
        return (PolicyCode.UNKNOWN_TASK,) if task.revision in _UNKNOWN else _NONE
    lacks = (
        (not is_complete, PolicyCode.PARTIAL_RECORD),
        (task.revision in _UNKNOWN, PolicyCode.UNKNOWN_TASK),
        (not is_pinned, PolicyCode.UNPINNED_IMAGE),
        (task.verifier is None, PolicyCode.NO_VERIFIER),
        (run.profile is None, PolicyCode.NO_CERTIFICATE),
        (is_open, PolicyCode.OPEN_FINDING),
    )
    return tuple(code for is_lacking, code in lacks if is_lacking)


def find_open(attempt: TrialRow, rule: IntegrityRule) -> list[str]:
    """Integrity findings that fail under a rule, unless the latest review passed the trial."""
    if attempt.review == "pass":
        return []
    return [code for code in attempt.findings if rule.fails(code)]
