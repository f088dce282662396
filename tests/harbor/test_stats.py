"""Many trials to JobStats: groups, counters, usage, metrics and pass@k, in harbor's figures."""

import json
import math
from typing import Any

import pytest

from proctor.harbor.render import render_json
from proctor.harbor.stats import (
    ADHOC,
    Group,
    GroupStats,
    JobStats,
    Trial,
    TrialTable,
    Usage,
    assemble_final,
    assemble_live,
    builtin_metrics,
    dataset_of_key,
    evals_key,
    stats_document,
    total_usage,
)
from proctor.reward.metric import RewardColumn
from proctor.reward.steps import Verdict

MEAN = {"ds": builtin_metrics(["mean"]), ADHOC: builtin_metrics(["mean"])}


def trial(name: str, rewards: Any = None, **changes: Any) -> Trial:
    """A trial of task a by agent ag on dataset ds."""
    verdict = None if rewards is None else Verdict(rewards)
    return Trial(name, **{"task": "a", "agent": "ag", "source": "ds", "verdict": verdict} | changes)


def final(*trials: Trial) -> JobStats:
    return assemble_final(TrialTable(trials), MEAN)


def group(stats: JobStats) -> GroupStats:
    (entry,) = stats.evals.values()
    return entry


# Names of groups


@pytest.mark.parametrize(
    ("names", "key"),
    [
        (("ag", None, "ds"), "ag__ds"),
        (("ag", "", "ds"), "ag__ds"),
        (("ag", "m", "ds"), "ag__m__ds"),
        (("a__b", "m", "my__ds"), "a__b__m__my__ds"),
    ],
)
def test_a_group_is_named_after_agent_model_and_dataset(
    names: tuple[str, str | None, str], key: str
) -> None:
    assert evals_key(*names) == key


@pytest.mark.parametrize(
    ("key", "dataset"),
    [
        ("ag__ds", "ds"),
        ("ag__m__ds", "ds"),
        ("ag__my__ds", "ds"),
        ("ag__m___ds", "_ds"),
        ("ag__ds__", ""),
        ("ag_____adhoc", "_adhoc"),
        ("plain", "plain"),
    ],
)
def test_the_dataset_of_a_group_is_what_follows_the_last_double_underscore(
    key: str, dataset: str
) -> None:
    assert dataset_of_key(key) == dataset


@pytest.mark.parametrize("source", [None, ""])
def test_a_trial_without_a_dataset_is_adhoc(source: str | None) -> None:
    assert trial("1", source=source).dataset == "adhoc"
    assert list(final(trial("1", source=source)).evals) == ["ag__adhoc"]


def test_a_trial_names_the_group_it_is_counted_in() -> None:
    assert trial("t").evals_key == "ag__ds"
    assert trial("t", model="m", source=None).evals_key == "ag__m__adhoc"
    assert list(TrialTable([trial("t", model="m")]).groups) == [trial("t", model="m").evals_key]


def test_groups_stand_in_the_order_they_first_occur() -> None:
    stats = final(trial("1", model="z"), trial("2", agent="b"), trial("3", model="z"), trial("4"))
    assert list(stats.evals) == ["ag__z__ds", "b__ds", "ag__ds"]


def test_names_that_collide_in_one_key_are_one_group() -> None:
    stats = final(
        trial("1", {"reward": 1}, agent="a", model="b", source="ds"),
        trial("2", {"reward": 0}, agent="a__b", source="ds"),
    )
    assert list(stats.evals) == ["a__b__ds"]
    assert group(stats).reward_stats == {"reward": {1: ["1"], 0: ["2"]}}
    assert group(stats).metrics == [{"mean": 0.5}]


# Counters


def test_a_job_without_trials_is_empty() -> None:
    assert final() == JobStats()
    assert assemble_live(TrialTable(), MEAN) == JobStats()


def test_errored_trials_are_completed_and_cancelled_ones_are_errored() -> None:
    stats = final(
        trial("1", {"reward": 1}),
        trial("2", exception="RuntimeError"),
        trial("3", {"reward": 1}, exception="CancelledError"),
        trial("4", exception="RuntimeError"),
        trial("5", exception="CancelledError", agent="b"),
        trial("6"),
    )
    assert stats.n_completed_trials == 6
    assert (stats.n_errored_trials, stats.n_cancelled_trials) == (4, 2)
    entry = stats.evals["ag__ds"]
    assert (entry.n_trials, entry.n_errors) == (2, 3)
    assert list(entry.exception_stats.items()) == [
        ("RuntimeError", ["2", "4"]),
        ("CancelledError", ["3"]),
    ]
    assert stats.evals["b__ds"].n_errors == 1


def test_a_group_counts_exceptions_and_rewards_apart() -> None:
    both = trial("t1", {"r": 1}, exception="AgentTimeoutError")
    others = [trial("t2", {}), trial("t3", exception="RuntimeError"), trial("t4", {"r": 0})]
    (group,) = TrialTable([both, *others]).groups.values()
    assert (group.n_errored, group.n_rewarded) == (2, 2)
    assert (Group("ag__ds").n_errored, Group("ag__ds").n_rewarded) == (0, 0)


def test_only_the_exact_name_is_a_cancellation() -> None:
    assert final(trial("1", exception="cancellederror")).n_cancelled_trials == 0
    assert final(trial("1", exception="")).n_errored_trials == 1


def test_a_trial_counts_when_it_has_rewards_even_none_of_them() -> None:
    stats = final(trial("1", {}), Trial("2", "a", "ag", source="ds", verdict=Verdict(None)))
    assert (group(stats).n_trials, group(stats).reward_stats) == (1, {})
    assert group(stats).metrics == [{"mean": 0.0}]


@pytest.mark.parametrize(
    ("total", "running", "pending"), [(5, 0, 3), (5, 2, 1), (5, 3, 0), (1, 0, 0), (5, 9, 0)]
)
def test_pending_is_what_is_neither_completed_nor_running(
    total: int, running: int, pending: int
) -> None:
    stats = JobStats(n_completed_trials=2, n_cancelled_trials=7, n_retries=9)
    stats.count_progress(total, running=running)
    assert (stats.n_running_trials, stats.n_pending_trials) == (running, pending)
    assert (stats.n_cancelled_trials, stats.n_retries) == (7, 0)


def test_progress_sets_cancelled_and_retries_when_told() -> None:
    stats = JobStats(n_cancelled_trials=7)
    stats.count_progress(0, cancelled=0, retries=3)
    assert (stats.n_cancelled_trials, stats.n_retries, stats.n_running_trials) == (0, 3, 0)


# Rewards


def test_trials_are_listed_by_key_and_value_in_the_order_they_occur() -> None:
    stats = final(
        trial("1", {"b": 0.5, "a": 1}),
        trial("2", {"a": 0}),
        trial("3"),
        trial("4", {"a": 1, "b": 0.25}),
    )
    counted = group(stats).reward_stats
    assert json.dumps(counted) == (
        '{"b": {"0.5": ["1"], "0.25": ["4"]}, "a": {"1": ["1", "4"], "0": ["2"]}}'
    )


@pytest.mark.parametrize("more", [[], [trial("x", {"other": 1, "reward": 9})]])
@pytest.mark.parametrize(
    ("first", "second", "text"),
    [(1, 1.0, "1"), (1.0, 1, "1.0"), (-0.0, 0, "-0.0"), (0, -0.0, "0")],
)
def test_equal_values_share_a_key_and_the_first_decides_its_text(
    more: list[Trial], first: float, second: float, text: str
) -> None:
    stats = final(trial("1", {"reward": first}), trial("2", {"reward": second}), *more)
    (key, names), *_ = group(stats).reward_stats["reward"].items()
    assert (repr(key), names) == (text, ["1", "2"])


@pytest.mark.parametrize("more", [[], [trial("x")]])
def test_one_nan_shares_a_key_and_two_do_not(more: list[Trial]) -> None:
    same = final(trial("1", {"reward": math.nan}), trial("2", {"reward": math.nan}), *more)
    assert '"reward":{"nan":["1","2"]}' in render_json(stats_document(same))
    nan, other = float("nan"), float("nan")
    apart = final(trial("1", {"reward": nan}), trial("2", {"reward": other}), *more)
    assert '"reward":{"nan":["1"],"nan":["2"]}' in render_json(stats_document(apart))


# Tokens and money


def test_what_nobody_reported_is_null_and_zero_is_not() -> None:
    stats = final(trial("1"), trial("2", usage=Usage(n_cache_tokens=0, cost_usd=0.0)))
    assert (stats.n_input_tokens, stats.n_output_tokens) == (None, None)
    assert (stats.n_cache_tokens, repr(stats.cost_usd)) == (0, "0.0")


def test_tokens_of_all_groups_are_added() -> None:
    stats = final(
        trial("1", usage=Usage(1, 10, 100, None)),
        trial("2", agent="b", usage=Usage(2, None, 200, None)),
        trial("3", usage=Usage(None, 30, 2**70, None)),
    )
    totals = (stats.n_input_tokens, stats.n_cache_tokens, stats.n_output_tokens)
    assert totals == (3, 40, 300 + 2**70)
    assert stats.cost_usd is None


def test_costs_are_folded_one_by_one_and_not_summed() -> None:
    costs = [0.1] * 10
    stats = final(*(trial(str(n), usage=Usage(cost_usd=cost)) for n, cost in enumerate(costs)))
    assert stats.cost_usd == 0.9999999999999999
    assert sum(costs) != stats.cost_usd


def test_usage_of_steps_is_added_where_it_was_reported() -> None:
    parts = [Usage(1, None, 0, 0.1), Usage(2, None, None, 0.2), Usage(None, None, 5, 0.3)]
    assert total_usage(parts) == Usage(3, None, 5, 0.1 + 0.2 + 0.3)
    assert total_usage([Usage(1, 2, 3, 4.0)]) == Usage(1, 2, 3, 4.0)


# Metrics and pass@k


def test_metrics_of_a_finished_job_follow_the_end_of_the_groups_name() -> None:
    metrics = {"my__ds": builtin_metrics(["mean"]), "ds": builtin_metrics(["max", "min"])}
    table = TrialTable([trial("1", {"reward": 1}, source="my__ds")])
    assert group(assemble_final(table, metrics)).metrics == [{"max": 1}, {"min": 1}]
    assert group(assemble_live(table, metrics)).metrics == [{"mean": 1.0}]
    assert group(assemble_final(table, {"my__ds": metrics["my__ds"]})).metrics == []
    assert group(assemble_live(table, {"ds": metrics["ds"]})).metrics == []


def test_metrics_of_a_running_job_follow_the_latest_trials_dataset() -> None:
    metrics = {"b__c": builtin_metrics(["sum"]), "c": builtin_metrics(["max"])}
    first = trial("1", {"reward": 1}, agent="a", source="b__c")
    second = trial("2", {"reward": 1}, agent="a__b", source="c")
    assert group(assemble_live(TrialTable([first, second]), metrics)).metrics == [{"max": 1}]
    assert group(assemble_live(TrialTable([second, first]), metrics)).metrics == [{"sum": 2}]


def test_a_running_group_whose_trial_was_taken_away_has_no_metrics() -> None:
    table = TrialTable()
    table.groups["ag__ds"] = Group("ag__ds")
    assert group(assemble_live(table, MEAN)) == GroupStats()


def test_a_trial_without_rewards_is_a_zero_in_the_metrics() -> None:
    assert group(final(trial("1", {"reward": 1}), trial("2"))).metrics == [{"mean": 0.5}]


def test_a_metric_can_be_anything_that_takes_the_column() -> None:
    def count(column: RewardColumn) -> dict[str, object]:
        return {"trials": len(column), "keys": list(column.keys)}

    table = TrialTable([trial("1", {"reward": 1}), trial("2")])
    stats = assemble_final(table, {"ds": [count]})
    assert group(stats).metrics == [{"trials": 2, "keys": ["reward"]}]


def test_pass_at_k_is_of_finished_jobs_only() -> None:
    trials = [trial(str(n), {"reward": n % 2}) for n in range(5)]
    assert group(final(*trials)).pass_at_k == {2: 0.7, 4: 1.0, 5: 1.0}
    assert group(assemble_live(TrialTable(trials), MEAN)).pass_at_k == {}


def test_pass_at_k_is_by_task_and_by_group() -> None:
    trials = [
        trial(f"{task}{n}", {"reward": n}, task=task, agent=agent)
        for task in ("a", "b")
        for n in (0, 1)
        for agent in ("ag", "b")
    ]
    stats = final(*trials, trial("x", {"reward": 0.5}, agent="b"))
    assert stats.evals["ag__ds"].pass_at_k == {2: 1.0}
    assert stats.evals["b__ds"].pass_at_k == {}


# The document


def test_the_document_has_harbors_keys_in_harbors_order() -> None:
    document = stats_document(final(trial("1", {"reward": 1.0})))
    assert list(document) == [
        "n_completed_trials",
        "n_errored_trials",
        "n_running_trials",
        "n_pending_trials",
        "n_cancelled_trials",
        "n_retries",
        "evals",
        "n_input_tokens",
        "n_cache_tokens",
        "n_output_tokens",
        "cost_usd",
    ]
    assert render_json(document["evals"]) == (
        '{"ag__ds":{"n_trials":1,"n_errors":0,"metrics":[{"mean":1.0}],"pass_at_k":{},'
        '"reward_stats":{"reward":{"1.0":["1"]}},"exception_stats":{}}}'
    )


def test_a_table_keeps_its_columns_side_by_side() -> None:
    table = TrialTable([trial("1", {"reward": 1}, task="t"), trial("2", exception="E")])
    entry = table.groups["ag__ds"]
    assert (entry.key, entry.dataset, table.n_trials) == ("ag__ds", "ds", 2)
    assert (entry.names, entry.tasks) == (["1", "2"], ["t", "a"])
    assert (entry.column.rewards, entry.exceptions) == ([{"reward": 1}, None], {"E": ["2"]})
    assert (table.tokens, table.costs) == (([], [], []), [])
