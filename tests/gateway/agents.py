"""Unmodified agents of others as commands, what their provider says to them, and what follows."""

import json
from pathlib import Path

from tests.faults.site import load
from tests.gateway.images import PROGRAM
from tests.gateway.packages import find_claude
from tests.gateway.providers import Reply
from tests.gateway.trials import Runs

GREET = "echo hello > /tmp/f && echo made"
SONNET = "claude-sonnet-4-5-20250929"
_SUBMIT = "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"
_TITLE = '{"title": "Say hello"}'


def check_mini(runs: Runs, image: str, *words: object) -> None:
    """mini-swe-agent does the task, and is recorded as its provider counts."""
    runs.provider.script = [
        Reply(text="I write it.", command=GREET),
        Reply(text="Done.", command=_SUBMIT, input_tokens=200, cached_tokens=50),
    ]
    mini = f"{PROGRAM} -m minisweagent.run.mini"
    command = f'{mini} -y --exit-immediately -m "$PROCTOR_MODEL" -t "$(cat)" -o /tmp/mini.json'
    settings = ("--ae", "MSWEA_CONFIGURED=true", "--ae", "MSWEA_SILENT_STARTUP=1")
    given = ("-p", runs.make_task(image), "-m", "openai/gpt-4o", "--command", command)
    ran = runs.run(*given, *settings, *words)
    assert (ran.code, runs.site.rewards()) == (0, [1.0]), ran.err
    runs.check_account()
    runs.check_no_key()
    said = [entry.content for entry in runs.trace if entry.role == "assistant"]
    assert said == ["I write it.", "Done."]
    commands = [entry.command for entry in runs.trace if entry.role == "tool_call"]
    assert commands == [GREET, _SUBMIT]


def check_claude(runs: Runs, task: Path, *words: object) -> None:
    """claude-code does the task, and is recorded as its provider and as it itself counts."""
    script_claude(runs)
    claude = '/installed-agent/claude -p "$(cat)" --model "${PROCTOR_MODEL#*/}"'
    command = f"{claude} --dangerously-skip-permissions --output-format json"
    # As root it asks for a promise that it is in a sandbox.
    given = ("-p", task, "-m", f"anthropic/{SONNET}", "--ae", "IS_SANDBOX=1")
    tree = ("--agent-tree", find_claude())
    ran = runs.run(*given, *tree, "--command", command, *words)
    assert (ran.code, runs.site.rewards()) == (0, [1.0]), ran.err
    check_claudes_calls(runs)
    own = json.loads(runs.output[-1])
    assert own["result"] == "Done."
    cost = load(runs.trial / "record.json")["cost"]["estimated_cost_usd"]
    assert abs(own["total_cost_usd"] - cost) < 1e-9


def script_claude(runs: Runs) -> None:
    """What claude-code is told."""
    runs.provider.model, runs.provider.side = SONNET, Reply(text=_TITLE)
    runs.provider.script = [
        Reply(text="I write it.", command=GREET, tool="Bash", input_tokens=5000),
        Reply(text="Done.", input_tokens=5100, cached_tokens=5000),
    ]


def check_claudes_calls(runs: Runs) -> None:
    """What claude-code asked, and what it was told, is on record."""
    assert {asked.body["model"] for asked in runs.provider.asked} == {SONNET}
    runs.check_account()
    runs.check_no_key()
    said = [entry.content for entry in runs.trace if entry.role == "assistant"]
    assert [text for text in said if text != _TITLE] == ["I write it.", "Done."]
    (result,) = (entry for entry in runs.trace if entry.role == "tool_result")
    assert (result.stdout or "").strip() == "made"
