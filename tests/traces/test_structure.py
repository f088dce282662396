"""Structure: what follows what, loops, and distances that do not grow with length."""

import math
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proctor.traces.behaviour import (
    LabelledRun,
    add_counts,
    compare_labels,
    count_edits,
    count_transitions,
    describe_all,
    describe_trials,
    find_family,
    find_kappa,
    find_loops,
    list_transitions,
    make_matrix,
    measure_distances,
    measure_order,
    measure_transitions,
)
from proctor.traces.labels import LABELS, count_labels, find_dominant
from tests.examples import examples

LETTERS = dict(zip("EVDX", LABELS, strict=True))
sequences = st.text(alphabet="EVDX", min_size=1, max_size=30)


def spell(letters: str) -> tuple[str, ...]:
    return tuple(LETTERS[letter] for letter in letters)


def run(
    trial: str, letters: str, reward: float | None = 1.0, task: str | None = "t"
) -> LabelledRun:
    return LabelledRun(trial=trial, task=task, reward=reward, labels=spell(letters))


@given(st.lists(sequences, max_size=5))
def test_rows_sum_to_1_or_are_not_there(runs: list[str]) -> None:
    together = add_counts(count_transitions(spell(each)) for each in runs)
    for counts, row in zip(together, make_matrix(together), strict=True):
        assert (row is None) == (not any(counts))
        assert row is None or math.isclose(sum(row), 1.0)


def test_loops_show_where_the_matrix_hides_them() -> None:
    short, long = spell("EEV"), spell("EEEEEEEEEEV")
    assert find_loops(long)["execution"] != find_loops(short)["execution"]
    found = find_loops(spell("EEVEEE"))
    assert found["execution"] is not None
    assert (found["execution"].longest, found["execution"].stretches) == (3, 2)
    assert found["deliberation"] is None


def transitions_apart(first: Sequence[str], second: Sequence[str]) -> float:
    """The distance of two runs by what follows what."""
    return measure_transitions(list_transitions(first), list_transitions(second))


@settings(max_examples=examples(60))
@given(sequences, sequences)
def test_distances_lie_between_0_and_1_and_go_both_ways(first: str, second: str) -> None:
    for measure in (transitions_apart, measure_order):
        there = measure(spell(first), spell(second))
        assert 0 <= there <= 1
        assert there == pytest.approx(measure(spell(second), spell(first)))
        assert measure(spell(first), spell(first)) == 0
    assert (transitions_apart(spell(first), spell(second)) == 0) or first != second


def test_a_run_that_is_as_good_and_longer_is_not_far_away() -> None:
    short, long = spell("XDEV" * 2), spell("XDEV" * 20)
    other = spell("EEEEEEEE")
    assert transitions_apart(short, long) < transitions_apart(short, other) / 2
    assert measure_order(spell("XDEV"), spell("XXXDDEEEEEVV")) == 0


def test_a_run_of_one_turn_has_a_distance() -> None:
    assert transitions_apart(spell("E"), spell("E")) == 0
    assert transitions_apart(spell("E"), spell("V")) == 1


@given(sequences, sequences)
def test_edits_are_a_distance(first: str, second: str) -> None:
    assert count_edits(first, second) == count_edits(second, first)
    assert (count_edits(first, second) == 0) == (first == second)
    assert count_edits(first, second) <= max(len(first), len(second))


def test_a_run_is_never_its_own_reference() -> None:
    assert measure_distances([run("a", "XEV")]) == {"a": None}
    found = measure_distances([run("a", "XEV"), run("b", "EEEE"), run("c", "XEV", reward=0.0)])
    assert found["a"] is not None
    assert (found["a"].references, found["a"].basis) == (1, "task")
    assert found["a"].order > 0
    assert found["c"] is not None
    assert found["c"].references == 2


def test_a_task_without_a_good_run_is_held_against_its_family() -> None:
    runs = [
        run("a", "XEV", task="beam/one"),
        run("b", "XEV", reward=0.0, task="beam/two"),
        run("c", "XEV", reward=None, task="alone"),
        run("d", "XEV", task=None),
        run("e", "", task="beam/two"),
    ]
    found = measure_distances(runs)
    assert found["b"] is not None
    assert (found["b"].basis, found["b"].references) == ("family", 1)
    assert [found[name] for name in "acde"] == [None] * 4


@pytest.mark.parametrize(
    ("task", "family"),
    [("a/b/c", "a/b"), ("fix-bug-2", "fix-bug"), ("a/b-c", "a/b"), ("plain", None), ("-x", None)],
)
def test_a_family_is_the_id_up_to_its_last_part(task: str, family: str | None) -> None:
    assert find_family(task) == family


def test_what_is_not_defined_is_null_and_means_say_over_how_many() -> None:
    nothing = describe_all(describe_trials([run("a", "")]))
    assert (nothing.shares, nothing.distance_order, nothing.labelled) == (None, None, 0)
    assert set(nothing.matrix) == {None}
    some = describe_all(describe_trials([run("a", "EV"), run("b", "EV"), run("c", "E", task="x")]))
    assert some.distance_order is not None
    assert (some.distance_order.mean, some.distance_order.trials) == (0.0, 2)
    assert some.dominant == {**dict.fromkeys(LABELS, 0), "execution": 3}


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
