"""One job, or several as one: numbers from the evidence, and what they rest on."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from proctor.audit.scoring import Origin, Scoring, score_jobs
from proctor.errors import JobError
from proctor.harbor.job import load_job
from proctor.harbor.stats import Denominators
from proctor.record.outcome import Summary
from proctor.reward.profile import DEFAULT_PROFILE, HARBOR_0_25
from tests.audit.directories import (
    COPIED,
    JOBS,
    Document,
    copy_job,
    edit_json,
    every_job,
    find_trial,
    make_job,
    read_json,
)

MARKING_SCRIPT = """
import json, pathlib, sys
pathlib.Path(__file__).with_suffix(".ran").touch()
pathlib.Path(sys.argv[4]).write_text(json.dumps({"best": 0.75, "label": "fair"}))
"""


def score(*paths: Path, allow_mixed: bool = False, run_scripts: bool = False) -> Scoring:
    jobs = [load_job(str(path)) for path in paths]
    return score_jobs(jobs, DEFAULT_PROFILE, allow_mixed=allow_mixed, run_scripts=run_scripts)


def make_sparse(path: Path) -> None:
    """A file of 300 MB that takes no room."""
    with path.open("wb") as file:
        file.truncate(300_000_000)


def by_registry(config: Document) -> None:
    config["datasets"][0].update(path=None, name="binary")


@pytest.fixture
def scripted(tmp_path: Path) -> Path:
    """A job whose only metric is a script that leaves a mark when it is run."""
    job = copy_job("01-binary-oracle-k1", tmp_path)
    script = tmp_path / "metric.py"
    script.write_text(MARKING_SCRIPT)
    metric = {"type": "uv-script", "kwargs": {"script_path": str(script)}}
    edit_json(job / "config.json", lambda config: config.update(metrics=[metric]))
    edit_json(
        job / "result.json",
        lambda result: result["stats"]["evals"]["oracle__binary"].update(
            metrics=[{"best": 0.5, "label": "good"}]
        ),
    )
    return job


@every_job
def test_denominators_add_up(name: str) -> None:
    parts = score(JOBS / name).denominators
    assert parts.planned == parts.run + parts.broken + parts.not_run
    assert parts.run == parts.scored + parts.zero_by_missing
    assert min(parts.broken, parts.not_run, parts.scored, parts.zero_by_missing) >= 0


def test_errored_trials_may_be_scored_and_missing_ones_count_as_zero() -> None:
    scoring = score(COPIED / "06-errors-oracle-k1")
    assert scoring.denominators == Denominators(
        planned=9, run=9, scored=3, errored=7, zero_by_missing=6, broken=0, not_run=0
    )
    assert scoring.unscored
    assert not score(COPIED / "01-binary-oracle-k1").unscored


def test_a_broken_trial_is_counted_and_in_no_number(tmp_path: Path) -> None:
    job = make_job(tmp_path / "job", {"a": ["1"], "b": ["0"]})
    (find_trial(job, "b") / "result.json").write_text("{")
    scoring = score(job)
    assert scoring.denominators.broken == 1
    assert scoring.metrics["oracle__adhoc"][0].entry == {"mean": 1.0}
    assert any("torn or not JSON" in note for note in scoring.notes)


def test_a_killed_job_is_scored_live(tmp_path: Path) -> None:
    scoring = score(copy_job("31-killed-before-resume", tmp_path))
    assert scoring.live
    assert scoring.stats.n_running_trials == 2
    assert scoring.denominators.not_run == 2
    assert "31-killed-before-resume: 2 trial directories without a result.json" in scoring.notes
    assert any(note.startswith("unfinished job") for note in scoring.notes)


def test_a_job_without_result_is_counted_from_what_is_there(tmp_path: Path) -> None:
    job = make_job(tmp_path / "job", {"a": ["1", "0"]})
    (job / "result.json").unlink()
    scoring = score(job)
    assert not scoring.live
    assert scoring.denominators.planned == 2
    assert scoring.stats.evals["oracle__adhoc"].pass_at_k == {2: 1.0}
    assert any("no readable result.json" in note for note in scoring.notes)


def test_more_trials_than_planned_do_not_add_up(tmp_path: Path) -> None:
    job = make_job(tmp_path / "job", {"a": ["1", "0"]})
    edit_json(job / "result.json", lambda result: result.update(n_total_trials=1))
    with pytest.raises(JobError, match=r"1 trials were planned but 2 exist; `proctor audit`"):
        score(job)
    assert score_jobs([load_job(str(job))], DEFAULT_PROFILE, add_up=False).denominators.run == 2


def test_five_jobs_of_one_attempt_give_pass_at_5(tmp_path: Path) -> None:
    rewards = ["1", "0", "0", "1", "0"]
    jobs = [make_job(tmp_path / f"j{i}", {"a": [text]}) for i, text in enumerate(rewards)]
    stats = score(*jobs).stats.evals["oracle__adhoc"]
    assert stats.pass_at_k == {2: 1 - 3 / 5 * 2 / 4, 4: 1.0, 5: 1.0}
    assert stats.metrics == [{"mean": 0.4}]
    assert score(jobs[0]).stats.evals["oracle__adhoc"].pass_at_k == {}


def test_jobs_are_added_up_in_the_order_given(tmp_path: Path) -> None:
    jobs = [make_job(tmp_path / f"j{i}", {"a": [text]}) for i, text in enumerate(["1", "0"])]
    names = [score(*order).table.groups["oracle__adhoc"].names for order in (jobs, jobs[::-1])]
    assert names == [["a__j01", "a__j11"], ["a__j11", "a__j01"]]


def test_counts_of_several_jobs_are_added(tmp_path: Path) -> None:
    retried = copy_job("20-flaky-retry3", tmp_path)
    other = make_job(tmp_path / "other", {"z": ["1"]})
    scoring = score(retried, other, allow_mixed=True)
    assert scoring.stats.n_retries == 6
    assert scoring.denominators.planned == scoring.stats.n_completed_trials == 4


def test_a_registry_metric_is_inferred_from_its_published_name(tmp_path: Path) -> None:
    job = copy_job("01-binary-oracle-k1", tmp_path)
    edit_json(job / "config.json", by_registry)
    edit_json(
        job / "result.json",
        lambda result: result["stats"]["evals"]["oracle__binary"].update(
            metrics=[{"max": 1.0}, {"mean": 0.5}]
        ),
    )
    scoring = score(job)
    metrics = scoring.metrics["oracle__binary"]
    assert [(metric.declared.name, metric.declared.inferred) for metric in metrics] == [
        ("max", True),
        ("mean", True),
    ]
    assert [metric.entry for metric in metrics] == [{"max": 1.0}, {"mean": 2 / 3}]
    assert any("metric max is inferred" in note for note in scoring.notes)


def test_a_registry_metric_with_several_keys_is_inferred_from_its_values(tmp_path: Path) -> None:
    job = copy_job("42-config-multi", tmp_path)
    edit_json(
        job / "config.json",
        lambda config: [
            dataset.update(path=None, name=Path(dataset["path"]).name)
            for dataset in config["datasets"]
        ],
    )
    names = [metric.declared.name for metric in score(job).metrics["oracle__rewards"]]
    assert names == ["mean", "max", "min", "sum"]


def test_a_dataset_whose_path_does_not_tell_its_name_keeps_its_metrics(tmp_path: Path) -> None:
    job = copy_job("01-binary-oracle-k1", tmp_path)
    edit_json(job / "config.json", lambda config: config["datasets"][0].update(path="."))
    assert score(job).stats.evals["oracle__binary"].metrics == [{"mean": 0.6666666666666666}]


def test_a_job_without_config_has_its_metrics_inferred(tmp_path: Path) -> None:
    job = copy_job("42-config-multi", tmp_path)
    (job / "config.json").unlink()
    metrics = score(job).metrics["oracle__binary"]
    assert [metric.declared.name for metric in metrics] == ["mean", "max", "min", "sum"]
    assert all(metric.declared.inferred for metric in metrics)


def test_with_neither_config_nor_result_the_mean_is_taken(tmp_path: Path) -> None:
    job = make_job(tmp_path / "job", {"a": ["1"]})
    (job / "config.json").unlink()
    (job / "result.json").unlink()
    assert score(job).metrics["oracle__adhoc"][0].declared.name == "mean"


def test_a_dataset_that_nobody_declares_has_no_metrics() -> None:
    assert score(COPIED / "40-dataset-name-dunder").metrics == {"oracle__my__set": []}


def test_a_script_is_not_run_unless_asked_for(scripted: Path) -> None:
    scoring = score(scripted)
    (metric,) = scoring.metrics["oracle__binary"]
    assert not (scripted.parent / "metric.ran").exists()
    assert (metric.origin, metric.entry) == (Origin.CARRIED, {"best": 0.5, "label": "good"})
    assert "metric.py (sha256 " in metric.detail
    assert any("not recomputed, the published value is carried over" in n for n in scoring.notes)


@pytest.mark.usefixtures("uv_on_path")
def test_a_script_is_run_when_asked_for(scripted: Path) -> None:
    (metric,) = score(scripted, run_scripts=True).metrics["oracle__binary"]
    assert (scripted.parent / "metric.ran").exists()
    assert (metric.origin, metric.entry) == (Origin.COMPUTED, {"best": 0.75, "label": "fair"})


@pytest.mark.usefixtures("uv_on_path")
def test_a_script_that_fails_is_a_metric_without_value(scripted: Path) -> None:
    (scripted.parent / "metric.py").write_text("raise SystemExit(3)")
    scoring = score(scripted, run_scripts=True)
    (metric,) = scoring.metrics["oracle__binary"]
    assert (metric.origin, metric.entry) == (Origin.FAILED, None)
    assert scoring.stats.evals["oracle__binary"].metrics == []
    assert any("metric uv-script has no value: Failed to compute" in n for n in scoring.notes)


def test_a_script_that_is_not_here_is_said_to_be_missing(scripted: Path) -> None:
    (scripted.parent / "metric.py").unlink()
    (metric,) = score(scripted).metrics["oracle__binary"]
    assert metric.detail.endswith("metric.py, which does not exist here")


def test_a_script_of_a_registry_is_not_part_of_the_job(scripted: Path) -> None:
    edit_json(scripted / "config.json", by_registry)
    (metric,) = score(scripted, run_scripts=True).metrics["oracle__binary"]
    assert metric.origin is Origin.CARRIED
    assert metric.detail == "a script whose file is not part of the job"


def test_a_script_metric_of_several_jobs_has_no_value(scripted: Path) -> None:
    other = make_job(scripted.parent / "other", {"z": ["1"]})
    scoring = score(scripted, other)
    (metric,) = scoring.metrics["oracle__binary"]
    assert (metric.origin, metric.entry) == (Origin.CARRIED, None)
    assert any("is not recomputed, it has no value" in note for note in scoring.notes)


def test_a_metric_that_harbor_does_not_have_is_carried_over(tmp_path: Path) -> None:
    job = copy_job("01-binary-oracle-k1", tmp_path)
    edit_json(job / "config.json", lambda config: config.update(metrics=[{"type": "median"}]))
    (metric,) = score(job, run_scripts=True).metrics["oracle__binary"]
    assert (metric.origin, metric.detail) == (Origin.CARRIED, "not one of harbor's metrics")


def test_a_mean_too_large_for_a_float_has_no_value(tmp_path: Path) -> None:
    job = make_job(tmp_path / "job", {"a": ["1"]})
    trial = find_trial(job, "a")
    (trial / "verifier" / "reward.json").write_text(f'{{"reward": {10**400}}}')
    (metric,) = score(job).metrics["oracle__adhoc"]
    assert metric.origin is Origin.FAILED
    assert "too large" in metric.detail


def test_the_later_profile_refuses_nan_rewards() -> None:
    job = str(COPIED / "12-nan-oracle")
    older = score(Path(job))
    later = score_jobs([load_job(job, HARBOR_0_25)], HARBOR_0_25)
    assert str(older.metrics["oracle__nan"][0].entry) == "{'mean': nan}"
    assert later.metrics["oracle__nan"][0].entry == {"mean": 1 / 3}
    assert later.denominators.scored == 1
    assert later.table.groups["oracle__nan"].exceptions.keys() == {"VerifierOutputParseError"}


def test_the_summary_is_that_of_the_result_line() -> None:
    scoring = score(COPIED / "06-errors-oracle-k1")
    assert scoring.summary == Summary("failed", 1 / 3, 3, 9, reason_code=None)


@pytest.mark.parametrize("make", [Path.mkdir, make_sparse, os.mkfifo])
def test_a_reward_file_that_cannot_be_read_is_noted_by_name(
    tmp_path: Path, make: Callable[[Path], None]
) -> None:
    job = make_job(tmp_path / "job", {"a": ["1"], "b": ["1"]})
    path = find_trial(job, "b") / "verifier" / "reward.txt"
    path.unlink()
    make(path)
    scoring = score(job)
    assert scoring.metrics["oracle__adhoc"][0].entry == {"mean": 0.5}
    assert any(str(path) in note for note in scoring.notes)


@pytest.fixture
def two_groups(tmp_path: Path) -> Path:
    """A job of two groups, published in another order than planned."""

    def change(result: Document) -> None:
        evals = result["stats"]["evals"]
        result["stats"]["evals"] = dict(reversed(evals.items()))

    job = copy_job("14-two-models", tmp_path)
    edit_json(job / "result.json", change)
    return job


def resume(result: Document) -> None:
    """Give the trials an order that is not the plan's, as a resumed job has it."""
    for group in result["stats"]["evals"].values():
        for names in group["reward_stats"]["reward"].values():
            names.reverse()
        rewards = group["reward_stats"]["reward"]
        group["reward_stats"]["reward"] = dict(reversed(rewards.items()))


def groups_of(job: Path) -> tuple[list[str], list[str]]:
    """The groups as they are scored, and as they are published."""
    return list(score(job).stats.evals), list(read_json(job / "result.json")["stats"]["evals"])


def test_groups_of_a_resumed_job_come_as_they_were_published(two_groups: Path) -> None:
    edit_json(two_groups / "result.json", resume)
    scored, published = groups_of(two_groups)
    assert len(scored) == 2
    assert scored == published


def test_groups_of_a_planned_job_come_as_planned(two_groups: Path) -> None:
    scored, published = groups_of(two_groups)
    assert scored == published[::-1]


def test_groups_that_are_not_those_published_come_as_their_trials_do(two_groups: Path) -> None:
    edit_json(two_groups / "result.json", resume)
    edit_json(two_groups / "result.json", lambda result: result["stats"]["evals"].update(other={}))
    scored, published = groups_of(two_groups)
    assert "other" not in scored
    assert sorted([*scored, "other"]) == sorted(published)
