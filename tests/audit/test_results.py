"""Trial results against the job result, and what a stopped job may honestly look like."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from proctor.audit.findings import Finding, Kind
from proctor.audit.results import audit_presence, audit_result
from proctor.audit.scoring import score_jobs
from proctor.harbor.job import load_job
from proctor.reward.profile import DEFAULT_PROFILE
from tests.audit.directories import (
    Document,
    copy_job,
    edit_json,
    find_trial,
    make_job,
    make_trial,
    publish,
    read_json,
    write_json,
)

GROUP = "oracle__adhoc"


def audit(job: Path) -> list[Finding]:
    return list(audit_result(score_jobs([load_job(str(job))], DEFAULT_PROFILE, add_up=False)))


def kinds(job: Path) -> list[Kind]:
    return [finding.kind for finding in audit(job)]


def edit_group(job: Path, change: Callable[[Document], object]) -> None:
    edit_json(job / "result.json", lambda result: change(result["stats"]["evals"][GROUP]))


def stop(job: Path) -> None:
    """Make a finished job a stopped one, as harbor would have left it."""
    edit_json(job / "result.json", lambda result: result.update(finished_at=None))
    publish(job)


@pytest.fixture
def job(tmp_path: Path) -> Path:
    job = make_job(tmp_path / "job", {"a": ["1", "0"], "b": ["0", "1"]})
    (job / "lock.json").write_text('{"trials": []}')
    return job


@pytest.fixture
def stopped(job: Path) -> Path:
    for at, trial in enumerate(sorted(job.glob("*__*")), 1):
        document = read_json(trial / "result.json")
        document["finished_at"] = f"2026-01-01T00:00:0{at}.5Z"
        document["agent_result"] = {"n_input_tokens": 10 * at, "cost_usd": 0.1 * at}
        write_json(trial / "result.json", document)
    stop(job)
    return job


def test_values_are_named_as_found_and_as_expected(job: Path) -> None:
    edit_json(job / "result.json", lambda result: result["stats"].update(n_errored_trials=1))
    (finding,) = audit(job)
    assert finding == Finding(
        Kind.EDITED_COUNTER,
        f"{job}/result.json",
        "stats.n_errored_trials is 1; the trials give 0",
        "1",
        "0",
    )


def test_long_values_are_shortened_in_the_sentence_only(job: Path) -> None:
    edit_group(job, lambda group: group["reward_stats"].update(x={"1.0": ["y" * 200]}))
    (finding,) = audit(job)
    assert "…; the trials give" in finding.message
    assert "y" * 200 in finding.found


def _raise_first(group: Document) -> None:
    rewards = group["reward_stats"]["reward"]
    (low,) = [key for key in rewards if key != "1.0"]
    rewards["1.0"].append(rewards.pop(low)[0])


def test_a_difference_names_the_part_that_differs(job: Path) -> None:
    edit_group(job, _raise_first)
    (finding,) = audit(job)
    assert finding.kind is Kind.EDITED_REWARD_STATS
    assert '.reward_stats.reward["1.0"] has ' in finding.message
    assert finding.message.endswith("; the trials do not give it (and 1 other part)")


def test_missing_plans_are_notes(job: Path) -> None:
    (job / "lock.json").unlink()
    (job / "config.json").unlink()
    assert kinds(job) == [Kind.NO_PLAN, Kind.NO_PLAN, Kind.INFERRED_METRIC]


def test_a_torn_plan_is_a_torn_file(job: Path) -> None:
    (job / "lock.json").write_text("{")
    assert kinds(job) == [Kind.TORN_FILE]


def test_a_job_without_result_publishes_nothing(job: Path) -> None:
    (job / "result.json").unlink()
    assert kinds(job) == [Kind.MISSING_RESULT]


def test_an_inferred_metric_is_compared_and_said_to_be_inferred(job: Path) -> None:
    (job / "config.json").unlink()
    edit_group(job, lambda group: group.update(metrics=[{"mean": 1.0}]))
    assert kinds(job) == [Kind.NO_PLAN, Kind.INFERRED_METRIC, Kind.EDITED_METRIC]


def test_a_metric_whose_script_was_not_run_cannot_be_shown(job: Path) -> None:
    metric = {"type": "uv-script", "kwargs": {"script_path": "metric.py"}}
    edit_json(job / "config.json", lambda config: config.update(metrics=[metric]))
    edit_group(job, lambda group: group.update(metrics=[{"best": 7}]))
    (finding,) = audit(job)
    assert finding.kind is Kind.NOT_RECOMPUTED
    assert finding.message.endswith("not recomputed. script metric.py, which does not exist here")


def test_a_value_where_the_rewards_give_none_is_found(job: Path) -> None:
    (find_trial(job, "a") / "verifier" / "reward.json").write_text(f'{{"reward": {10**400}}}')
    findings = audit(job)
    (finding,) = [found for found in findings if found.kind is Kind.EDITED_METRIC]
    assert finding.expected == "no value"


def test_an_honest_stopped_job_has_no_findings(stopped: Path) -> None:
    assert kinds(stopped) == []


def test_a_result_one_step_behind_its_trials_is_a_note(stopped: Path) -> None:
    last = stopped / "b__job2"
    shutil.move(last, stopped.parent / "aside")
    publish(stopped)
    shutil.move(stopped.parent / "aside", last)
    (finding,) = audit(stopped)
    assert finding.kind is Kind.LAGGING_RESULT
    assert finding.message.startswith("counts 3 of 4 trials: ")


def test_a_trial_that_is_counted_before_an_earlier_one_still_lags(stopped: Path) -> None:
    """Two trials end together, and the later is counted first."""
    earlier = stopped / "b__job1"
    shutil.move(earlier, stopped.parent / "aside")
    publish(stopped)
    shutil.move(stopped.parent / "aside", earlier)
    assert kinds(stopped) == [Kind.LAGGING_RESULT]


def test_lagging_hides_nothing_that_cannot_be_shown(stopped: Path) -> None:
    last = stopped / "b__job2"
    shutil.move(last, stopped.parent / "aside")
    publish(stopped)
    shutil.move(stopped.parent / "aside", last)
    metric = {"type": "uv-script", "kwargs": {"script_path": "metric.py"}}
    edit_json(stopped / "config.json", lambda config: config.update(metrics=[metric]))
    edit_group(stopped, lambda group: group.update(metrics=[{"best": 7}]))
    assert kinds(stopped) == [Kind.LAGGING_RESULT, Kind.NOT_RECOMPUTED]


@pytest.mark.parametrize("kept", ["1.0", "0.0"])
def test_a_choice_of_trials_is_no_lagging(tmp_path: Path, kept: str) -> None:
    """A stopped job whose result counts only the trials that its forger liked."""
    job = copy_job("04-binary-scripted-k5", tmp_path)
    edit_json(job / "result.json", lambda result: result.update(finished_at=None))
    others = [path.parent for path in job.glob("*/result.json") if rewarded(path) != kept]
    for trial in others:
        shutil.move(trial, tmp_path / trial.name)
    publish(job)
    for trial in others:
        shutil.move(tmp_path / trial.name, trial)
    assert Kind.EDITED_METRIC in kinds(job)
    assert Kind.LAGGING_RESULT not in kinds(job)


def rewarded(result: Path) -> str:
    return str(read_json(result)["verifier_result"]["rewards"]["reward"])


def test_lagging_excuses_no_other_number(stopped: Path) -> None:
    last = stopped / "b__job2"
    shutil.move(last, stopped.parent / "aside")
    publish(stopped)
    shutil.move(stopped.parent / "aside", last)
    edit_group(stopped, lambda group: group.update(metrics=[{"mean": 0.9}]))
    assert Kind.LAGGING_RESULT not in kinds(stopped)
    assert Kind.EDITED_METRIC in kinds(stopped)


@pytest.mark.parametrize("count", [-1, 9])
def test_a_counter_out_of_range_is_no_lag(stopped: Path, count: int) -> None:
    edit_json(
        stopped / "result.json", lambda result: result["stats"].update(n_completed_trials=count)
    )
    assert kinds(stopped) == [Kind.EDITED_COUNTER]


def test_a_finished_job_never_lags(job: Path) -> None:
    edit_json(job / "result.json", lambda result: result["stats"].update(n_completed_trials=3))
    assert kinds(job) == [Kind.EDITED_COUNTER]


def test_a_resumed_job_may_have_no_metrics_yet(stopped: Path) -> None:
    edit_group(stopped, lambda group: group.update(metrics=[]))
    assert kinds(stopped) == [Kind.NO_METRICS_YET]


def test_what_a_retry_leaves_in_a_stopped_job_is_no_finding(stopped: Path) -> None:
    """Harbor takes a trial away to try it again: its lists and its group stay, empty."""

    def change(result: Document) -> None:
        stats = result["stats"]
        stats["evals"][GROUP]["exception_stats"] = {"RuntimeError": []}
        stats["evals"][GROUP]["reward_stats"]["speed"] = {"0.5": []}
        stats["evals"]["nop__adhoc"] = {
            "n_trials": 0,
            "n_errors": 0,
            "metrics": [],
            "pass_at_k": {},
            "reward_stats": {"reward": {"0.0": []}},
            "exception_stats": {},
        }
        stats["cost_usd"] += 1e-16
        stats["n_cache_tokens"] = 0

    edit_json(stopped / "result.json", change)
    assert kinds(stopped) == []


def test_a_finished_job_must_not_look_so(job: Path) -> None:
    edit_group(job, lambda group: group.update(exception_stats={"RuntimeError": []}))
    assert kinds(job) == [Kind.EDITED_EXCEPTION_STATS]


@pytest.mark.parametrize(("name", "value"), [("cost_usd", "free"), ("n_input_tokens", 1)])
def test_usage_of_a_stopped_job_is_compared(stopped: Path, name: str, value: object) -> None:
    edit_json(stopped / "result.json", lambda result: result["stats"].update({name: value}))
    assert kinds(stopped) == [Kind.EDITED_USAGE]


def test_a_group_that_counts_something_must_have_trials(stopped: Path) -> None:
    edit_json(
        stopped / "result.json",
        lambda result: result["stats"]["evals"].update(nop__adhoc={"n_trials": 1}),
    )
    assert kinds(stopped) == [Kind.EDITED_GROUP]


def presence(job: Path) -> list[tuple[Kind, str]]:
    findings = audit_presence(load_job(str(job)))
    return [(finding.kind, Path(finding.path).name) for finding in findings]


def test_nothing_is_present_or_absent_without_a_result(job: Path) -> None:
    (job / "result.json").unlink()
    assert presence(job) == []


def test_a_trial_without_reward_and_exception_need_not_be_named(tmp_path: Path) -> None:
    job = make_job(tmp_path / "job", {"a": ["1"]})
    disabled = {"config": {"verifier": {"disable": True}}, "verifier_result": None}
    make_trial(job / "b__1", "b", "1", **disabled)
    publish(job)
    assert presence(job) == []
    make_trial(job / "c__1", "c", "1")
    assert presence(job) == [(Kind.DIRECTORY_WITHOUT_TRIAL, "c__1")]


def test_a_broken_trial_has_a_directory(job: Path) -> None:
    (find_trial(job, "a") / "result.json").write_text("{")
    assert presence(job) == []
    shutil.rmtree(find_trial(job, "a"))
    assert presence(job) == [(Kind.TRIAL_WITHOUT_DIRECTORY, "result.json")]


def test_a_stopped_job_may_hold_trials_it_does_not_count(tmp_path: Path) -> None:
    job = copy_job("31-killed-before-resume", tmp_path)
    make_trial(job / "slow-9__1", "slow-9", "1")
    assert presence(job) == []
