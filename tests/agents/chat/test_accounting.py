"""Tokens and money of `chat`: counted once, never made up, and said where they come from."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from proctor.agents.chat.accounting import find_names
from proctor.harbor.documents import AgentReport
from proctor.harbor.trial_cost import Reported, make_trial_cost
from proctor.record.cost import CostBasis, parse_spent
from tests.agents.chat.server import USAGE, refuses, runs, says, serving
from tests.agents.chat.talks import Talk, talk

NOW = datetime(2026, 11, 16, tzinfo=UTC)


def spent(root: Path, *usages: Any, **changes: Any) -> Talk:
    """A run whose answers say that they took so much."""
    *first, last = usages
    model = changes.pop("reported", "gpt-4o-2024-08-06")
    script = [runs("true", usage=usage, model=model) for usage in first]
    with serving(*script, says("Done.", usage=last, model=model)) as up:
        return talk(root, up, **changes)


def basis_of(*steps: Talk) -> CostBasis:
    """What a record says of the cost of a trial with these steps."""
    contexts = [run.context for run in steps]
    accounts = tuple(
        AgentReport(
            context.n_input_tokens,
            context.n_cache_tokens,
            context.n_output_tokens,
            context.cost_usd,
            context.metadata,
        )
        for context in contexts
    )
    _, basis = make_trial_cost(Reported(accounts), None, "openai/gpt-4o", NOW)
    return basis


def test_the_endpoints_own_amount_goes_before_any_price(tmp_path: Path) -> None:
    run = spent(tmp_path, {**USAGE, "cost": 0.25}, {**USAGE, "cost": 0.5})
    assert run.context.cost_usd == 0.75
    assert (basis_of(run).kind, basis_of(run).notes) == ("reported", ())


def test_without_one_the_reported_models_price_is_taken_and_that_is_said(tmp_path: Path) -> None:
    run = spent(tmp_path, USAGE, model="some-alias")
    # 60 of 2.5 USD, 40 cached of 1.25, 10 of 10, each a million.
    assert run.context.cost_usd == pytest.approx(0.0003)
    basis = basis_of(run)
    assert (basis.kind, basis.price_source) == ("estimated", "genai-prices")
    assert [match.asked for match in basis.matched] == ["gpt-4o-2024-08-06"]


def test_one_estimate_among_amounts_makes_the_sum_an_estimate(tmp_path: Path) -> None:
    run = spent(tmp_path, {**USAGE, "cost": 0.25}, USAGE)
    basis = basis_of(run)
    assert basis.kind == "estimated"
    assert basis.amount_usd == pytest.approx(0.2503)
    assert "1 of 2 amounts are the provider's own" in basis.notes


def test_a_model_without_a_price_costs_nobody_knows_what(tmp_path: Path) -> None:
    run = spent(tmp_path, USAGE, reported="my-own-model")
    assert (run.context.cost_usd, run.context.n_input_tokens) == (None, 100)
    basis = basis_of(run)
    # The record does not take the price of the name that was asked for instead.
    assert (basis.kind, basis.amount_usd) == ("unknown", None)
    assert "my-own-model" in str(basis.why_unknown)


def test_what_is_estimated_of_a_step_is_estimated_of_the_trial(tmp_path: Path) -> None:
    first = spent(tmp_path / "1", USAGE)
    second = spent(tmp_path / "2", {**USAGE, "cost": 0.25})
    basis = basis_of(first, second)
    assert basis.kind == "estimated"
    assert basis.amount_usd == pytest.approx(0.2503)


def test_what_is_unknown_of_a_step_is_unknown_of_the_trial(tmp_path: Path) -> None:
    first = spent(tmp_path / "1", USAGE)
    second = spent(tmp_path / "2", USAGE, reported="my-own-model")
    basis = basis_of(first, second)
    # Not the price of the name that was asked for, for both.
    assert (basis.kind, basis.amount_usd) == ("unknown", None)
    assert "my-own-model" in str(basis.why_unknown)


@pytest.mark.parametrize("silent", [None, {}, {"prompt_tokens": None}])
def test_an_answer_that_says_nothing_makes_the_sum_unknown_and_not_zero(
    tmp_path: Path, silent: Any
) -> None:
    run = spent(tmp_path, USAGE, silent)
    context = run.context
    assert (context.n_input_tokens, context.n_output_tokens, context.cost_usd) == (None, None, None)
    assert (run.told["reasoning_tokens"], run.told["turns"]) == (None, 2)


@pytest.mark.parametrize(
    ("usage", "problem"),
    [
        ({"prompt_tokens": -1}, "input is -1 tokens"),
        ({"prompt_tokens": 1.5}, "input is 1.5 tokens"),
        ({"prompt_tokens": True}, "input is True tokens"),
        (
            {"prompt_tokens": 1, "prompt_tokens_details": {"cached_tokens": 9}},
            "9 cached tokens (read 9, written unknown) of 1 input token",
        ),
    ],
)
def test_figures_that_cannot_be_are_not_taken_and_that_is_said(
    tmp_path: Path, usage: dict[str, Any], problem: str
) -> None:
    assert problem in str(parse_spent(usage).problem)
    run = spent(tmp_path, usage)
    assert run.context.n_input_tokens is None
    (said,) = run.of("assistant")
    assert said.metadata is not None
    assert problem in said.metadata["atif"]["metrics"]["extra"]["refused"]


def test_an_amount_is_taken_also_where_the_tokens_cannot_be(tmp_path: Path) -> None:
    run = spent(tmp_path, {"prompt_tokens": -1, "cost": 0.5})
    assert (run.context.n_input_tokens, run.context.cost_usd) == (None, 0.5)


@pytest.mark.parametrize(
    ("usage", "amount"),
    [
        ({"cost": 0.5, "is_byok": False, "cost_details": {"upstream_inference_cost": 0.5}}, 0.5),
        ({"cost": 0.5, "is_byok": True, "cost_details": {"upstream_inference_cost": 9}}, 9.5),
        ({"cost": 0.5, "is_byok": True}, None),
    ],
)
def test_a_key_of_ones_own_costs_what_its_provider_charges_too(
    usage: dict[str, Any], amount: float | None
) -> None:
    assert parse_spent(usage).cost_usd == amount


def test_an_amount_says_that_some_requests_got_no_answer(tmp_path: Path) -> None:
    with serving(refuses(500), says("Done.")) as up:
        run = talk(tmp_path, up)
    note = "1 request got no answer; their cost, if any, is not included"
    assert note in basis_of(run).notes


@pytest.mark.parametrize("cost", [-1, "1", True, float("1e300"), 10**400])
def test_an_amount_that_is_none_is_not_taken(cost: object) -> None:
    assert parse_spent({"prompt_tokens": 1, "cost": cost}).cost_usd is None


@pytest.mark.parametrize(
    ("reported", "asked", "names"),
    [
        ("gpt-4o-2024-08-06", "gpt-4o", ["gpt-4o-2024-08-06"]),
        ("gpt-4o", "openai/gpt-4o", ["openai/gpt-4o", "gpt-4o"]),
        ("openai/gpt-4o", "other/x", ["openai/gpt-4o"]),
        (None, "openai/gpt-4o", ["openai/gpt-4o"]),
    ],
)
def test_a_price_is_looked_for_under_the_model_that_answered(
    reported: str | None, asked: str, names: list[str]
) -> None:
    assert list(find_names(reported, asked)) == names


@pytest.mark.parametrize(
    "said",
    [
        "x",
        {"kind": "estimated", "amount_usd": 2.0},
        {"kind": "estimated"},
        {"kind": "reported", "amount_usd": 1.0},
    ],
)
def test_a_basis_that_does_not_fit_the_amount_is_not_believed(said: Any) -> None:
    account = AgentReport(1, 0, 1, 1.0, {"cost_basis": said})
    _, basis = make_trial_cost(Reported((account,)), None, "m", NOW)
    assert (basis.kind, basis.amount_usd) == ("reported", 1.0)


def test_an_estimate_below_zero_is_no_amount() -> None:
    said = {"cost_basis": {"kind": "estimated", "amount_usd": -1.0}}
    account = AgentReport(1, 0, 1, -1.0, said)
    cost, basis = make_trial_cost(Reported((account,)), None, "m", NOW)
    assert (cost, basis.kind) == (None, "unknown")
    assert "expected a number from 0 to 1,000,000,000" in (basis.why_unknown or "")
