"""Unmodified agents of others reach their model through the gateway, without a key of the host."""

import shutil

import pytest

from tests.agents.model_server import terminal_turn
from tests.gateway.agents import (
    SONNET,
    check_claude,
    check_claudes_calls,
    check_mini,
    script_claude,
)
from tests.gateway.packages import find_claude
from tests.gateway.providers import Reply
from tests.gateway.trials import Runs


def test_mini_swe_agent_is_recorded_as_its_provider_counts(runs: Runs, mini_image: str) -> None:
    check_mini(runs, mini_image)


def test_claude_code_is_recorded_as_its_provider_counts(runs: Runs) -> None:
    check_claude(runs, runs.make_task("debian:12"))


# harbor's installer is fetched from the network: these are found first, and nothing is fetched.
FETCHED = {
    "apt-get": "#!/bin/sh\n",
    "curl": "#!/bin/sh\necho 'mkdir -p ~/.local/bin && ln -s /opt/claude ~/.local/bin/claude'\n",
}


@pytest.mark.harbor
def test_harbors_claude_code_is_recorded_as_its_provider_counts(runs: Runs) -> None:
    script_claude(runs)
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
    check_claudes_calls(runs)
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
