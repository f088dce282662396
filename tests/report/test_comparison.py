"""Two sides: what is compared, what is refused, and what is said aloud."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proctor.errors import InputError
from proctor.record.comparable import RunConditions, TaskConditions
from proctor.report.comparison.compared import Comparison, Terms, compare_sides
from proctor.report.comparison.document import render_comparison
from proctor.report.comparison.sides import make_side
from proctor.report.page.blocks import Intervals, Paragraph
from proctor.report.page.text import render_text
from proctor.report.runs import Run
from proctor.report.statistics.intervals import CONFIDENCE
from tests.examples import examples
from tests.report.attempts import make_run

COMMON, UNLIKE = Terms(common=True), Terms(allow_unlike=True)


def compare(a: Run, b: Run, terms: Terms | None = None) -> Comparison:
    return compare_sides(make_side("A", a), make_side("B", b), terms or Terms(), None)


def told(compared: Comparison, width: int | None = None) -> str:
    return "\n".join(render_text(render_comparison(compared), width))


def test_every_task_counts_once_and_the_table_is_sorted_by_difference() -> None:
    a = make_run("a", {"x": [1, 1, 1], "y": [0], "z": [1]})
    b = make_run("b", {"x": [0], "y": [1, 0], "z": [1]})
    found = compare(a, b)
    assert found.paired.difference == pytest.approx((1 - 0.5 + 0) / 3)
    assert (found.paired.wins, found.paired.ties, found.paired.losses) == (1, 1, 1)
    assert [each.task for each in found.tasks] == ["x", "z", "y"]


def test_a_pair_of_0_and_1_is_tested_by_mcnemar_and_the_method_is_named() -> None:
    tasks = [f"t{at}" for at in range(6)]
    found = compare(make_run("a", {t: [1] for t in tasks}), make_run("b", {t: [0] for t in tasks}))
    assert (found.paired.method, found.paired.p_value) == ("mcnemar-exact", 2 / 64)
    assert "0.0312 (exact McNemar test)" in told(found)


def test_what_is_not_scored_is_no_zero_unless_harbors_rule_says_so() -> None:
    found = compare(
        make_run("a", {"x": [1, None], "y": [None]}), make_run("b", {"x": [1], "y": [1]})
    )
    assert found.paired.difference == 0
    assert found.paired.only_b == ["y"]
    assert found.paired_errors_as_zero is not None
    assert found.paired_errors_as_zero.difference == pytest.approx(-0.75)
    text = told(found)
    assert "1 task scored in B only, not compared: y." in text
    assert "3 = 1 scored + 2 missing" in text
    assert "2 harbor_reward_missing" in text


def test_a_host_that_changed_between_runs_is_named() -> None:
    a, b = (
        make_run(
            name,
            {"x": [1]},
            task_conditions=TaskConditions(revision="r-x", image=f"host:debian-12@sha256:{name}"),
        )
        for name in ("a", "b")
    )
    with pytest.raises(InputError, match="own system, whose packages changed"):
        compare(a, b)


def test_other_tasks_are_refused_or_left_out_aloud() -> None:
    a, b = make_run("a", {"x": [1], "only-a": [0]}), make_run("b", {"x": [1], "only-b": [1]})
    with pytest.raises(InputError) as refused:
        compare(a, b)
    assert str(refused.value) == (
        "A and B are not alike: 1 task only in A (only-a); 1 task only in B (only-b). "
        "--common compares the tasks that both have at one revision (1)"
    )
    found = compare(a, b, COMMON)
    assert [each.task for each in found.tasks] == ["x"]
    assert "! Left out, only in A: 1 task (only-a)." in told(found)
    assert found.a.scores.account.counted == 1


def test_another_revision_is_another_task() -> None:
    a = make_run("a", {"x": [1], "y": [1]})
    other = TaskConditions(revision="new", image="i@sha256:0")
    b = Run(
        name="b",
        is_sealed=True,
        trials=(
            *make_run("b", {"x": [1]}).trials,
            *make_run("b", {"y": [0]}, task_conditions=other).trials,
        ),
    )
    with pytest.raises(InputError, match=r"1 task of another revision \(y\)"):
        compare(a, b)
    assert [each.task for each in compare(a, b, COMMON).tasks] == ["x"]
    found = compare(a, b, UNLIKE)
    assert found.revised == ("y",)
    assert "1 task of different revisions, compared on request: y." in told(found)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        (
            {"run_conditions": RunConditions(backend="sandbox", profile="p")},
            "backend: A has docker, B has sandbox",
        ),
        (
            {
                "run_conditions": RunConditions(
                    backend="docker", profile="p", changed={"timeout_multiplier": 2.0}
                )
            },
            "limits of the run: A has the default, B has timeout_multiplier 2.0",
        ),
        (
            {"task_conditions": TaskConditions(revision="r-x", image="other@sha256:1")},
            "image of 1 task (x): A has i@sha256:0, B has other@sha256:1",
        ),
        ({"recorded_dataset": "e"}, "dataset: A has d, B has e"),
    ],
)
def test_unlike_conditions_are_refused_or_stand_on_top(
    changes: dict[str, Any], sentence: str
) -> None:
    a, b = make_run("a", {"x": [1]}), make_run("b", {"x": [1]}, **changes)
    with pytest.raises(InputError) as refused:
        compare(a, b)
    assert sentence in str(refused.value)
    assert "--allow-unlike" in str(refused.value)
    with pytest.raises(InputError):
        compare(a, b, COMMON)
    lines = told(compare(a, b, UNLIKE), 300).split("\n")
    assert lines[3] == f"! Different conditions, compared on request: {sentence}."


def test_what_only_one_side_has_on_record_is_a_note_and_no_difference() -> None:
    limits = TaskConditions(revision="r-x", image="i@sha256:0", limits={"agent_timeout_sec": 60.0})
    a = make_run("a", {"x": [1]}, task_conditions=limits)
    found = compare(a, make_run("b", {"x": [1]}, recorded_dataset=None))
    assert found.unlike == ()
    assert found.notes == (
        "the dataset of B is not on record",
        "not on record on both sides: the limits of 1 task (x)",
    )


def test_no_task_in_common_is_refused_whatever_is_allowed() -> None:
    both = Terms(common=True, allow_unlike=True)
    with pytest.raises(InputError, match="no task in common: A has x; B has y"):
        compare(make_run("a", {"x": [1]}), make_run("b", {"y": [1]}), both)
    other = TaskConditions(revision="new", image="i@sha256:0")
    with pytest.raises(InputError, match="every task that A and B have in common is of another"):
        compare(make_run("a", {"x": [1]}), make_run("b", {"x": [1]}, task_conditions=other), both)


def test_several_groups_are_listed_and_one_is_chosen_by_part_of_its_name() -> None:
    mixed = Run(
        name="a",
        is_sealed=True,
        trials=(
            *make_run("a", {"x": [1]}, model="base").trials,
            *make_run("a", {"x": [0]}, model="base+lora", configuration="d" * 12).trials,
        ),
    )
    with pytest.raises(InputError) as refused:
        make_side("A", mixed)
    assert "2 agents and models match; pass --a with a part of one name: " in str(refused.value)
    assert "agent · base · cccccccccccc (1 trial)" in str(refused.value)
    assert make_side("B", mixed, "lora").group.model == "base+lora"
    assert make_side("B", mixed, "base").group.model == "base", "a whole name goes before a part"
    with pytest.raises(InputError, match="no agent or model matches 'gpt'"):
        make_side("A", mixed, "gpt")


def test_partial_records_are_compared_and_labelled() -> None:
    found = compare(
        make_run("base", {"x": [0]}, status="diagnostic"),
        make_run("adapter", {"x": [1]}, status="diagnostic", configuration="d" * 12),
    )
    assert "! Diagnostic: 1 of the 1 trial of A have partial records" in told(found)


def test_a_cost_that_nobody_knows_is_unknown() -> None:
    found = compare(
        make_run("a", {"x": [1], "y": [1]}, cost_usd=None),
        make_run("b", {"x": [1], "y": [1]}, cost_usd=0.0),
    )
    cost = next(each for each in found.measures if each.name == "cost")
    assert (cost.a.mean, cost.a.n, cost.b.mean, cost.difference) == (None, 0, 0.0, None)
    assert "unknown: known for 0 of 2" in told(found)


def test_few_tasks_are_said_to_be_few_and_no_colour_claims_what_chance_may_do() -> None:
    found = compare(make_run("a", {"x": [1], "y": [0]}), make_run("b", {"x": [0], "y": [1]}))
    assert "! Only 2 tasks: intervals from so few tasks are too narrow." in told(found)


def make_sides(n_tasks: int) -> Comparison:
    """A is better at every task, by another amount at each."""
    tasks = [f"t{at}" for at in range(n_tasks)]
    return compare(
        make_run("a", {task: [1] for task in tasks}),
        make_run("b", {task: [at / 10] for at, task in enumerate(tasks)}),
    )


@pytest.mark.parametrize("n_tasks", [1, 2, 5])
def test_too_few_tasks_for_a_conclusion_are_no_verdict(n_tasks: int) -> None:
    found = make_sides(n_tasks)
    assert found.paired.p_value is not None
    assert found.paired.p_value > 1 - CONFIDENCE, "chance alone does that more often"
    first = next(each for each in render_comparison(found).blocks if isinstance(each, Paragraph))
    assert first.tone == "warn"
    assert first.text.startswith(
        f"Not enough tasks for a conclusion: {n_tasks}, and at least 6 are needed. A - B is +"
    )
    spreads = [each for each in render_comparison(found).blocks if isinstance(each, Intervals)]
    assert [row.tone for each in spreads for row in each.rows] == ["", "", ""]


def test_six_tasks_can_be_a_verdict() -> None:
    found = make_sides(6)
    assert found.paired.p_value is not None
    assert found.paired.p_value < 1 - CONFIDENCE
    first = next(each for each in render_comparison(found).blocks if isinstance(each, Paragraph))
    assert first.tone == "verdict"
    assert first.text.startswith("A scores higher: A - B is +0.75, 95% interval ")


REWARDS = st.dictionaries(
    st.sampled_from(["x", "y", "z", "<b>"]),
    st.lists(st.none() | st.floats(-2, 2), min_size=1, max_size=3),
    min_size=1,
)


@settings(max_examples=examples(30))
@given(REWARDS, REWARDS, st.integers(40, 220))
def test_any_two_runs_that_share_a_task_are_told_in_any_width(
    a: dict[str, list[float | None]], b: dict[str, list[float | None]], width: int
) -> None:
    if not a.keys() & b.keys():
        return
    found = compare(make_run("a", a), make_run("b", b), COMMON)
    account = found.a.scores.account
    assert account.counted == sum(len(a[task]) for task in a if task in b)
    assert account.scored + account.zero_by_missing == account.counted
    assert told(found, width)
