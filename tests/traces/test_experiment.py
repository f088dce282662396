"""Many trials: means over those that have the number, never with a 0 for what is missing."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.traces.causes import Case, find_cause
from proctor.traces.summary import TraceSummary, summarise
from proctor.traces.trial_summary import (
    TrialSummary,
    average,
    summarise_experiment,
    summarise_trial,
)
from tests.record.samples import made
from tests.traces.samples import ran, said


def traced(*commands: tuple[str, int, str]) -> TraceSummary:
    entries = [
        entry
        for step, (command, code, text) in enumerate(commands, 1)
        for entry in [said(step), *ran(step, command, code, text)]
    ]
    return msgspec.structs.replace(summarise(entries), file="trajectory.jsonl", source="trajectory")


def test_a_trial_without_a_trace_is_in_no_mean_of_a_trace() -> None:
    trials = [
        summarise_trial("a", [traced(("x", 0, ""), ("y", 1, "bad 1"))], made()),
        summarise_trial("b", [], made()),
    ]
    found = summarise_experiment(trials)
    turns = found.averages["turns"]
    assert (found.trials, found.with_trace, turns.n, turns.mean) == (2, 1, 1, 2.0)
    assert found.averages["tokens_in"].n == 2
    assert found.averages["wall_seconds"] == average([])
    assert found.sources == {"none": 1, "trajectory": 1}
    assert found.error_rate == 0.5


def test_first_errors_that_differ_in_numbers_are_one() -> None:
    trials = [
        summarise_trial(name, [traced(("make", 2, f"Traceback\nerror at line {name}"))])
        for name in ("1", "22")
    ]
    trials.append(summarise_trial("3", [traced(("ls", 1, "other"))]))
    first, second = summarise_experiment(trials).first_errors
    assert (first.trials, first.text, first.example) == (2, "error at line 1", "1")
    assert (second.trials, second.text) == (1, "other")


def test_causes_limits_and_disagreements_are_counted() -> None:
    told = {"outputs.agent_result": {"turns_used": 9, "max_turns": 9}}
    trial = summarise_trial("a", [traced(("x", 0, ""))], made(**told))
    assert trial.turns_disagree
    trial = msgspec.structs.replace(trial, cause=find_cause(Case(reward=0.0, limit=trial.limit)))
    found = summarise_experiment([trial])
    assert (found.limits, found.causes) == ({"turns": 1}, {"limit": 1})
    assert (found.cause_rules, found.turns_disagree) == ({"limit": 1}, 1)


def test_no_trial_at_all_has_no_means() -> None:
    found = summarise_experiment([])
    assert (found.trials, found.error_rate) == (0, None)
    assert all(each == average([]) for each in found.averages.values())


@given(st.lists(st.none() | st.floats(-1e6, 1e6), max_size=20))
def test_mean_and_median_lie_between_the_least_and_the_most(values: list[float | None]) -> None:
    found = average(values)
    known = [value for value in values if value is not None]
    assert found.n == len(known)
    if found.mean is not None and found.median is not None:
        assert min(known) - 1e-6 <= found.mean <= max(known) + 1e-6
        assert min(known) <= found.median <= max(known)


# One trial


def test_the_record_knows_the_tokens_and_the_trace_where_it_does_not() -> None:
    entry = said(1, metadata={"tokens": {"call_input": 50, "output": 5}})
    part = msgspec.structs.replace(summarise([entry]), file="t")
    known = summarise_trial("a", [part], made())
    assert (known.tokens.source, known.tokens.input) == ("record", 1200)
    assert known.tokens_in_per_turn == 1200
    unknown = summarise_trial("a", [part], made(cost=None))
    assert (unknown.tokens.source, unknown.tokens.input) == ("trace", 50)


def test_turns_that_an_agent_reports_stand_beside_those_that_were_counted() -> None:
    part = traced(("x", 0, ""), ("y", 0, ""))

    def told(result: object) -> TrialSummary:
        return summarise_trial("a", [part], made(**{"outputs.agent_result": result}))

    assert (told({"turns_used": 2}).turns_reported, told({"turns_used": 2}).turns_disagree) == (
        2,
        False,
    )
    assert told({"turns_used": "7"}).turns_disagree
    assert told({"metadata": {"turns": 2}}).turns_reported == 2
    assert told({"turns_used": "many"}).turns_reported is None
    assert not told(None).turns_disagree


def test_rates_by_turn_need_both() -> None:
    trial = summarise_trial("a", [], made())
    assert trial.tokens_in_per_turn is None
    assert trial.tokens.input == pytest.approx(1200)
