"""Unmodified agents of others reach their model through the gateway, without a key of the host."""

import json
import shutil

import pytest

from tests.agents.model_server import terminal_turn
from tests.faults.site import load
from tests.gateway.images import PROGRAM
from tests.gateway.packages import find_claude
from tests.gateway.providers import Reply
from tests.gateway.trials import Runs

GREET = "echo hello > /tmp/f && echo made"
TITLE = '{"title": "Say hello"}'
SONNET = "claude-sonnet-4-5-20250929"


def test_mini_swe_agent_is_recorded_as_its_provider_counts(runs: Runs, mini_image: str) -> None:
    submit = "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"
    runs.provider.script = [
        Reply(text="I write it.", command=GREET),
        Reply(text="Done.", command=submit, input_tokens=200, cached_tokens=50),
    ]
    mini = f"{PROGRAM} -m minisweagent.run.mini"
    command = f'{mini} -y --exit-immediately -m "$PROCTOR_MODEL" -t "$(cat)" -o /tmp/mini.json'
    settings = ("MSWEA_CONFIGURED=true", "MSWEA_SILENT_STARTUP=1")
    words = ("-m", "openai/gpt-4o", "--command", command)
    more = [word for each in settings for word in ("--ae", each)]
    ran = runs.run("-p", runs.make_task(mini_image), *words, *more)
    assert (ran.code, runs.site.rewards()) == (0, [1.0]), ran.err
    runs.check_account()
    runs.check_no_key()
    said = [entry.content for entry in runs.trace if entry.role == "assistant"]
    assert said == ["I write it.", "Done."]
    assert [entry.command for entry in runs.trace if entry.role == "tool_call"] == [GREET, submit]


def test_claude_code_is_recorded_as_its_provider_counts(runs: Runs) -> None:
    runs.provider.model, runs.provider.side = SONNET, Reply(text=TITLE)
    runs.provider.script = [
        Reply(text="I write it.", command=GREET, tool="Bash", input_tokens=5000),
        Reply(text="Done.", input_tokens=5100, cached_tokens=5000),
    ]
    claude = '/installed-agent/claude -p "$(cat)" --model "${PROCTOR_MODEL#*/}"'
    command = f"{claude} --dangerously-skip-permissions --output-format json"
    task = runs.make_task("debian:12")
    # As root it asks for a promise that it is in a sandbox.
    words = ("-m", f"anthropic/{SONNET}", "--ae", "IS_SANDBOX=1")
    ran = runs.run("-p", task, *words, "--agent-tree", find_claude(), "--command", command)
    assert (ran.code, runs.site.rewards()) == (0, [1.0]), ran.err
    runs.check_account()
    runs.check_no_key()
    own = json.loads(runs.output[-1])
    assert own["result"] == "Done."
    cost = load(runs.trial / "record.json")["cost"]["estimated_cost_usd"]
    assert abs(own["total_cost_usd"] - cost) < 1e-9
    said = [entry.content for entry in runs.trace if entry.role == "assistant"]
    assert [text for text in said if text != TITLE] == ["I write it.", "Done."]
    (result,) = (entry for entry in runs.trace if entry.role == "tool_result")
    assert (result.stdout or "").strip() == "made"


# harbor's installer is fetched from the network: these are found first, and nothing is fetched.
FETCHED = {
    "apt-get": "#!/bin/sh\n",
    "curl": "#!/bin/sh\necho 'mkdir -p ~/.local/bin && ln -s /opt/claude ~/.local/bin/claude'\n",
}


@pytest.mark.harbor
def test_harbors_claude_code_is_recorded_as_its_provider_counts(runs: Runs) -> None:
    runs.provider.model, runs.provider.side = SONNET, Reply(text=TITLE)
    runs.provider.script = [
        Reply(text="I write it.", command=GREET, tool="Bash", input_tokens=5000),
        Reply(text="Done.", input_tokens=5100, cached_tokens=5000),
    ]
    task = runs.make_task("debian:12")
    place = task / "environment"
    shutil.copy2(find_claude() / "claude", place)
    for name, text in FETCHED.items():
        (place / name).write_text(text)
        (place / name).chmod(0o755)
    with (place / "Dockerfile").open("a") as file:
        file.write("COPY claude /opt/claude\nCOPY apt-get curl /usr/local/bin/\n")
    ran = runs.run("-p", task, "-a", "claude-code", "-m", f"anthropic/{SONNET}")
    assert (ran.code, runs.site.rewards()) == (0, [1.0]), ran.err
    assert {asked.body["model"] for asked in runs.provider.asked} == {SONNET}
    runs.check_account()
    runs.check_no_key()
    said = [entry.content for entry in runs.trace if entry.role == "assistant"]
    assert [text for text in said if text != TITLE] == ["I write it.", "Done."]
    assert runs.site.findings() & {"model-use-differs", "models-direct"} == set()


@pytest.mark.harbor
@pytest.mark.skipif(shutil.which("tmux") is None, reason="terminus-2 needs tmux")
def test_terminus_2_is_recorded_as_its_provider_counts(runs: Runs) -> None:
    runs.provider.script = [
        Reply(text=terminal_turn("echo hello > /tmp/f\n")),
        Reply(text=terminal_turn(done=True), input_tokens=200, cached_tokens=100),
        # It asks whether that is sure.
        Reply(text=terminal_turn(done=True), input_tokens=300, cached_tokens=200),
    ]
    task = runs.make_task("debian:12")
    # No recording: that would be installed first.
    words = ("-a", "terminus-2", "-m", "openai/gpt-4o", "--ak", "record_terminal_session=false")
    ran = runs.run("-p", task, *words)
    assert (ran.code, runs.site.rewards()) == (0, [1.0]), ran.err
    runs.check_account()
    runs.check_no_key()
    assert "model-use-differs" not in runs.site.findings()
