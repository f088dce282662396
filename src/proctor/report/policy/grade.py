"""The leaderboard grade of a trial: the reasons why it may not count on a leaderboard.

Uses only the row of the trial, and is fast enough for a whole ledger. Which findings are open is
decided by the bundled policy `leaderboard`, which checks the same and more that needs files.
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
    """The integrity rule of the bundled policy `leaderboard`."""
    return load_policy("leaderboard").integrity


def grade_trial(row: TrialRow) -> tuple[PolicyCode, ...]:
    """The reasons why a trial is not of leaderboard grade; empty if it is.

    Required are a complete record, a known revision of the task, a pinned image, the verifier's
    files and the scoring profile on record, and no open integrity finding. A task with a
    substituted image is not the task that others ran, and one whose image could not be built did
    not run. That all trials of a task have the same revision is checked elsewhere.
    """
    task, run = row.task_conditions, row.run_conditions
    if task is None or run is None:
        return (PolicyCode.WITHHELD_TRIAL,)
    is_complete = row.completeness == _COMPLETE
    is_pinned = task.has_pinned_image
    is_open = bool(row.findings) and bool(list_open_findings(row, load_leaderboard_rule()))
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


def list_open_findings(row: TrialRow, rule: IntegrityRule) -> list[str]:
    """Integrity findings that fail under a rule, unless the latest review passed the trial."""
    if row.review == "pass":
        return []
    return [code for code in row.findings if rule.fails(code)]
