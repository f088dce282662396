"""Real clients of providers in sandboxes without a network: what is on record is what was said."""

import json

import pytest

from tests.faults.site import load
from tests.gateway.providers import KEY, Reply
from tests.gateway.trials import NO_WAY, Runs

GREET = "echo hello > /tmp/f && echo made"
# A conversation without streaming, and one with it.
SCRIPT = (
    Reply(text="I write it.", command=GREET, input_tokens=100, output_tokens=20),
    Reply(text="It is done.", input_tokens=150, output_tokens=5, cached_tokens=100),
    Reply(text="Once more.", command=GREET, input_tokens=110, output_tokens=21),
    Reply(text="It is done again.", input_tokens=160, output_tokens=6, cached_tokens=110),
)
GPT = "gpt-4o-2024-08-06"


@pytest.mark.parametrize(
    ("talk", "model", "answering"),
    [
        ("openai-chat", "openai/gpt-4o", GPT),
        ("openai-responses", "openai/gpt-4o", GPT),
        ("anthropic", "anthropic/claude-sonnet-4-5-20250929", "claude-sonnet-4-5-20250929"),
        ("gemini", "gemini/gemini-2.5-flash", "gemini-2.5-flash"),
    ],
)
def test_a_client_without_a_key_and_a_network_is_recorded_as_its_provider_counts(
    runs: Runs, clients_image: str, talk: str, model: str, answering: str
) -> None:
    runs.provider.script, runs.provider.model = SCRIPT, answering
    ran = runs.run_program(runs.make_task(clients_image), model, f"client_agent.py {talk}")
    assert (ran.code, runs.site.rewards()) == (0, [1.0]), ran.err
    env, ways, *said = map(json.loads, runs.output)
    assert ways == NO_WAY
    assert said == ["It is done.", "It is done again."]
    runs.check_account()
    runs.check_no_key()
    assert KEY not in env.values()
    record = load(runs.trial / "record.json")
    assert record["outputs"]["trajectory_path"] == "agent/model-trace.jsonl"
    assert record["agent"]["model"] == answering
    assert record["completeness"] == "complete"
    check_trace(runs)


def check_trace(runs: Runs) -> None:
    """Two conversations, each with its call and the result."""
    by_role: dict[str, list[str | None]] = {}
    for entry in runs.trace:
        said = {"tool_call": entry.command, "tool_result": entry.stdout}
        by_role.setdefault(entry.role, []).append(said.get(entry.role, entry.content))
    assert by_role["assistant"] == [reply.text for reply in SCRIPT]
    assert by_role["tool_call"] == [GREET, GREET]
    assert by_role["tool_result"] == ["made\n", "made\n"]
    assert by_role["system"][0] == "Be brief."
    assert [str(text)[:5] for text in by_role["user"]] == ["Do t.", "Do t."]
