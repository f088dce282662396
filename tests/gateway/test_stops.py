"""Runners that are killed or interrupted in the middle of model calls, and resumed."""

import json
import re
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from proctor.gateway.recording import read_calls
from tests.faults.site import PATIENCE_SEC, Site, interrupt, load, wait_until
from tests.gateway.providers import Provider, Reply, running
from tests.gateway.trials import KEYS, Runs, price_of, without_keys

GPT = "openai/gpt-4o"
ALWAYS = "echo 1 > /logs/verifier/reward.txt\n"
N_TRIALS, AT_ONCE = 3, 2
_WAY = re.compile(r'(?=.*"OPENAI_BASE_URL": "(?P<url>[^"]+)).*"OPENAI_API_KEY": "(?P<token>[^"]+)')


class Holding(Provider):
    """A provider that answers the first question of each agent, and holds the second back."""

    def __init__(self) -> None:
        super().__init__()
        self.is_released = threading.Event()

    @property
    def n_held(self) -> int:
        """Second questions so far."""
        return sum("Question 1." in json.dumps(each.body) for each in self.asked)

    def take(self, path: str, headers: dict[str, str], body: dict[str, Any]) -> Reply:
        """See Provider."""
        reply = super().take(path, headers, body)
        if "Question 1." in json.dumps(body):
            self.is_released.wait(PATIENCE_SEC)
        return reply


@pytest.fixture
def held(runs: Runs) -> Iterator[Runs]:
    """Runs in front of such a provider."""
    provider = Holding()
    with running(provider):
        try:
            yield Runs(runs.site, provider)
        finally:
            provider.is_released.set()


def words_of(held: Runs, image: str) -> tuple[object, ...]:
    task = held.make_task(image, test=ALWAYS)
    words = held.program_words(task, GPT, "asking_agent.py 3")
    return (*words, "-k", N_TRIALS, "-n", AT_ONCE)


def find_ways(site: Site) -> dict[Path, tuple[str, str]]:
    """The addresses and tokens that agents have printed after their first answers, by trial."""
    found = {}
    for trial in site.trials():
        log = trial / "agent" / "proctor-output.jsonl"
        text = log.read_text() if log.exists() else ""
        if printed := _WAY.search(text.replace("\\", "")):
            found[trial] = printed["url"], printed["token"]
    return found


def ask(url: str, token: str) -> int:
    """The status that a request gets; 0 if nobody listens."""
    body, headers = {"model": "gpt-4o", "messages": []}, {"authorization": f"Bearer {token}"}
    try:
        with httpx.Client(trust_env=False, headers=headers) as client:
            return client.post(f"{url}/chat/completions", json=body).status_code
    except httpx.ConnectError:
        return 0


def check_resumed(held: Runs) -> None:
    """All trials passed in the end, and their costs are the provider's."""
    assert held.site.rewards() == [1.0] * N_TRIALS
    for result in held.site.results():
        assert result["agent_result"]["metadata"]["model_requests"] == 3
        price = price_of([Reply()] * 3, held.provider.model)
        assert abs(result["agent_result"]["cost_usd"] - price) < 1e-9
    held.check_no_key()


def test_a_killed_runner_loses_no_recorded_call_and_its_tokens_work_no_more(
    held: Runs, clients_image: str
) -> None:
    site, provider = held.site, held.provider
    assert isinstance(provider, Holding)
    with held.begun(*words_of(held, clients_image)) as runner:
        wait_until(lambda: provider.n_held == AT_ONCE, runner)
        wait_until(lambda: len(find_ways(site)) == AT_ONCE, runner)
        ways = find_ways(site)
        recorded = {each: (each / "agent/model-calls.jsonl").read_bytes() for each in ways}
        runner.kill()
        assert runner.wait(PATIENCE_SEC) == -signal.SIGKILL
    assert [ask(*way) for way in ways.values()] == [0] * AT_ONCE
    with site.resuming(**{**without_keys(), **KEYS}) as runner:
        wait_until(lambda: provider.n_held == 2 * AT_ONCE, runner)
        wait_until(lambda: len(set(find_ways(site).values()) - set(ways.values())) == AT_ONCE)
        address, _ = (set(find_ways(site).values()) - set(ways.values())).pop()
        assert [ask(address, token) for _, token in ways.values()] == [401] * AT_ONCE
        provider.is_released.set()
        assert runner.wait(PATIENCE_SEC) == 0
    check_resumed(held)
    for trial, before in recorded.items():
        kept = trial / "attempts" / "1" / "agent" / "model-calls.jsonl"
        assert kept.read_bytes() == before
        (call,) = read_calls(str(kept))
        assert (call.call.ended, b"Question 0." in call.request) == ("complete", True)


def test_an_interrupted_runner_has_the_costs_so_far_on_record(
    held: Runs, clients_image: str
) -> None:
    site, provider = held.site, held.provider
    assert isinstance(provider, Holding)
    with held.begun(*words_of(held, clients_image)) as runner:
        wait_until(lambda: provider.n_held == AT_ONCE, runner)
        wait_until(lambda: len(find_ways(site)) == AT_ONCE, runner)
        ways = find_ways(site)
        ran = interrupt(runner)
    assert (ran.code, "Traceback" in ran.err) == (130, False), ran.err
    assert [ask(*way) for way in ways.values()] == [0] * AT_ONCE
    for trial in ways:
        result = load(trial / "result.json")
        assert result["exception_info"]["exception_type"] == "CancelledError"
        used = result["agent_result"]
        assert (used["n_input_tokens"], used["n_output_tokens"]) == (100, 20)
        assert abs(used["cost_usd"] - price_of([Reply()], provider.model)) < 1e-9
        first, second = read_calls(str(trial / "agent/model-calls.jsonl"))
        assert first.call.ended == "complete"
        # Whether the agent was ended first, or its account.
        assert second.call.ended in ("client-gone", "stopped")
    held.check_no_key()
    provider.is_released.set()
    resumed = site.resume(**{**without_keys(), **KEYS})
    assert resumed.code == 0, resumed.err
    check_resumed(held)
