"""Whole trials of `chat`: the real program, the real sandbox, an endpoint on loopback."""

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from proctor.traces.trajectory import load_trajectory
from tests.agents.chat.server import MODEL, Server, calls, refuses, runs, says, serving, waits
from tests.agents.chat.talks import KEY
from tests.cli.programs import Proctor, run_here
from tests.faults.conftest import site as site  # a fixture
from tests.faults.site import PATIENCE_SEC, Site, load, wait_until

GREETS = "mkdir -p /app && echo hello > /app/f"
CHECK = "if grep -qx hello /app/f; then echo 1; else echo 0; fi > /logs/verifier/reward.txt\n"


def chat_with(server: Server, *further: object) -> tuple[object, ...]:
    return ("-a", "chat", "-m", "openai/gpt-4o", "--ak", f"base_url={server.url}", *further)


def chat_in_config(model: str, **kwargs: object) -> dict[str, object]:
    return {
        "name": "chat",
        "model_name": model,
        "kwargs": kwargs,
        "env": {"OPENAI_API_KEY": "${OPENAI_API_KEY}"},
    }


def trace_of(trial: Path) -> list[Any]:
    return load_trajectory(str(trial / "agent" / "trajectory.jsonl")).entries


def files_with(key: str, top: Path) -> list[Path]:
    return [path for path in top.rglob("*") if path.is_file() and key.encode() in path.read_bytes()]


def test_a_model_solves_a_task_and_the_record_says_at_what_price(site: Site) -> None:
    task = site.make_task("t", test=CHECK)
    with serving(runs("env", GREETS, text=f"My key is {KEY}"), says("Done.")) as up:
        ran = site.run("-p", task, *chat_with(up), OPENAI_API_KEY=KEY)
    assert (ran.code, site.rewards()) == (0, [1.0]), ran.err
    assert up.asked[0].headers["authorization"] == f"Bearer {KEY}"
    (trial,), (result,) = site.trials(), site.results()
    assert result["agent_info"]["model_info"] == {"name": "gpt-4o", "provider": "openai"}
    said = result["agent_result"]
    counts = (said["n_input_tokens"], said["n_cache_tokens"], said["n_output_tokens"])
    assert (counts, said["cost_usd"]) == ((200, 80, 20), 0.0006)
    assert said["metadata"]["models"] == [MODEL]
    record = load(trial / "record.json")
    assert record["agent"]["model"] == MODEL  # not the name that was asked for
    assert record["cost"]["estimated_cost_usd"] == 0.0006
    assert record["outputs"]["trajectory_path"] == "agent/trajectory.jsonl"
    assert record["inputs"]["system_prompt"].startswith("You are working on a computer")
    assert record["completeness"] == "complete"
    assert [entry.role for entry in trace_of(trial)].count("tool_result") == 2
    assert files_with(KEY, site.top) == []
    made = site.top / "made.json"
    trace = trial / "agent" / "trajectory.jsonl"
    assert site.proctor("trace", "convert", trace, "--to", "atif", "-o", made).code == 0
    atif = load(made)
    assert atif["agent"]["model_name"] == "openai/gpt-4o"
    assert atif["steps"][2]["metrics"]["prompt_tokens"] == 100
    site.check_nothing_left()


def test_a_limit_is_verified_and_an_endpoint_that_refuses_is_an_errored_trial(site: Site) -> None:
    task = site.make_task("t", test=CHECK)
    with serving(runs(GREETS)) as endless, serving(refuses(401, f"wrong: {KEY}")) as refusing:
        agents = [
            chat_in_config("endless", base_url=endless.url, max_turns=3),
            chat_in_config("refused", base_url=refusing.url),
        ]
        job = site.top / "job.json"
        job.write_text(json.dumps({"agents": agents, "tasks": [{"path": str(task)}]}))
        ran = site.run("-c", job, OPENAI_API_KEY=KEY)
    assert ran.code == 3, ran.err
    trials = {
        load(trial / "result.json")["config"]["agent"]["model_name"]: trial
        for trial in site.trials()
    }
    result = load(trials["endless"] / "result.json")
    assert (result["exception_info"], result["verifier_result"]["rewards"]["reward"]) == (None, 1)
    limit = {"name": "max_turns", "limit": 3, "reached": 3}
    assert result["agent_result"]["metadata"]["limit"] == limit
    error = load(trials["refused"] / "result.json")["exception_info"]
    assert error["exception_type"] == "ModelAuthError"
    assert "HTTP 401: wrong: [redacted:OPENAI_API_KEY]; is OPENAI_API_KEY" in str(error)
    record = load(trials["refused"] / "record.json")
    assert record["evaluation"]["error_taxonomy"][0]["category"] == "harbor_trial_failed"
    assert files_with(KEY, site.top) == []


def test_a_killed_run_keeps_what_was_said_and_resume_goes_on(site: Site) -> None:
    task = site.make_task("t", test=CHECK)
    with serving(runs(GREETS, text="First."), waits(), runs(GREETS), says("Done.")) as up:
        with site.begun("-p", task, *chat_with(up)) as runner:
            wait_until(lambda: len(up.asked) == 2, runner)
            runner.kill()
            assert runner.wait(PATIENCE_SEC) == -signal.SIGKILL
        (trial,) = site.trials()
        kept = (trial / "agent" / "trajectory.jsonl").read_bytes()
        resumed = site.resume()
    assert (resumed.code, site.rewards()) == (0, [1.0]), resumed.err
    (attempt,) = (trial / "attempts").iterdir()
    assert (attempt / "agent" / "trajectory.jsonl").read_bytes() == kept
    roles = [entry.role for entry in trace_of(attempt)]
    assert roles == ["system", "user", "assistant", "tool_call", "tool_result"]
    assert [entry.role for entry in trace_of(trial)][-1] == "assistant"


def test_what_a_model_did_comes_out_again_with_its_blunders(site: Site) -> None:
    task = site.make_task("t", test=CHECK)
    patience = ("--ak", "command_timeout_sec=1", "--ak", "output_limit=200")
    talk = (calls("{", name="python"), runs("exec sleep 600", "seq 999", GREETS), says("Done."))
    with serving(*talk) as up:
        ran = site.run("-p", task, *chat_with(up, *patience))
    assert (ran.code, site.rewards()) == (0, [1.0]), ran.err
    again = site.proctor("audit", site.job, "--rerun", 1, "-o", site.top / "new")
    assert again.code == 0, again.out
    assert "reward 1.0 again, with the recorded answers to all 3 requests" in again.out


@pytest.fixture
def proctor(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Proctor:
    return run_here(monkeypatch, capsys)


HERE = ("--ak", "base_url=http://127.0.0.1:1")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ((), "no endpoint given; pass --ak base_url=https://…/v1"),
        (("--ak", "base_url=here"), "base_url is 'here'; expected a URL such as https://…/v1"),
        (("--ak", "base_url=http://me:pw@h/v1"), "base_url contains a user name or a password"),
        (("--ak", "base_url=ftp://me:pw@h/v1"), "base_url is 'ftp://…@h/v1'; expected a URL"),
        (
            ("--ak", "base_url=http://h/v1?api_key=x"),
            "base_url contains ?api_key=…; expected the key",
        ),
        (("--ak", "base_url=http://h:port/v1"), "base_url is 'http://h:port/v1'; expected a URL"),
        ((*HERE, "--ak", "turns=3"), "turns is unknown; its kwargs are base_url, max_turns"),
        ((*HERE, "--ak", "max_turns=0"), "max_turns is 0: Input should be greater than or equal"),
        ((*HERE, "--ak", "max_turns=true"), "max_turns is True: Input should be a valid integer"),
        ((*HERE, "--ak", "stream=1"), "stream is 1: Input should be a valid boolean"),
        ((*HERE, "--ak", "max_cost_usd=NaN"), "max_cost_usd is nan"),
        ((*HERE, "--ak", 'extra_body={"model": 1}'), "extra_body has model, which chat itself"),
        (
            (*HERE, "--ak", "command_timeout_sec=9000"),
            "command_timeout_sec 9000 is more than max_command_timeout_sec 3600",
        ),
        (
            (*HERE, "--ak", "system_prompt=x", "--ak", "system_prompt_file=y"),
            "both system_prompt and system_prompt_file are given",
        ),
        ((*HERE, "--ak", "system_prompt_file=gone"), "gone: cannot be read: No such file"),
        ((*HERE, "--ae", "OPENAI_API_KEY=a b"), "OPENAI_API_KEY contains blanks"),
    ],
)
def test_what_cannot_be_used_is_a_sentence_before_anything_is_created(
    proctor: Proctor, tmp_path: Path, words: tuple[str, ...], sentence: str
) -> None:
    jobs = tmp_path / "jobs"
    ran = proctor("run", "-p", "examples/tasks", "-o", jobs, "-a", "chat", "-m", "m", *words)
    assert (ran.code, ran.out) == (2, "")
    assert sentence in ran.err
    assert not jobs.exists()


def test_chat_needs_a_model(proctor: Proctor) -> None:
    ran = proctor("run", "-p", "examples/tasks", "-a", "chat", *HERE)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err == "proctor: agent 'chat': no model given; pass -m MODEL\n"


def test_the_url_may_be_the_hosts_and_a_prompt_of_a_file_is_the_revision(
    proctor: Proctor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prompt = tmp_path / "prompt.md"
    prompt.write_text("Be brief.")
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:1/v1/")
    words = ("-a", "chat", "-m", "m", "--ak", f"system_prompt_file={prompt}", "-e", "null")
    ran = proctor("run", "-p", "examples/tasks", *words, "--dry-run", "--json")
    assert ran.code == 0, ran.err
    assert len(json.loads(ran.out)["trials"]) == 2
