"""Trials of real programs that reach a scripted provider through the gateway of their job."""

import json
import os
import subprocess
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from proctor.gateway.recording import RecordedCall, read_calls
from proctor.traces.entry import Entry
from proctor.traces.trajectory import load_trajectory
from tests.cli.programs import Ran
from tests.faults.site import Site, load
from tests.gateway.images import PROGRAM
from tests.gateway.providers import KEY, Provider, Reply

PROGRAMS = Path(__file__).with_name("programs")
PATHS = {"openai": "/v1", "anthropic": "", "gemini": ""}
KEYS = {"OPENAI_API_KEY": KEY, "ANTHROPIC_API_KEY": KEY, "GEMINI_API_KEY": KEY}
NO_WAY = {"provider": False, "elsewhere": False}
"""What a program finds that reaches its model through the gateway, and nothing else."""
HEADERS = ("authorization", "x-api-key", "x-goog-api-key")
PRICES = {
    "gpt-4o-2024-08-06": (2.5, 1.25, 10.0),
    "claude-sonnet-4-5-20250929": (3.0, 0.3, 15.0),
    "gemini-2.5-flash": (0.3, 0.03, 2.5),
}
"""US dollars for a million tokens: input, cached input, output."""
DONE = "if grep -qx hello /tmp/f; then echo 1; else echo 0; fi > /logs/verifier/reward.txt\n"


@dataclass(frozen=True)
class Runs:
    """Runs agents on one task, in front of one provider."""

    site: Site
    provider: Provider

    def make_task(self, image: str, *, test: str = DONE, toml: str = "") -> Path:
        """A task without a network, in an image."""
        task = self.site.make_task("t", test=test, toml=toml)
        (task / "environment" / "Dockerfile").write_text(f"FROM {image}\n")
        return task

    def run(self, *words: object, **changes: str) -> Ran:
        """Run the job; every provider is the scripted one."""
        env = {**without_keys(), **KEYS, **changes}
        return self.site.run(*words, *self.places, **env)

    def begun(self, *words: object) -> AbstractContextManager[subprocess.Popen[str]]:
        """The same, while it runs."""
        return self.site.begun(*words, *self.places, **{**without_keys(), **KEYS})

    def run_program(self, task: Path, model: str, words: str, *further: object) -> Ran:
        """Run a program of `programs` in the task's image."""
        return self.run(*self.program_words(task, model, words), *further)

    def program_words(self, task: Path, model: str, words: str) -> tuple[object, ...]:
        """The arguments that run a program of `programs`."""
        command = f"{PROGRAM} -W ignore /installed-agent/{words}"
        direct = ("--ae", f"DIRECT={self.provider.port}")
        return "-p", task, "-m", model, "--agent-tree", PROGRAMS, "--command", command, *direct

    @property
    def places(self) -> tuple[object, ...]:
        """Arguments that name the provider and the ledger."""
        endpoints = [
            word
            for name, path in PATHS.items()
            for word in ("--model-endpoint", f"{name}={self.provider.origin}{path}")
        ]
        return (*endpoints, "--ledger", self.ledger)

    @property
    def ledger(self) -> Path:
        return self.site.top / "ledger"

    @property
    def trial(self) -> Path:
        """The only trial."""
        (trial,) = self.site.trials()
        return trial

    @property
    def output(self) -> list[str]:
        """The lines that the agent printed."""
        return (self.trial / "agent" / "command.txt").read_text().splitlines()

    @property
    def calls(self) -> list[RecordedCall]:
        """The recorded exchanges."""
        return list(read_calls(str(self.trial / "agent" / "model-calls.jsonl")))

    @property
    def trace(self) -> list[Entry]:
        """The trace made from them."""
        return load_trajectory(str(self.trial / "agent" / "model-trace.jsonl")).entries

    def check_account(self) -> None:
        """Tokens, cost and requests on record are those of the provider's own log."""
        result, record = load(self.trial / "result.json"), load(self.trial / "record.json")
        answered = self.provider.answered
        used, cost = result["agent_result"], record["cost"]
        assert used["n_input_tokens"] == sum(each.input_tokens for each in answered)
        assert used["n_cache_tokens"] == sum(each.cached_tokens for each in answered)
        assert used["n_output_tokens"] == sum(each.output_tokens for each in answered)
        assert used["metadata"]["model_requests"] == len(answered)
        assert used["metadata"]["models"] == [self.provider.model]
        assert (cost["tokens_in"], cost["tokens_out"]) == (
            used["n_input_tokens"],
            used["n_output_tokens"],
        )
        price = price_of(answered, self.provider.model)
        assert abs(cost["estimated_cost_usd"] - price) < 1e-9
        assert abs(used["cost_usd"] - price) < 1e-9
        # What the provider was asked is what is on record, byte for byte but for listed edits.
        # Requests that an agent makes at the same time may reach the provider in another order.
        asked = [[each.path, each.body] for each in self.provider.asked]
        assert sorted(asked, key=_spell) == sorted(self._sent, key=_spell)

    @property
    def _sent(self) -> list[list[Any]]:
        """Path and body of the recorded requests, as the provider got them."""
        sent = []
        for recorded in (each for each in self.calls if each.call.ended != "refused"):
            body = json.loads(recorded.request or b"{}")
            if recorded.call.edits:
                body["stream_options"] = {"include_usage": True}
            sent.append([recorded.call.path, body])
        return sent

    def check_no_key(self) -> None:
        """The host's key reached the provider, and nothing else."""
        for asked in self.provider.asked:
            given = {name.lower(): value for name, value in asked.headers.items()}
            sent = [
                given.get(name, "") for name in ("authorization", "x-api-key", "x-goog-api-key")
            ]
            assert [each.removeprefix("Bearer ") for each in sent if each] == [KEY]
            assert "proctor-" not in json.dumps(asked.headers) + json.dumps(asked.body)
        for top in (self.site.jobs, self.ledger):
            assert [path for path in top.rglob("*") if has_key(path)] == []


def _spell(value: object) -> str:
    return json.dumps(value, sort_keys=True)


def has_key(path: Path) -> bool:
    return path.is_file() and KEY.encode() in path.read_bytes()


def price_of(replies: Sequence[Reply], model: str) -> float:
    """What answers cost, by the provider's own log."""
    whole, cached, output = PRICES[model]
    micro = [
        (each.input_tokens - each.cached_tokens) * whole
        + each.cached_tokens * cached
        + each.output_tokens * output
        for each in replies
    ]
    return sum(micro) / 1e6


def without_keys() -> dict[str, str]:
    """Nothing of whoever runs the tests: neither keys and addresses nor proxies."""
    first = ("OPENAI_", "ANTHROPIC_", "GEMINI_", "GOOGLE_", "CLAUDE_", "AZURE_")
    names = [name for name in os.environ if name.startswith(first) or "proxy" in name.lower()]
    return dict.fromkeys(names, "")
