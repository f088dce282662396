"""Clients and agents in containers without a network reach their model, and nothing else."""

import json
import shutil

import pytest

from tests.environments.docker.engine import Engine
from tests.environments.sandbox.rootfs import libraries_of
from tests.gateway.agents import SONNET, check_claude, check_mini
from tests.gateway.images import CLIENTS, MINI, find_image
from tests.gateway.packages import find_claude
from tests.gateway.providers import Reply
from tests.gateway.trials import NO_WAY, Runs

pytestmark = pytest.mark.docker

ALWAYS = "echo 1 > /logs/verifier/reward.txt\n"
IN_DOCKER = ("-e", "docker")


@pytest.fixture(scope="module")
def clients(shared_engine: Engine) -> str:
    """An image with the clients of OpenAI and Anthropic."""
    shared_engine.docker("import", find_image("clients", CLIENTS), "clients:1")
    return "clients:1"


@pytest.fixture(scope="module")
def mini(shared_engine: Engine) -> str:
    """An image with mini-swe-agent."""
    shared_engine.docker("import", find_image("mini", MINI), "mini:1")
    return "mini:1"


@pytest.mark.usefixtures("engine")
@pytest.mark.parametrize(
    ("talk", "model", "answering"),
    [
        ("openai-chat", "openai/gpt-4o", "gpt-4o-2024-08-06"),
        ("anthropic", f"anthropic/{SONNET}", SONNET),
    ],
)
def test_a_client_in_a_container_without_a_network_reaches_its_model(
    runs: Runs, clients: str, talk: str, model: str, answering: str
) -> None:
    runs.provider.script = [Reply(text="a"), Reply(text="b", input_tokens=200)]
    runs.provider.model = answering
    task = runs.make_task(clients, test=ALWAYS)
    ran = runs.run_program(task, model, f"client_agent.py {talk}", *IN_DOCKER)
    assert (ran.code, runs.site.rewards()) == (0, [1.0]), ran.err
    assert [json.loads(line) for line in runs.output[2:]] == ["a", "b"]
    assert json.loads(runs.output[1]) == NO_WAY
    runs.check_account()
    runs.check_no_key()


# The agent itself is tested in the sandbox, and the way out of a container by the others here.
@pytest.mark.soak
@pytest.mark.usefixtures("engine")
def test_mini_swe_agent_in_a_container_without_a_network_reaches_its_model(
    runs: Runs, mini: str
) -> None:
    check_mini(runs, mini, *IN_DOCKER)


@pytest.mark.usefixtures("engine")
def test_claude_code_in_a_container_without_a_network_reaches_its_model(
    runs: Runs, clients: str
) -> None:
    task = runs.make_task(clients)
    place = task / "environment"
    with (place / "Dockerfile").open("a") as file:
        for library in libraries_of(str(find_claude() / "claude")):
            shutil.copy2(library.resolve(), place / library.name)
            file.write(f"COPY {library.name} {library}\n")
    check_claude(runs, task, *IN_DOCKER)
