"""A trial whose agent reached its model through the gateway is run again with recorded answers."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.cli.model_agents import COMMAND, ByLength, make_agent, make_answer_task
from tests.cli.programs import Proctor
from tests.gateway.providers import running

pytestmark = [pytest.mark.usefixtures("cache"), pytest.mark.sandbox]


@pytest.fixture
def job(proctor: Proctor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A job of one trial, run with a provider that is gone by now."""
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    make_answer_task(tmp_path / "task")
    make_agent(tmp_path / "agent")
    words = ["--command", COMMAND, "--agent-tree", "agent", "-m", "openai/gpt-4o", "--no-ledger"]
    with running(ByLength()) as provider:
        where = ["--model-endpoint", f"openai={provider.origin}/v1"]
        ran = proctor("run", "-p", "task", *words, *where, "--job-name", "job")
    assert ran.code == 0, ran.out + ran.err
    return tmp_path / "jobs" / "job"


def rerun(proctor: Proctor, job: Path, *words: object) -> dict[str, Any]:
    ran = proctor("audit", job, "--rerun", 1, "-o", job.parent.parent / "new", "--json", *words)
    (found,) = json.loads(ran.out)["reruns"]
    return {**found, "code": ran.code}


def test_the_agent_runs_again_with_the_recorded_answers(proctor: Proctor, job: Path) -> None:
    found = rerun(proctor, job)
    assert (found["verdict"], found["way"], found["code"]) == ("reproduced", "answers", 0)
    said = "reward 1.0 again, with the recorded answers to all 3 requests of the agent"
    assert found["reason"] == said
    assert found["same_rewards"] is True


def test_another_reward_for_the_same_answers_is_shown(proctor: Proctor, job: Path) -> None:
    [result] = job.glob("*/result.json")
    reward = result.parent / "verifier" / "reward.txt"
    reward.write_text("0\n")
    document = json.loads(result.read_text())
    document["verifier_result"]["rewards"] = {"reward": 0}
    result.write_text(json.dumps(document))
    found = rerun(proctor, job)
    assert (found["verdict"], found["way"], found["code"]) == ("differs", "answers", 1)
    assert found["reason"].startswith("then reward 0, now reward 1.0, with the recorded answers")


def test_a_conversation_that_differs_is_named(proctor: Proctor, job: Path) -> None:
    [calls] = job.glob("*/agent/model-calls.jsonl")
    lines = calls.read_bytes().splitlines(keepends=True)
    # Another command in the first answer: what the agent asks next is not what is recorded.
    lines[1] = lines[1].replace(b"ls -l /app", b"ls -l /etc")
    calls.write_bytes(b"".join(lines))
    found = rerun(proctor, job)
    assert (found["verdict"], found["way"], found["code"]) == ("differs", "answers", 3)
    assert "request 2 differs from " in found["reason"]
    assert found["same_rewards"] is None


def test_files_of_the_agent_that_changed_or_moved_are_not_run(proctor: Proctor, job: Path) -> None:
    here = job.parent.parent
    shutil.move(here / "agent", here / "moved")
    found = rerun(proctor, job)
    assert found["way"] in (None, "commands")
    assert "its agent is not run again with the recorded answers" in found["notes"][0]
    found = rerun(proctor, job, "--agent-tree", here / "moved")
    assert (found["verdict"], found["way"]) == ("reproduced", "answers")
    make_agent(here / "moved", " Be brief.")
    found = rerun(proctor, job, "--agent-tree", here / "moved")
    assert "have changed" in found["notes"][0]


def test_files_elsewhere_are_not_read_because_a_stranger_names_them(
    proctor: Proctor, job: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = job.parent.parent / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    found = rerun(proctor, job)
    assert found["way"] in (None, "commands")
    assert "pass their directory with --agent-tree" in found["notes"][0]
