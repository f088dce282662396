"""The figures of a job: live ones as trials end, final ones in the order of the plan."""

import asyncio
import math

import pytest

from proctor.errors import JobError
from proctor.harbor.stats import Trial, TrialTable, builtin_metrics
from proctor.job.job import ResultFile
from proctor.job.options import Counts
from proctor.job.progress import Progress
from proctor.reward.metric import RewardColumn
from proctor.reward.steps import Verdict


def scored(name: str, value: float) -> Trial:
    return Trial(name, name[0], "nop", source="set", verdict=Verdict({"reward": value}))


def failed(name: str, exception: str) -> Trial:
    return Trial(name, name[0], "nop", source="set", exception=exception)


def make_progress(n_planned: int, names: tuple[str, ...] = ("mean",)) -> Progress:
    metrics = {"set": builtin_metrics(names)}
    return Progress(n_planned, metrics, live_metrics=metrics)


def test_live_names_are_in_the_order_they_ended_and_final_ones_in_that_of_the_plan() -> None:
    progress = make_progress(3)
    for index, name in ((2, "c1"), (0, "a1"), (1, "b1")):
        progress.begin()
        progress.end(index, scored(name, 1.0))
    live = progress.stats.evals["nop__set"]
    assert live.reward_stats == {"reward": {1.0: ["c1", "a1", "b1"]}}
    assert live.pass_at_k == {}
    final = progress.final_stats().evals["nop__set"]
    assert final.reward_stats == {"reward": {1.0: ["a1", "b1", "c1"]}}
    assert live.metrics == final.metrics == [{"mean": 1.0}]


def test_a_trial_that_is_run_again_counts_once() -> None:
    progress = make_progress(2)
    progress.begin()
    progress.leave()
    progress.n_retries += 1
    progress.begin()
    assert (progress.stats.n_completed_trials, progress.stats.n_running_trials) == (0, 1)
    assert (progress.stats.n_pending_trials, progress.stats.n_retries) == (1, 1)
    progress.end(0, scored("a1", 0.5))
    progress.refresh_metrics()
    assert progress.stats.evals["nop__set"].metrics == [{"mean": 0.5}]
    assert progress.stats.n_errored_trials == 0
    assert progress.final_stats().n_retries == 1


def test_one_that_left_no_result_is_pending_again() -> None:
    progress = make_progress(1)
    progress.begin()
    progress.leave()
    assert (progress.stats.n_running_trials, progress.stats.n_pending_trials) == (0, 1)


def test_a_metric_without_a_value_is_noted_and_the_others_stand() -> None:
    def broken(_: RewardColumn) -> dict[str, float]:
        raise OverflowError("too large")

    metrics = {"set": [broken, *builtin_metrics(["max"])]}
    progress = Progress(1, metrics, live_metrics=metrics)
    progress.begin()
    progress.end(0, scored("a1", 1.0))
    assert progress.final_stats().evals["nop__set"].metrics == [{"max": 1.0}]
    assert progress.notes == ["nop__set: a metric has no value: too large"]


def test_counts_add_up() -> None:
    rows = [scored("a1", 1.0), failed("b1", "E"), scored("c1", math.nan)]
    counts = Counts.of_job(TrialTable(rows), planned=5, kept=1, retried=2)
    assert counts.planned == counts.run + counts.not_run
    assert counts.run == counts.scored + counts.zero_by_missing
    assert (counts.scored, counts.errored, counts.not_run) == (2, 1, 2)
    with pytest.raises(JobError, match="2 trials were planned but 3 are counted"):
        Counts.of_job(TrialTable(rows), planned=2, kept=0, retried=0)


def test_the_file_is_written_at_once_and_then_at_most_once_a_second() -> None:
    async def go() -> tuple[int, int, int]:
        writes = 0

        def write() -> None:
            nonlocal writes
            writes += 1

        def fail(error: JobError) -> None:
            raise error

        file = ResultFile(write, fail)
        file.changed()
        at_once = writes
        for _ in range(1000):
            file.changed()
        soon = writes
        while writes == soon:
            await asyncio.sleep(0.01)
        later = writes
        file.changed()
        file.close()
        return at_once, soon, later

    assert asyncio.run(go()) == (1, 1, 2)


def test_a_file_that_cannot_be_written_is_told_and_not_raised() -> None:
    async def go() -> list[str]:
        told: list[str] = []

        def write() -> None:
            raise JobError("no space")

        ResultFile(write, lambda error: told.append(str(error))).changed()
        return told

    assert asyncio.run(go()) == ["no space"]
