"""Which attempts count, and why the others do not: one rule for every number.

    superseded    another trial stands in for it
    withheld      its record was taken out: nobody can say what it scored
    set aside     of an earlier plan of its job, as the job's own files say
    begun again   an earlier attempt, kept beside the trial that counts: `<trial>.attempt-N`

A kept attempt whose own trial is not there, or was withheld, counts, as it does in a claim. Nothing
is added up here.
"""

from collections import Counter
from collections.abc import Iterable, Sequence

from proctor.ledger.claims.standing import KEPT, begun_again_as
from proctor.report.attempt import Attempt

SUPERSEDED, WITHHELD, SET_ASIDE = "superseded", "withheld", "set aside"
BEGUN_AGAIN = "begun again"

_IN_NO_NUMBER = frozenset({SUPERSEDED, WITHHELD, SET_ASIDE})


def find_begun_again(attempts: Iterable[Attempt]) -> frozenset[str]:
    """Names of attempts that were kept when their own trial, which is there too, was run again.

    One that is in no number for another reason is not among them: every trial has one state.
    """
    listed = list(attempts)
    # Hardly any trial is one, and boards ask for a hundred thousand.
    kept = [each for each in listed if KEPT in each.trial and each.status not in _IN_NO_NUMBER]
    if not kept:
        return frozenset()
    there = {each.name for each in listed if each.status != WITHHELD}
    return frozenset(
        each.name
        for each in kept
        if (trial := begun_again_as(each.trial)) and f"{each.experiment}/{trial}" in there
    )


def counted_attempts(attempts: Sequence[Attempt]) -> list[Attempt]:
    """Those that are in the numbers, in the order given."""
    begun_again = find_begun_again(attempts)
    counted = [each for each in attempts if each.status not in _IN_NO_NUMBER]
    if not begun_again:
        return counted
    return [each for each in counted if each.name not in begun_again]


def leave_out(attempts: Sequence[Attempt]) -> tuple[tuple[Attempt, ...], dict[str, int]]:
    """The attempts that count, and how many do not, by why."""
    counted = counted_attempts(attempts)
    left_out = Counter(each.status for each in attempts if each.status in _IN_NO_NUMBER)
    if begun_again := len(attempts) - len(counted) - left_out.total():
        left_out[BEGUN_AGAIN] = begun_again
    return tuple(counted), dict(sorted(left_out.items()))
