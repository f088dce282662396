"""An amount says where it comes from; an unknown one is never 0."""

import math

import msgspec
import pytest

from proctor.errors import RecordError
from proctor.record.cost import (
    CostBasis,
    Coverage,
    Spending,
    Usage,
    find_cost,
    make_cost,
    reported_cost,
    total_cost,
    unknown_cost,
    usage_in,
)
from tests.record.samples import complete

ESTIMATE = CostBasis(kind="estimated", amount_usd=0.5, notes=("n",))


def test_the_providers_amount_goes_before_any_estimate() -> None:
    basis = find_cost([], complete().timestamp, reported_usd=0)
    assert basis == CostBasis(kind="reported", amount_usd=0.0)


@pytest.mark.parametrize(
    ("usage", "reported", "is_noted"),
    [
        (Usage(input=5), 0.0, True),
        (Usage(output=5), 0.0, True),
        (Usage(input=5), 0.1, False),
        (Usage(input=0, output=0), 0.0, False),
        (Usage(), 0.0, False),
    ],
)
def test_nothing_reported_for_tokens_is_noted(
    usage: Usage, reported: float, is_noted: bool
) -> None:
    spending = Spending(usages=(usage,), model=None)
    basis = find_cost([spending], complete().timestamp, reported_usd=reported)
    assert (basis.kind, basis.amount_usd) == ("reported", reported)
    assert bool(basis.notes) == is_noted


@pytest.mark.parametrize("amount", [-0.01, math.nan, math.inf, True])
def test_an_amount_that_is_none_is_refused(amount: float) -> None:
    with pytest.raises(RecordError, match="expected a number from 0 to 1,000,000,000"):
        reported_cost(amount)


def test_the_record_gets_tokens_and_amount() -> None:
    usage = Usage(input=16_000, output=7, cache_read=10_000, cache_write=5000)
    cost = make_cost(usage, ESTIMATE, advisor=Usage(input=3, output=4), advisor_calls=2)
    assert cost.model_dump() == {
        "tokens_in": 16_000,
        "tokens_out": 7,
        "cache_read_tokens": 10_000,
        "cache_write_tokens": 5000,
        "estimated_cost_usd": 0.5,
        "advisor_calls": 2,
        "advisor_input_tokens": 3,
        "advisor_output_tokens": 4,
    }
    assert usage_in(cost) == usage
    assert make_cost(usage, unknown_cost("why")).estimated_cost_usd is None


def test_a_sum_keeps_kinds_apart_and_says_what_it_rests_on() -> None:
    bases = [reported_cost(0.1)] * 10 + [ESTIMATE, unknown_cost("no price")]
    total = total_cost(bases)
    assert total.amount_usd == 1.5
    assert (total.reported_usd, total.estimated_usd) == (1.0, 0.5)
    assert str(total.coverage) == "11 of 12 trials"
    assert total.noted == 1


def test_nothing_known_is_no_sum() -> None:
    total = total_cost([unknown_cost("a"), unknown_cost("b")])
    assert (total.amount_usd, total.coverage) == (None, Coverage(0, 2))
    assert total_cost([]).amount_usd is None


def test_coverage_reads_as_a_phrase() -> None:
    assert str(Coverage(443, 445)) == "443 of 445 trials"
    assert str(Coverage(1, 1)) == "1 of 1 trial"


def test_a_basis_can_be_stored() -> None:
    stored = msgspec.json.encode(ESTIMATE)
    assert msgspec.json.decode(stored, type=CostBasis) == ESTIMATE
