"""`proctor run --replay-model`: trials run again with recorded answers, and what is refused."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from proctor.gateway.recording import read_calls
from tests.cli.model_agents import COMMAND, ByLength, make_agent, make_answer_task
from tests.cli.programs import Proctor, Ran
from tests.gateway.providers import Provider, Reply, running

pytestmark = pytest.mark.usefixtures("cache")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with two tasks and an agent; no provider's key is set."""
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GEMINI_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    make_answer_task(tmp_path / "tasks" / "one")
    make_answer_task(tmp_path / "tasks" / "two")
    make_agent(tmp_path / "agent")
    return tmp_path


def run(proctor: Proctor, *words: object, tasks: str = "tasks", name: str = "now") -> Ran:
    agent = ["--command", COMMAND, "--agent-tree", "agent", "-m", "openai/gpt-4o"]
    return proctor("run", "-p", tasks, *agent, "--no-ledger", "--job-name", name, *words)


def record(proctor: Proctor, *words: object, tasks: str = "tasks") -> Path:
    """Run a job with a provider, which is gone afterwards."""
    with running(ByLength()) as provider:
        where = f"openai={provider.origin}/v1"
        ran = run(proctor, "--model-endpoint", where, *words, tasks=tasks, name="then")
    assert ran.code == 0, ran.out + ran.err
    return Path("jobs/then")


def load_results(job: str) -> list[dict[str, Any]]:
    return [
        json.loads(path.read_text()) for path in sorted(Path("jobs", job).glob("*/result.json"))
    ]


def find_trials(job: str, task: str = "one") -> list[Path]:
    return sorted(path.parent for path in Path("jobs", job).glob(f"{task}__*/result.json"))


def test_a_job_runs_again_without_a_provider(proctor: Proctor, here: Path) -> None:
    record(proctor)
    ran = run(proctor, "--replay-model", "jobs/then")
    assert ran.code == 0, ran.out + ran.err
    where = here / "jobs" / "then"
    assert f"model answers: 6 of 6 requests answered from {where}" in ran.out
    assert "differ" not in ran.out.partition("model answers")[2].partition("\n")[0]
    for result in load_results("now"):
        assert result["exception_info"] is None
        assert result["verifier_result"]["rewards"] == {"reward": 1}
        agent = result["agent_result"]
        assert (agent["n_input_tokens"], agent["cost_usd"]) == (300, 0.0)
        assert agent["metadata"]["cost_basis"]["kind"] == "replayed"
        replay = agent["metadata"]["model_replay"]
        assert (replay["n_asked"], replay["n_replayed"]) == (3, 3)
    state = json.loads(Path("jobs/now/proctor.json").read_text())
    assert state["settings"]["models"]["replay"] == str(where)


STEPS = """
[[steps]]
name = "first"

[[steps]]
name = "second"
"""


def make_steps_task(task: Path) -> None:
    """A task of two steps: a file for each."""
    make_answer_task(task)
    with (task / "task.toml").open("a") as file:
        file.write(STEPS)
    for name in ("first", "second"):
        place = task / "steps" / name
        (place / "tests").mkdir(parents=True)
        (place / "instruction.md").write_text(f"Write {name}.\n")
        test = f"test -f /tmp/{name} && echo 1 > /logs/verifier/reward.txt\n"
        (place / "tests" / "test.sh").write_text(test)


def test_chat_in_a_task_of_two_steps_runs_again(proctor: Proctor, here: Path) -> None:
    make_steps_task(here / "tasks" / "steps")
    words = ("run", "-p", "tasks/steps", "-a", "chat", "-m", "gpt-4o", "--no-ledger", "--job-name")
    script = [
        reply
        for number, name in enumerate(("first", "second"), 1)
        for reply in (
            Reply(text="I write.", command=f"touch /tmp/{name}; date", input_tokens=10 * number),
            Reply(text=f"Done {name}.", input_tokens=100 * number),
        )
    ]
    with running(Provider(script=script)) as provider:
        where = f"openai={provider.origin}/v1"
        then = proctor(*words, "then", "--model-endpoint", where)
    assert then.code == 0, then.out + then.err
    # What a command prints differs in every run: the date.
    now = proctor(*words, "now", "--replay-model", "jobs/then")
    assert now.code == 0, now.out + now.err
    assert "model answers: 4 of 4 requests answered" in now.out
    (result,) = load_results("now")
    steps = result["step_results"]
    assert [each["agent_result"]["n_input_tokens"] for each in steps] == [110, 220]
    assert [each["verifier_result"]["rewards"] for each in steps] == [{"reward": 1}] * 2
    replays = [each["agent_result"]["metadata"]["model_replay"] for each in steps]
    assert [(each["n_asked"], each["n_replayed"]) for each in replays] == [(2, 2), (2, 2)]
    (trial,) = find_trials("now", "steps")
    for name in ("first", "second"):
        calls = read_calls(str(trial / "steps" / name / "agent" / "model-calls.jsonl"))
        assert [(each.call.ended, each.call.is_replayed) for each in calls] == [
            ("complete", True)
        ] * 2


def test_the_first_difference_ends_a_trial_which_is_verified(proctor: Proctor, here: Path) -> None:
    record(proctor, tasks="tasks/one")
    make_agent(here / "agent", " Be brief.")
    ran = run(proctor, "--replay-model", *find_trials("then"), tasks="tasks/one")
    assert ran.code == 0, ran.out + ran.err
    [result] = load_results("now")
    assert result["exception_info"]["exception_type"] == "ModelReplayError"
    sentence = result["exception_info"]["exception_message"]
    assert re.match(r"request 1 differs from .*, its request 1: message 1 .system. is ", sentence)
    assert result["verifier_result"]["rewards"] == {"reward": 0}
    assert "model answers: 0 of 1 request answered" in ran.out
    assert "1 of 1 trial differ from the recording; first one__" in ran.out


def test_by_position_a_difference_is_a_finding(proctor: Proctor, here: Path) -> None:
    record(proctor, tasks="tasks/one")
    make_agent(here / "agent", " Be brief.")
    words = ["--replay-model", "jobs/then", "--on-difference", "position"]
    ran = run(proctor, *words, tasks="tasks/one")
    assert ran.code == 0, ran.out + ran.err
    [result] = load_results("now")
    assert result["verifier_result"]["rewards"] == {"reward": 1}
    [trial] = find_trials("now")
    findings = json.loads((trial / "findings.json").read_text())
    [found] = [each for each in findings if each["code"] == "model-replay-differs"]
    assert found["message"].startswith("request 1 differs from ")
    assert found["detail"]["n_replayed"] == 3


def test_live_the_provider_is_asked_from_the_first_difference_on(
    proctor: Proctor, here: Path
) -> None:
    record(proctor, tasks="tasks/one")
    make_agent(here / "agent", " Be brief.")
    words = ["--replay-model", "jobs/then", "--on-difference", "live"]
    ran = run(proctor, *words, tasks="tasks/one")
    assert ran.code == 2
    assert "may have to ask openai, for which there is no key: set OPENAI_API_KEY" in ran.err
    with running(ByLength()) as provider:
        words += ["--model-endpoint", f"openai={provider.origin}/v1"]
        ran = run(proctor, *words, tasks="tasks/one")
    assert ran.code == 0, ran.out + ran.err
    assert len(provider.asked) == 3
    assert "model answers: 0 of 3 requests answered" in ran.out


def test_a_resumed_job_gives_each_trial_its_own_recording(proctor: Proctor, here: Path) -> None:
    record(proctor, "-k", 2, tasks="tasks/one")
    assert run(proctor, "--replay-model", "jobs/then", "-k", 2, tasks="tasks/one").code == 0
    first, second = find_trials("now")
    sources = {_find_source(first): first, _find_source(second): second}
    assert len(sources) == 2
    # As a run that was killed: one trial has no result.
    source = _find_source(second)
    (second / "result.json").unlink()
    ran = proctor("resume", "jobs/now")
    assert ran.code == 0, ran.out + ran.err
    assert "model answers: 6 of 6 requests answered" in ran.out
    assert _find_source(second) == source


def _find_source(trial: Path) -> str:
    result = json.loads((trial / "result.json").read_text())
    return str(result["agent_result"]["metadata"]["model_replay"]["source"])


def test_what_cannot_be_replayed_is_refused_before_anything_runs(
    proctor: Proctor, here: Path
) -> None:
    record(proctor, tasks="tasks/one")
    [trial] = find_trials("then")
    again = ["--replay-model", trial]
    refusals: list[tuple[list[object], str, str]] = [
        (
            [*again, "-k", 2],
            "tasks/one",
            "no recording is left for 1 trial of 2 trials .one.",
        ),
        (again, "tasks", r"no recording is left for 1 trial of 2 trials \(two\)"),
        (["--replay-model", "gone"], "tasks/one", "gone: no such directory; expected"),
        (["--replay-model", "tasks"], "tasks/one", "no agent/model-calls.jsonl in it"),
        ([*again, "--no-gateway"], "tasks/one", "--no-gateway cannot be combined with"),
        (["--on-difference", "live"], "tasks/one", "--on-difference requires --replay-model"),
    ]
    for words, tasks, sentence in refusals:
        ran = run(proctor, *words, tasks=tasks)
        assert ran.code == 2, (words, ran.out)
        assert re.search(sentence, " ".join(ran.err.split())), ran.err
    oracle = ["-p", "tasks/one", "-a", "oracle", "--no-ledger", *again]
    ran = proctor("run", *oracle)
    assert ran.code == 2
    assert "agent oracle does not reach models through the gateway" in ran.err
    assert not Path("jobs/now").exists()


def test_recordings_behind_links_are_not_used(proctor: Proctor, here: Path) -> None:
    record(proctor, tasks="tasks/one")
    [trial] = find_trials("then")
    file = trial / "agent" / "model-calls.jsonl"
    shutil.move(file, here / "elsewhere.jsonl")
    file.symlink_to(here / "elsewhere.jsonl")
    ran = run(proctor, "--replay-model", trial, tasks="tasks/one")
    assert ran.code == 2
    assert "no agent/model-calls.jsonl in it" in ran.err
