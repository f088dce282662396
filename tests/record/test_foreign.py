"""What aec-bench would refuse is listed, and only that."""

import pytest
from pydantic import ValidationError

from proctor.record.read import render_record
from proctor.record.rules import find_foreign
from tests.record import seed
from tests.record.samples import made


@pytest.mark.parametrize(
    ("reward", "code"),
    [(None, "reward-null"), (1.5, "reward-out-of-range"), (-0.1, "reward-out-of-range")],
)
def test_a_reward_that_it_cannot_hold_is_listed(reward: float | None, code: str) -> None:
    record = made(**{"evaluation.reward": reward})
    assert [note.code for note in find_foreign(record)] == [code]
    with pytest.raises(ValidationError):
        seed.render(render_record(record))


@pytest.mark.parametrize("reward", [0, 0.5, 1])
def test_any_other_record_is_taken(reward: float) -> None:
    record = made(**{"evaluation.reward": reward})
    assert find_foreign(record) == []
    assert seed.render(render_record(record)) == render_record(record)


def test_a_later_rule_is_a_note() -> None:
    record = made(**{"evaluation.validity.schema_valid": False})
    assert [(note.code, note.is_problem) for note in find_foreign(record)] == [
        ("reward-of-invalid", False)
    ]
