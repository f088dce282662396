"""The way to the model gateway in trials: open for the agent and the tests, at no other time."""

import asyncio
import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from proctor.environments.sandbox.environment import SandboxEnvironment
from proctor.harbor.trial_result import TrialResult
from proctor.trial.agent import AgentContext, AgentOrder, Kinds
from proctor.trial.environment import Environment
from proctor.trial.trial import run_trial
from tests.environments.model_ports import ASK, answer_at
from tests.environments.test_host_ports import ANSWER, serving
from tests.trial.stage import StageAgent, make_spec, paths_of, write_task

pytestmark = pytest.mark.usefixtures("cache")
NO_NETWORK = '[environment]\nnetwork_mode = "no-network"\n'
TEST = f"""#!/bin/bash
{ASK}
[ "$(ask 127.0.0.1 $(cat /app/port))" = "{ANSWER}" ] && echo 1 > /logs/verifier/reward.txt
"""


@dataclass(frozen=True)
class Gateway:
    """A gateway that only has a port."""

    port: int

    def open_agent(self, *_: object) -> None:
        return None

    def open_verifier(self, *_: object) -> None:
        return None


@dataclass
class Caller(StageAgent):
    """An agent that asks the gateway when it is set up and when it runs."""

    port: int = 0

    async def setup(self, environment: Environment) -> None:
        self.instructions.append(await answer_at(environment, self.port))
        await environment.exec(f"mkdir -p /app; echo {self.port} > /app/port")

    async def run(self, instruction: str, environment: Environment, context: AgentContext) -> None:
        self.instructions.append(await answer_at(environment, self.port))


def run_at(task: Path, trials: Path, port: int, **changes: Any) -> tuple[TrialResult, list[str]]:
    """Run a trial; return what the agent was answered when it was set up and when it ran."""
    spec = replace(make_spec(task, trials), **changes)
    agents: list[Caller] = []
    phases: list[str] = []

    async def do_nothing(environment: Environment, context: AgentContext) -> None:
        """Not called."""

    def make_agent(order: AgentOrder) -> Caller:
        agents.append(Caller(order, do_nothing, port=port))
        return agents[-1]

    kinds = Kinds(make_agent, SandboxEnvironment, Gateway(port))
    result = asyncio.run(run_trial(spec, paths_of(spec).trial_dir, kinds, phases.append))
    assert result.exception_info is None, result.exception_info
    return result, agents[0].instructions


def test_the_agent_and_all_repetitions_of_its_tests_reach_it(tmp_path: Path) -> None:
    task = write_task(tmp_path / "task", {"tests/test.sh": TEST}, NO_NETWORK)
    with serving() as gateway:
        result, answers = run_at(task, tmp_path / "jobs", gateway.port, verify_again=2)
    assert answers == ["", ANSWER]
    assert result.verifier_result is not None
    assert result.verifier_result.rewards == {"reward": 1}
    spec = make_spec(task, tmp_path / "jobs")
    again = json.loads(paths_of(spec).verify_again_path.read_text())
    assert [each["result"] for each in again["states"][0]["verifications"]] == [
        '{"reward": 1.0}'
    ] * 3
    clean = json.loads(paths_of(spec).clean_room_path.read_text())
    assert clean["verdict"] == "agrees"


def test_a_separate_verifier_reaches_it(tmp_path: Path) -> None:
    toml = f'artifacts = ["/app/port"]\n{NO_NETWORK}[verifier]\nenvironment_mode = "separate"\n'
    toml += '[verifier.environment]\nnetwork_mode = "no-network"\n'
    files = {"tests/test.sh": TEST, "tests/Dockerfile": "FROM debian:12\nCOPY . /tests/\n"}
    task = write_task(tmp_path / "task", files, toml)
    with serving() as gateway:
        result, answers = run_at(task, tmp_path / "jobs", gateway.port)
    assert answers == ["", ANSWER]
    assert result.verifier_result is not None
    assert result.verifier_result.rewards == {"reward": 1}
