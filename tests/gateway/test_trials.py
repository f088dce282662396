"""How trials with a model end: limits, outages, steps, tests that ask a model, containers."""

import json
import shutil
from pathlib import Path

import pytest

from proctor.errors import ModelServerError
from proctor.gateway.recording import read_calls
from tests.faults.site import load
from tests.gateway.images import PROGRAM
from tests.gateway.providers import KEY, Reply
from tests.gateway.trials import PROGRAMS, Runs

ALWAYS = "echo 1 > /logs/verifier/reward.txt\n"
GPT = "openai/gpt-4o"
NOW = (("retry-after-ms", "1"),)


def show(runs: Runs) -> str:
    return runs.site.proctor("show", runs.trial).out


def find_cause(runs: Runs) -> tuple[str, str]:
    """Why the trial did not pass, by its summary."""
    told = json.loads(runs.site.proctor("trace", "summary", runs.trial, "--json").out)
    (trial,) = told["trials"]
    return trial["cause"]["kind"], trial["cause"]["rule"]


@pytest.mark.parametrize(
    ("limit", "sentence", "n_answered"),
    [
        (
            "trial_limits: {requests: 2}",
            "requests of a trial, at most 2, 2 spent",
            2,
        ),
        # Each costs $0.00045.
        ("trial_limits: {cost_usd: 0.0008}", "cost of a trial, at most $0.0008", 2),
        (
            "trial_limits: {tokens: 250}",
            "tokens of a trial, at most 250, 240 spent",
            2,
        ),
        ("job_limits: {requests: 1}", "requests of a job, at most 1, 1 spent", 1),
    ],
)
def test_a_limit_ends_the_trial_which_is_verified_and_says_so(
    runs: Runs,
    clients_image: str,
    tmp_path: Path,
    limit: str,
    sentence: str,
    n_answered: int,
) -> None:
    config = tmp_path / "limits.yaml"
    config.write_text(f"proctor: {{models: {{{limit}}}}}\n")
    ran = runs.run_program(runs.make_task(clients_image), GPT, "asking_agent.py 5", "-c", config)
    assert runs.site.rewards() == [0.0]
    ((kind, message),) = runs.site.errors()
    assert kind == "ModelLimitError"
    assert find_cause(runs) == ("limit", "limit")
    assert f"limit reached: {sentence}" in message
    assert len(runs.provider.asked) == n_answered
    runs.check_account()
    runs.check_no_key()
    assert "limit reached: " in ran.err
    assert "limit reached: " in show(runs)


def test_an_outage_is_the_infrastructures_and_not_the_agents(
    runs: Runs, clients_image: str
) -> None:
    runs.provider.script = [Reply(text="fine"), Reply(status=503, error="down", headers=NOW)]
    ran = runs.run_program(runs.make_task(clients_image), GPT, "asking_agent.py 2")
    assert ran.code == 3, ran.err
    ((kind, message),) = runs.site.errors()
    assert kind == "ModelServerError"
    assert "status 503 after 6 retries" in message
    record = load(runs.trial / "record.json")
    (reason,) = record["evaluation"]["error_taxonomy"]
    assert reason["category"] == ModelServerError.reason_code
    assert find_cause(runs) == ("infrastructure", "model-endpoint")
    assert load(runs.trial / "result.json")["agent_result"]["n_input_tokens"] == 100
    assert [len(each.call.retries) for each in runs.calls] == [0, 6]
    runs.check_no_key()


STEPS = """
[[steps]]
name = "one"

[[steps]]
name = "two"
"""


def test_each_step_has_its_own_tokens(runs: Runs, clients_image: str) -> None:
    task = runs.make_task(clients_image, toml=STEPS)
    for name in ("one", "two"):
        (task / "steps" / name / "tests").mkdir(parents=True)
        (task / "steps" / name / "instruction.md").write_text(f"Step {name}.\n")
        (task / "steps" / name / "tests" / "test.sh").write_text(ALWAYS)
    runs.provider.script = [Reply(text="a", input_tokens=11), Reply(text="b", input_tokens=22)]
    ran = runs.run_program(task, GPT, "asking_agent.py")
    assert ran.code == 0, ran.err
    steps = load(runs.trial / "result.json")["step_results"]
    assert [each["agent_result"]["n_input_tokens"] for each in steps] == [11, 22]
    recorded = [
        list(read_calls(str(runs.trial / "steps" / name / "agent" / "model-calls.jsonl")))
        for name in ("one", "two")
    ]
    assert [len(calls) for calls in recorded] == [1, 1]
    assert load(runs.trial / "record.json")["cost"]["tokens_in"] == 33
    runs.check_no_key()


ASKS = f"""{PROGRAM} /tests/asking_agent.py > /logs/verifier/said.txt &&
echo 1 > /logs/verifier/reward.txt
"""


@pytest.mark.parametrize("table", ["verifier.env", "environment.env"])
def test_tests_that_ask_a_model_have_an_account_of_their_own(
    runs: Runs, clients_image: str, table: str
) -> None:
    toml = f'[{table}]\nOPENAI_API_KEY = "${{OPENAI_API_KEY}}"\nOPENAI_BASE_URL = "${{JUDGE}}"\n'
    task = runs.make_task(clients_image, test=ASKS, toml=toml)
    shutil.copy(PROGRAMS / "asking_agent.py", task / "tests")
    runs.provider.script = [Reply(text="agent"), Reply(text="judge", input_tokens=999)]
    url = f"{runs.provider.origin}/v1"
    config = task.parent / "limits.yaml"
    config.write_text("proctor: {models: {trial_limits: {requests: 1}}}\n")
    words = ("-m", GPT, "--agent-tree", PROGRAMS, "-c", config, "--yes", "--no-clean-room")
    command = f"{PROGRAM} /installed-agent/asking_agent.py"
    ran = runs.run("-p", task, *words, "--command", command, JUDGE=url)
    assert (ran.code, runs.site.rewards()) == (0, [1.0]), ran.err
    used = load(runs.trial / "result.json")["agent_result"]
    assert (used["n_input_tokens"], used["metadata"]["model_requests"]) == (100, 1)
    (judged,) = read_calls(str(runs.trial / "verifier-models" / "model-calls.jsonl"))
    assert b"judge" in judged.response
    env = json.loads((runs.trial / "verifier" / "said.txt").read_text().splitlines()[0])
    assert env["OPENAI_API_KEY"] != json.loads(runs.output[0])["OPENAI_API_KEY"]
    runs.check_no_key()


def test_without_the_gateway_the_agent_has_the_key_and_a_finding_says_so(
    runs: Runs, clients_image: str
) -> None:
    task = runs.make_task(clients_image, test=ALWAYS)
    words = ("-a", "chat", "-m", GPT, "--ak", f"base_url={runs.provider.origin}/v1")
    ran = runs.site.run("-p", task, *words, "--no-gateway", OPENAI_API_KEY=KEY)
    assert ran.code == 0, ran.err
    assert "models-direct" in runs.site.findings()
    assert not (runs.trial / "agent" / "model-calls.jsonl").exists()
    (asked,) = runs.provider.asked
    assert asked.headers["authorization"] == f"Bearer {KEY}"
