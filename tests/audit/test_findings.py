"""Differences and what cannot be shown fail an audit, notes do not."""

import pytest

from proctor.audit.findings import Kind


@pytest.mark.parametrize("kind", Kind)
def test_a_kind_is_named_after_its_constant(kind: Kind) -> None:
    assert kind == kind.name.lower().replace("_", "-")


@pytest.mark.parametrize("kind", Kind)
def test_a_kind_is_one_of_three(kind: Kind) -> None:
    assert [kind.is_difference, kind.is_unshown, kind.is_note].count(True) == 1


def test_what_leaves_the_numbers_standing_is_a_note() -> None:
    notes = {kind for kind in Kind if kind.is_note}
    assert notes == {
        Kind.UNFINISHED_JOB,
        Kind.UNFINISHED_TRIAL,
        Kind.LOST_ATTEMPTS,
        Kind.KEPT_ATTEMPTS,
        Kind.EARLIER_PLAN,
        Kind.REFUSED_TASK,
        Kind.INTEGRITY_FINDING,
        Kind.RESUMED_ORDER,
        Kind.UNUSED_REWARD_FILE,
        Kind.IDENTICAL_COMMANDS,
        Kind.COMMANDS_LIKE_SOLUTION,
        Kind.INFERRED_METRIC,
        Kind.NO_METRICS_YET,
        Kind.LOST_NUMBER,
        Kind.NO_PLAN,
        Kind.LAGGING_RESULT,
        Kind.ORDER_DEPENDENT,
    }
