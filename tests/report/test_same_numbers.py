"""A job and its ledger, seen by every command and page: the same counts of the same trials."""

import json
import math
import shutil
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, note, settings
from hypothesis import strategies as st

from proctor.api import load
from tests.audit.directories import publish
from tests.cli.programs import Proctor, run_here
from tests.examples import examples
from tests.harbor.written import failed, rewarded, write_result, write_trial
from tests.ledger.views import (
    Counts,
    count_gate,
    count_head,
    count_listed,
    count_outcome,
    count_report,
    count_rows,
    count_verdict,
    read,
    view_all,
    view_job_page,
)

DATASET = "ds"
_NUMBERS = count()
_ENDED = st.fixed_dictionaries(
    {
        "reward": st.sampled_from([None, 0, 0.5, 1, 1, math.nan, math.inf, {"a": 1, "b": 0}, {}]),
        "exception": st.sampled_from([None, None, "AgentTimeoutError", "RuntimeError"]),
    }
)
_TRIALS = st.fixed_dictionaries(
    {
        "agent": st.sampled_from(["ag", "ag", "other"]),
        "model": st.sampled_from([None, None, "maker/m-1", "m-1"]),
        "task": st.sampled_from(["a", "b"]),
        "ended": _ENDED,
        "kept": st.lists(_ENDED, max_size=2),
    }
)

_UNREAD = st.lists(st.sampled_from(["killed", "torn"]), max_size=2)

type Trial = dict[str, Any]


@pytest.fixture
def proctor(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Proctor:
    return run_here(monkeypatch, capsys)


def _write_job(job: Path, trials: list[Trial], n_unread: int) -> None:
    for number, trial in enumerate(trials):
        name = f"{trial['task']}__{number}"
        provider, slash, model = (trial["model"] or "").rpartition("/")
        info = {"name": model, "provider": provider if slash else None} if model else None
        agent = {"name": trial["agent"], "model_name": trial["model"]}
        task = {"path": f"tasks/{trial['task']}"}
        same = {
            "agent_info": {"name": trial["agent"], "version": "1.0", "model_info": info},
            "config": {"task": task, "agent": agent},
            "source": DATASET,
            "task_name": trial["task"],
            "trial_name": name,
        }
        _write_trial(job, name, trial["ended"], same)
        for kept, ended in enumerate(trial["kept"], 1):
            _write_trial(job / name / "attempts", str(kept), ended, same)
    write_result(job, {}, n_total_trials=len(trials) + n_unread)
    (job / "config.json").write_text("{}")
    publish(job)


def _write_trial(directory: Path, name: str, ended: Trial, same: Trial) -> None:
    reward, exception = ended["reward"], ended["exception"]
    rewards = reward if isinstance(reward, dict) else {"reward": reward}
    # harbor writes null for what is not finite.
    claimed = {key: value if math.isfinite(value or 0) else None for key, value in rewards.items()}
    verified = rewarded(**claimed) if reward is not None else None
    # Without a reward or an exception, no verification was asked for.
    config = {**same["config"], "verifier": {"disable": reward is None and exception is None}}
    place = write_trial(
        directory,
        name,
        _reward_files(reward),
        verifier_result=verified,
        exception_info=failed(exception) if exception else None,
        **{**same, "config": config},
    )
    (place / "config.json").write_text(json.dumps(config))


def _reward_files(reward: object) -> dict[str, str]:
    if isinstance(reward, dict):
        return {"reward.json": json.dumps(reward)}
    return {} if reward is None else {"reward.txt": str(reward)}


def _write_unread(job: Path, kinds: list[str]) -> None:
    """Trials without a result that can be read: no number has them."""
    for number, kind in enumerate(kinds):
        place = job / f"a__unread{number}"
        place.mkdir()
        (place / "config.json").write_text("{}")
        if kind == "torn":
            (place / "result.json").write_text('{"task_name": ')


def _view_job(proctor: Proctor, job: Path, n_unread: int) -> dict[str, Counts]:
    scored = json.loads(proctor("score", job, "--json").out)["denominators"]
    of_gate = count_gate(proctor("gate", job, "--min-mean", "-9", "--json"))
    # A gate over a directory takes the trials that harbor counts, and looks at no other.
    for name in ("attempts", "superseded"):
        of_gate.pop(name, None)
    outcome = count_outcome(proctor, job)
    # The total of the result line is the planned one.
    outcome["counted"] = int(str(outcome["counted"])) - n_unread
    return {
        "score": {
            "counted": scored["run"],
            "scored": scored["scored"],
            "missing": scored["zero_by_missing"],
            "errored": scored["errored"],
        },
        "report of the job": count_report(read(proctor("report", job, "--json", "--no-behaviour"))),
        "gate of the job": of_gate,
        "policy of the job": count_verdict(
            read(proctor("check", job, "--policy", "leaderboard", "--json"))
        ),
        "page of the job": view_job_page(job),
        "list of the job": count_listed(proctor, job),
        "head of the list": count_head(proctor, job),
        "result line": outcome,
        "proctor.load of the job": count_rows(load(job)[job.name].rows),
    }


def _check_audit(proctor: Proctor, job: Path, trials: list[Trial]) -> None:
    """Trials made up by a test may look odd to an audit; the numbers of result.json follow."""
    (found,) = json.loads(proctor("audit", job, "--json").out)["jobs"]
    kinds = {each["kind"] for each in found["differences"]}
    counts = {"group", "metric", "pass-at-k", "reward-stats", "exception-stats", "counter"}
    if sum(trial["ended"]["reward"] != trial["ended"]["reward"] for trial in trials) > 1:
        # harbor writes a key for every nan, of which `publish` keeps one.
        counts.discard("reward-stats")
    assert not kinds & {f"edited-{what}" for what in counts}, found


def _compare_sides(proctor: Proctor, job: Path, ledger: Path) -> dict[str, Counts]:
    """Both sides of a comparison of the job with itself, sealed; only where it is of one agent."""
    ran = proctor("compare", job, job.name, "--ledger", ledger, "--json", "--no-behaviour")
    if ran.code == 2:
        assert "agents and models match; pass" in ran.err, ran
        return {}
    found = json.loads(ran.out)
    means = {side: found[side]["scores"]["account"]["mean_errors_as_zero"] for side in ("a", "b")}
    return {
        f"compare, {side}": {
            "counted": found[side]["scores"]["account"]["counted"],
            "scored": found[side]["scores"]["account"]["scored"],
            "missing": found[side]["scores"]["account"]["zero_by_missing"],
            "attempts": found[side]["left_out"].get("begun again", 0),
            "mean": None if (mean := means[side]) is None else round(mean, 9),
        }
        for side in ("a", "b")
    }


def _expect(trials: list[Trial]) -> Counts:
    """What is so by the words alone: docs/reference/words.md."""
    ended = [trial["ended"] for trial in trials]
    rewards = [each["reward"] for each in ended]
    scored = [reward for reward in rewards if reward not in (None, {})]
    return {
        "counted": len(ended),
        "scored": len(scored),
        "missing": len(rewards) - len(scored),
        "errored": sum(each["exception"] is not None for each in ended),
        "is errored": any(each["exception"] is not None for each in ended),
        "passed": sum(reward == 1 for reward in rewards),
        "attempts": sum(len(trial["kept"]) for trial in trials),
        "mean": None if _is_numberless(rewards) else round(sum(scored) / len(rewards), 9),
    }


def _is_numberless(rewards: list[Any]) -> bool:
    """Whether one of the rewards is a score without a number."""
    numbers = [reward for reward in rewards if not isinstance(reward, dict)]
    return {"a": 1, "b": 0} in rewards or not all(math.isfinite(each or 0) for each in numbers)


def _check(proctor: Proctor, scratch: Path, trials: list[Trial], unread: list[str]) -> None:
    job, ledger = scratch / "nightly", scratch / "ledger"
    _write_job(job, trials, len(unread))
    sealed = proctor("import", "harbor", job, "--ledger", ledger)
    assert sealed.code == 0, sealed
    # After the import, which seals them, because the job is over.
    _write_unread(job, unread)
    _check_audit(proctor, job, trials)
    views = {
        "the words": _expect(trials),
        **_view_job(proctor, job, len(unread)),
        **_compare_sides(proctor, job, ledger),
        **view_all(proctor, ledger, job.name, scratch, DATASET),
    }
    names = {key for counts in views.values() for key in counts}
    if _is_numberless([trial["ended"]["reward"] for trial in trials]):
        # Harbor's mean is then nan, or one for each key; a result line without a number has failed.
        names -= {"mean", "is errored"}
    for name in sorted(names):
        said = {view: counts[name] for view, counts in views.items() if name in counts}
        assert len(set(said.values())) == 1, f"{name}: {said}"


_SETTINGS = settings(
    max_examples=examples(12),
    derandomize=True,
    deadline=None,
    # Each look takes a second: an example as it was found is better than none after minutes.
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@_SETTINGS
@given(trials=st.lists(_TRIALS, min_size=1, max_size=5), unread=_UNREAD)
def test_every_command_and_page_counts_the_same_trials_alike(
    proctor: Proctor, tmp_path: Path, trials: list[Trial], unread: list[str]
) -> None:
    scratch = tmp_path / str(next(_NUMBERS))
    scratch.mkdir()
    note(f"trials = {trials!r}, unread = {unread!r}")
    try:
        _check(proctor, scratch, trials, unread)
    finally:
        shutil.rmtree(scratch)


@pytest.mark.soak
@settings(_SETTINGS, max_examples=examples(500), derandomize=False)
@given(trials=st.lists(_TRIALS, min_size=1, max_size=12), unread=_UNREAD)
def test_five_hundred_jobs_are_counted_alike(
    proctor: Proctor, tmp_path: Path, trials: list[Trial], unread: list[str]
) -> None:
    scratch = tmp_path / str(next(_NUMBERS))
    scratch.mkdir()
    try:
        _check(proctor, scratch, trials, unread)
    finally:
        shutil.rmtree(scratch)
