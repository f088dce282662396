"""What earlier attempts at a trial found stays with it, however often it is run again."""

from pathlib import Path
from typing import Any

import pytest

from proctor.harbor.configs import RetryConfig
from proctor.job.attempts import keep_attempt
from proctor.job.running import MOST, carry_findings
from proctor.trial.finding import Finding, FindingCode, render_findings
from tests.job.jobs import (
    Listener,
    agent,
    load_json,
    make_config,
    make_tasks,
    resume,
    run,
    trial_dirs,
)

PLANTED, BUSY = FindingCode.REWARD_PLANTED, FindingCode.AGENT_STILL_BUSY


def make_finding(code: FindingCode, **detail: object) -> Finding:
    return Finding(code=code, phase="verify", message="seen", detail=detail)


def keep(trial: Path, *found: Finding) -> None:
    """Leave an attempt with these findings, and put it aside."""
    trial.mkdir(exist_ok=True)
    (trial / "findings.json").write_bytes(render_findings(found))
    keep_attempt(trial)


@pytest.fixture
def job(tmp_path: Path) -> Path:
    """A job of one trial whose agent fails until it was begun thrice."""
    tasks = make_tasks(tmp_path / "set", ["a"])
    retry = RetryConfig(max_retries=0)
    failing = agent("Flaky", fails=2)
    return run(make_config(tasks, tmp_path / "jobs", agents=[failing], retry=retry)).directory


def resume_again(job: Path) -> tuple[list[Any], list[str]]:
    """Run the trial again; its findings then, and what was said."""
    listener = Listener()
    resume(job, listener, also=frozenset({"ConnectionError"}))
    (trial,) = trial_dirs(job)
    found = load_json(trial / "findings.json") if (trial / "findings.json").exists() else []
    return found, listener.sentences


def test_findings_name_the_attempt_that_they_are_of_and_come_once(job: Path) -> None:
    (trial,) = trial_dirs(job)
    planted = make_finding(PLANTED, files=["x"])
    (trial / "findings.json").write_bytes(render_findings([planted]))
    first, _ = resume_again(job)
    assert first == [
        {
            "code": "reward-planted",
            "phase": "verify",
            "message": "attempt 1: seen",
            "detail": {"files": ["x"], "attempt": 1},
        }
    ]
    # The second attempt has found something itself.
    busy = make_finding(BUSY)
    carried = carry_findings(str(trial)).findings
    (trial / "findings.json").write_bytes(render_findings([*carried, busy]))
    second, _ = resume_again(job)
    assert [each["message"] for each in second] == ["attempt 1: seen", "attempt 2: seen"]
    assert [each["detail"]["attempt"] for each in second] == [1, 2]


@pytest.mark.parametrize("content", ["[{", "{}", '[{"code": "from-the-future"}]', "[" * 100_000])
def test_damaged_findings_are_said_and_hinder_nothing(job: Path, content: str) -> None:
    (trial,) = trial_dirs(job)
    (trial / "findings.json").write_text(content)
    found, sentences = resume_again(job)
    assert found == []
    assert any("the findings of attempt 1 cannot be read" in said for said in sentences)
    assert "the findings of attempt 1 cannot be read" in (job / "job.log").read_text()


def test_links_out_of_the_trial_are_not_followed(tmp_path: Path) -> None:
    (tmp_path / "outside.json").write_bytes(render_findings([make_finding(PLANTED)]))
    (tmp_path / "trial" / "attempts" / "1").mkdir(parents=True)
    link = tmp_path / "trial" / "attempts" / "1" / "findings.json"
    link.symlink_to(tmp_path / "outside.json")
    carried = carry_findings(str(tmp_path / "trial"))
    assert (carried.findings, len(carried.problems)) == ((), 1)


def test_of_too_many_the_gravest_are_carried(tmp_path: Path) -> None:
    keep(tmp_path / "trial", *[make_finding(BUSY)] * MOST)
    keep(tmp_path / "trial", *[make_finding(PLANTED)] * 2)
    carried = carry_findings(str(tmp_path / "trial"))
    assert [each.code for each in carried.findings] == [BUSY] * (MOST - 2) + [PLANTED] * 2
    (problem,) = carried.problems
    assert "2 of 102 findings of earlier attempts are only in attempts/" in problem


def test_a_trial_that_cannot_make_its_own_result_has_them(
    job: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_: object) -> None:
        raise OSError("no space left")

    (trial,) = trial_dirs(job)
    (trial / "findings.json").write_bytes(render_findings([make_finding(PLANTED)]))
    monkeypatch.setattr("proctor.job.local_executor.run_trial", fail)
    found, _ = resume_again(job)
    assert [each["message"] for each in found] == ["attempt 1: seen"]
    assert load_json(trial / "result.json")["exception_info"]["exception_type"] == "OSError"
