"""Whatever a judge says, only labels of turns that were asked for come of it."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proctor.traces.judge import MOST_REASON, read_answer
from proctor.traces.labels import LABELS
from tests.examples import examples

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["labels", "turn", "label", "confidence", "reason"]), inner, max_size=5
        )
    ),
    max_leaves=12,
)
items = st.fixed_dictionaries(
    {},
    optional={
        "turn": st.integers(0, 6) | st.sampled_from(["1", "2", "٣", "1.0", True, 2.0, None]),
        "label": st.sampled_from([*LABELS, "Execution ", "other", None, 3]),
        "confidence": st.floats() | st.sampled_from(["0.5", None, True, 10**400]),
        "reason": st.text(max_size=500) | st.none(),
    },
)


@settings(max_examples=examples(150), deadline=None)
@given(
    st.text(max_size=80)
    | values.map(json.dumps)
    | st.lists(items, max_size=6).map(lambda found: json.dumps({"labels": found})),
    st.sets(st.integers(1, 6), max_size=4),
)
def test_every_turn_that_was_asked_for_has_a_label_or_a_reason(
    answer: str, asked: set[int]
) -> None:
    judged = read_answer(answer, asked)
    assert judged.labels.keys() | judged.problems.keys() == asked
    assert not judged.labels.keys() & judged.problems.keys()
    for step, label in judged.labels.items():
        assert (label.step, label.label in LABELS) == (step, True)
        assert 0 <= label.confidence <= 1
        assert len(label.cue) <= MOST_REASON


@pytest.mark.parametrize(
    ("given", "taken"),
    [
        (0.3, 0.3),
        (1, 1.0),
        (7, 1.0),
        (10**400, 1.0),
        (-2, 0.0),
        (None, 0.5),
        ("0.9", 0.5),
        (True, 0.5),
    ],
)
def test_a_confidence_is_bounded_and_one_that_is_none_is_half(given: object, taken: float) -> None:
    said = {"labels": [{"turn": 1, "label": "execution", "confidence": given}]}
    assert read_answer(json.dumps(said), [1]).labels[1].confidence == taken
