"""Agents written for harbor, unchanged: by proctor and by the real harbor, with equal results.

More of them are compared with recorded jobs in test_recorded_jobs.py.
"""

import json
from pathlib import Path

import pytest

from proctor.environments.null import NullEnvironment
from proctor.environments.sandbox.environment import SandboxEnvironment
from tests.lazy_imports import LazyModule
from tests.parity.beside import AS_LISTED, run_ours, run_theirs
from tests.parity.facts import TASKS, load_facts, load_groups
from tests.parity.shared import made_once
from tests.parity.theirs import Harbor
from tests.parity.trees import load_tree

HARBOR = LazyModule("harbor.environments.base")

AGENTS = """
n_attempts: 2
n_concurrent_trials: 6
retry: {max_retries: 2, min_wait_sec: 0.1}
agents:
  - {import_path: "tests.parity.their_agents:Scripted", model_name: acme/x, kwargs: {pattern: 10}}
  - {import_path: "tests.parity.their_agents:Scripted", model_name: model-y}
  - {import_path: "tests.parity.their_agents:Failing", model_name: acme/failing}
  - import_path: tests.parity.their_agents:Hanging
    model_name: hanging
    override_timeout_sec: 1.5
  - {import_path: "tests.parity.their_agents:Flaky", kwargs: {n_fail: 2}}
  - {import_path: "tests.parity.their_agents:Installed", model_name: acme/z}
"""

# What of a name is harbor's own machinery, and is asked of no environment by an agent.
SOMETIMES = {"clean-room.json", "agent/proctor-output.jsonl"}
"""Files that some trials have here: with a reward, or with commands of the agent's own."""
NOT_FOR_AGENTS = {
    "attach", "extra_docker_compose_paths", "preflight", "resource_capabilities",
    "set_network_policy", "validate_network_policy_support", "task_os", "type",
}  # fmt: skip


@pytest.fixture(scope="module")
def jobs(harbor: Harbor, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The same job of harbor and of proctor; not to be changed."""

    def make(place: Path) -> None:
        config = place / "job.yaml"
        config.write_text(f"{AGENTS}datasets: [{{path: {TASKS / 'binary'}}}]\n", encoding="utf-8")
        run_theirs(harbor, "-c", config, jobs=place / "theirs")
        ours = place / "ours.yaml"
        ours.write_text(config.read_text() + AS_LISTED, encoding="utf-8")
        run_ours("-c", ours, jobs=place / "ours")

    place = made_once(tmp_path_factory, "agents", make)
    return place / "theirs" / "job", place / "ours" / "job"


def test_trials_tokens_cost_and_retries_are_as_harbor_has_them(jobs: tuple[Path, Path]) -> None:
    theirs, ours = jobs
    assert load_facts(theirs) == load_facts(ours)
    figures = load_groups(ours)
    assert load_groups(theirs) == figures
    assert figures["n_retries"] == 24
    assert figures["evals"]["scripted__x__binary"]["pass_at_k"] == {"2": 1.0}
    assert figures["cost_usd"] is not None


def test_a_trial_leaves_what_harbors_leaves_and_our_records_besides(
    jobs: tuple[Path, Path],
) -> None:
    theirs, ours = (files_by_agent(job) for job in jobs)
    assert theirs.keys() == ours.keys()
    for agent, files in theirs.items():
        assert files <= ours[agent]
        more = {name for name in ours[agent] - files if not name.startswith("attempts/")}
        assert more - SOMETIMES == {"changes.jsonl", "findings.json", "record.json"}


def files_by_agent(job: Path) -> dict[str, set[str]]:
    """The names of all files of an agent's trials, by agent and model."""
    found: dict[str, set[str]] = {}
    for path in job.glob("*/result.json"):
        agent = json.dumps(json.loads(path.read_text())["agent_info"])
        found.setdefault(agent, set()).update(load_tree(path.parent))
    return found


def test_only_proctor_keeps_what_a_failed_attempt_left(jobs: tuple[Path, Path]) -> None:
    theirs, ours = ([*job.glob("*/attempts/*/result.json")] for job in jobs)
    assert theirs == []
    assert len(ours) == 24
    kinds = {json.loads(path.read_text())["exception_info"]["exception_type"] for path in ours}
    assert kinds == {"ConnectionError", "NonZeroAgentExitCodeError"}


@pytest.mark.parametrize("environment", [SandboxEnvironment, NullEnvironment])
def test_our_environments_have_every_public_name_of_harbors(environment: type) -> None:
    theirs = HARBOR.BaseEnvironment
    names = {*dir(theirs), *theirs.__annotations__}
    public = {name for name in names if not name.startswith("_")}
    instance = {"default_user", "session_id", "trial_paths"}
    # Both attach a shell, for `task try --shell` here.
    attached = {"attach"} if environment is SandboxEnvironment else set()
    assert public - set(dir(environment)) - instance == NOT_FOR_AGENTS - attached
