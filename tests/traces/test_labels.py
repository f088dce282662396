"""The most frequent label, and how far two sets of labels agree."""

import pytest

from proctor.traces.labels import (
    LABELS,
    compare_labels,
    count_labels,
    find_dominant,
    find_kappa,
    find_shares,
)

LETTERS = dict(zip("EVDX", LABELS, strict=True))


def spell(letters: str) -> tuple[str, ...]:
    return tuple(LETTERS[letter] for letter in letters)


def test_a_share_of_nothing_is_null() -> None:
    assert find_shares(count_labels([])) is None
    assert find_shares({"execution": 1, "verification": 3}) == {
        "execution": 0.25, "verification": 0.75,
    }  # fmt: skip


def test_of_equal_counts_the_first_in_order_dominates() -> None:
    assert find_dominant(count_labels(spell("XV"))) == "verification"
    assert find_dominant(count_labels([])) is None


def test_kappa_is_agreement_beyond_chance() -> None:
    assert find_kappa([[20, 5], [10, 15]]) == pytest.approx(0.4)
    assert compare_labels(spell("EVDX"), spell("EVDX")).kappa == 1.0
    assert compare_labels(spell("EEVV"), spell("VVEE")).kappa == pytest.approx(-1.0)


def test_kappa_is_null_where_chance_alone_agrees() -> None:
    assert compare_labels([], []).kappa is None
    assert compare_labels(spell("EEE"), spell("EEE")).kappa is None
