"""Tokens and money of a harbor trial."""

import json
import re
from pathlib import Path

import genai_prices
import pytest

from tests.exchange.trials import (
    PRICED,
    Made,
    copy_trial,
    edit_model,
    edit_result,
    make,
    write_trajectory,
)


def test_the_costs_of_steps_are_added_up(tmp_path: Path) -> None:
    trial = copy_trial(tmp_path, "10-multistep-oracle-mounted", "ms-final")
    steps = json.loads((trial / "result.json").read_text())["step_results"]
    for step in steps:
        step["agent_result"] = {"n_input_tokens": 10, "n_output_tokens": 2, "cost_usd": 0.5}
    edit_result(trial, step_results=steps)
    made = make(trial)
    assert tokens_of(made) == (10 * len(steps), 2 * len(steps), None)
    assert made.cost_basis.amount_usd == 0.5 * len(steps)
    # A result of the whole trial is for its steps too.
    edit_result(trial, agent_result={"n_input_tokens": 7, "cost_usd": 0.25})
    whole = make(trial)
    assert tokens_of(whole) == (7, None, None)
    assert whole.cost_basis.amount_usd == 0.25


@pytest.mark.parametrize("model", [None, PRICED])
def test_a_step_that_says_nothing_makes_the_whole_unknown(
    tmp_path: Path, model: str | None
) -> None:
    trial = copy_trial(tmp_path, "10-multistep-oracle-mounted", "ms-final")
    steps = json.loads((trial / "result.json").read_text())["step_results"]
    for step in steps:
        step["agent_result"] = {"n_input_tokens": 10, "n_output_tokens": 2, "cost_usd": 0.5}
    steps[-1]["agent_result"] = None
    edit_result(trial, step_results=steps, config__agent__model_name=model)
    made = make(trial)
    assert len(steps) > 1
    assert made.record.cost is None
    assert (made.cost_basis.kind, made.cost_basis.why_unknown) == (
        "unknown",
        f"step {steps[-1]['step_name']} says neither tokens nor cost, others do",
    )
    # A result of the whole trial stands for all of them.
    edit_result(trial, agent_result={"n_input_tokens": 7, "n_output_tokens": 1, "cost_usd": 0.25})
    whole = make(trial)
    assert tokens_of(whole) == (7, 1, None)
    assert whole.cost_basis.amount_usd == 0.25


def test_nothing_paid_for_tokens_is_kept_and_noted(tmp_path: Path) -> None:
    trial = copy_trial(tmp_path)
    edit_result(trial, agent_result__cost_usd=0.0)
    made = make(trial)
    assert (made.cost_basis.kind, made.cost_basis.amount_usd) == ("reported", 0.0)
    (note,) = made.cost_basis.notes
    assert note.startswith("0 USD is reported for tokens that were counted")


def test_costs_that_are_too_large_to_add_are_not_known(tmp_path: Path) -> None:
    trial = copy_trial(tmp_path, "10-multistep-oracle-mounted", "ms-final")
    steps = json.loads((trial / "result.json").read_text())["step_results"]
    for step in steps:
        step["agent_result"] = {"cost_usd": 1.7e308}
    edit_result(trial, step_results=steps)
    made = make(trial)
    assert made.record.cost is None
    assert "more than a number can hold" in (made.cost_basis.why_unknown or "")


def tokens_of(made: Made) -> tuple[int | None, int | None, int | None]:
    cost = made.record.cost
    assert cost is not None
    return (cost.tokens_in, cost.tokens_out, cost.cache_read_tokens)


def test_a_reported_amount_is_kept_and_cached_tokens_are_input(tmp_path: Path) -> None:
    made = make(copy_trial(tmp_path))
    assert tokens_of(made) == (230, 25, 100)
    assert (made.cost_basis.kind, made.cost_basis.amount_usd) == ("reported", 0.00175)
    assert made.record.cost is not None
    assert made.record.cost.estimated_cost_usd == 0.00175
    assert made.record.cost.advisor_calls is None


def test_an_amount_is_estimated_from_listed_prices(tmp_path: Path) -> None:
    trial = copy_trial(tmp_path)
    edit_model(trial, PRICED)
    edit_result(trial, agent_result__cost_usd=None)
    made = make(trial)
    basis = made.cost_basis
    # 3, 0.30 and 15 USD for a million tokens of input, cached input and output.
    assert basis.amount_usd == pytest.approx((130 * 3 + 100 * 0.3 + 25 * 15) / 1e6, rel=1e-9)
    assert (basis.kind, basis.price_source) == ("estimated", "genai-prices")
    assert basis.price_version == genai_prices.__version__
    assert (basis.price_date, len(basis.price_table_sha256 or "")) == ("2026-11-15", 64)
    assert made.record.cost is not None
    assert made.record.cost.estimated_cost_usd == basis.amount_usd
    assert made.record.agent.model == PRICED
    # Harbor tells cache writes from other input nowhere, and they cost 3.75.
    (note,) = basis.notes
    assert note.startswith("the agent's cache writes are not known")
    assert note.endswith("the estimate may be low")


def test_an_unknown_model_has_no_amount(tmp_path: Path) -> None:
    trial = copy_trial(tmp_path)
    edit_result(trial, agent_result__cost_usd=None)
    made = make(trial)
    assert made.cost_basis.kind == "unknown"
    assert made.cost_basis.why_unknown
    assert made.record.cost is not None
    assert made.record.cost.estimated_cost_usd is None
    assert made.record.cost.tokens_in == 230


def test_tokens_of_several_models_have_no_amount(tmp_path: Path) -> None:
    trial = copy_trial(tmp_path)
    trace = trial / "agent" / "trajectory.json"
    edit_result(trial, config__agent__model_name=PRICED, agent_result__cost_usd=None)
    document = json.loads(trace.read_text())
    agents = [step for step in document["steps"] if step["source"] == "agent"]
    for number, step in enumerate(agents):
        step["model_name"] = f"{PRICED}{'-b' * number}"
    if len(agents) == 1:
        second = {**agents[0], "step_id": len(document["steps"]) + 1, "model_name": "other"}
        document["steps"].append(second)
    trace.write_text(json.dumps(document))
    made = make(trial)
    assert made.record.agent.model == PRICED
    assert made.cost_basis.why_unknown == (
        "several models answered, and their tokens are not counted separately"
    )


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"agent_result__n_cache_tokens": 231}, "231 cached tokens .* of 230 input tokens"),
        ({"agent_result__n_output_tokens": -1}, "output is -1 tokens"),
        ({"agent_result__cost_usd": -0.5}, "reported cost is -0.5 USD"),
    ],
)
def test_figures_that_cannot_be_leave_cost_null(
    tmp_path: Path, changes: dict[str, object], why: str
) -> None:
    trial = copy_trial(tmp_path)
    edit_result(trial, **changes)
    made = make(trial)
    assert made.record.cost is None
    assert made.cost_basis.kind == "unknown"
    assert re.search(why, made.cost_basis.why_unknown or "")


def advice(tokens: object) -> dict[str, object]:
    metadata = {"advisor": True, "advisor_tokens": tokens}
    return {"step": 1, "role": "assistant", "content": "asked", "metadata": metadata}


def test_questions_to_an_advisor_are_counted(tmp_path: Path) -> None:
    trial = copy_trial(tmp_path)
    asked = [advice({"input": 5, "output": 6}), advice({"input": 50, "output": 60})]
    write_trajectory(
        trial, *asked, {"step": 2, "role": "assistant", "metadata": {"advisor": False}}
    )
    cost = make(trial).record.cost
    assert cost is not None
    assert (cost.advisor_calls, cost.advisor_input_tokens, cost.advisor_output_tokens) == (
        2,
        55,
        66,
    )
    assert cost.tokens_in == 230
    # The advisor's model is not known, so that the estimate covers the agent alone.
    edit_result(trial, config__agent__model_name=PRICED, agent_result__cost_usd=None)
    made = make(trial)
    assert made.cost_basis.kind == "estimated"
    assert made.record.cost is not None
    assert made.record.cost.estimated_cost_usd == made.cost_basis.amount_usd
    assert "the advisor's part is not in the amount" in "\n".join(made.cost_basis.notes)


@pytest.mark.parametrize("tokens", ["many", None, {"input": "5"}, [1]])
def test_a_question_counts_whatever_is_said_of_its_tokens(tmp_path: Path, tokens: object) -> None:
    trial = copy_trial(tmp_path)
    write_trajectory(trial, advice(tokens))
    cost = make(trial).record.cost
    assert cost is not None
    assert (cost.advisor_calls, cost.advisor_input_tokens) == (1, None)


def test_an_advisor_s_tokens_that_cannot_be_leave_cost_null(tmp_path: Path) -> None:
    trial = copy_trial(tmp_path)
    write_trajectory(trial, advice({"input": -5, "output": 6}))
    made = make(trial)
    assert made.record.cost is None
    assert (made.cost_basis.why_unknown or "").startswith("input is -5 tokens")


def calls(trial: Path) -> tuple[int | None, int | None]:
    cost = make(trial).record.cost
    assert cost is not None
    return cost.advisor_calls, cost.advisor_input_tokens


@pytest.mark.parametrize("mark", ["false", "true", 1, [True], {"a": 1}])
def test_only_true_marks_a_question(tmp_path: Path, mark: object) -> None:
    trial = copy_trial(tmp_path)
    metadata = {"advisor": mark, "advisor_tokens": {"input": 5, "output": 6}}
    write_trajectory(trial, {"step": 1, "role": "tool_result", "metadata": metadata})
    assert calls(trial) == (0, None)


def test_a_call_and_its_result_are_one_question(tmp_path: Path) -> None:
    trial = copy_trial(tmp_path)
    asked = advice({"input": 5, "output": 6})
    both = [asked | {"role": "tool_call"}, asked | {"role": "tool_result"}]
    write_trajectory(trial, *both)
    assert calls(trial) == (1, 5)
    write_trajectory(trial, *both, *both)
    assert calls(trial) == (2, 10)
    write_trajectory(trial, both[0], both[0])
    assert calls(trial) == (2, 10)
