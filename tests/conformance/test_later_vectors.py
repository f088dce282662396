"""The profile harbor-0.25: what the real harbor 0.25.0 reads in reward files, and 0.13.1 otherwise.

Everything else of scoring is the same in both: metrics, pass@k and steps have no vectors here.
"""

from pathlib import Path

import pytest

from proctor.reward.profile import HARBOR_0_25
from tests.conformance import ours
from tests.conformance.facts import difference
from tests.conformance.later import run_later, run_with
from tests.conformance.vectors import Line, line_params, load_lines

CHANGED = {line["id"] for line in load_lines("later_reward_parse")}
UNCHANGED = [line for line in load_lines("reward_parse") if line["id"] not in CHANGED]


@pytest.mark.parametrize("line", line_params("later_reward_parse"))
def test_reward_files_give_what_the_later_harbor_reads(line: Line) -> None:
    assert difference(line["expect"], ours.parse_rewards(line["input"], HARBOR_0_25)) is None


def test_all_other_reward_files_give_what_both_read() -> None:
    found = [
        difference(line["expect"], ours.parse_rewards(line["input"], HARBOR_0_25))
        for line in UNCHANGED
    ]
    assert len(found) > 100
    assert [text for text in found if text] == []


AGENTS_OF_THE_WHEEL = """
from harbor.agents.factory import AgentFactory
from harbor.models.environment_type import EnvironmentType
from proctor.agents.foreign import load_agent_class
from proctor.agents.foreign import check_makeable, find_carrier
from proctor.harbor.agents import ALL_AGENTS, find_import_path
from proctor.harbor.configs import HARBOR_ENVIRONMENTS, AgentConfig

assert HARBOR_ENVIRONMENTS - {"wandb"} == {each.value for each in EnvironmentType} - {"docker"}
assert set(ALL_AGENTS) == set(AgentFactory.registered_names()) - {"oracle", "nop"}
for name in ALL_AGENTS:
    load_agent_class(find_import_path(AgentConfig(name=name)))
for name in ("claude-code", "codex", "terminus-2", "vibe"):
    check_makeable(AgentConfig(name=name, model_name="openai/gpt-5"))
assert find_carrier(AgentConfig(name="codex")) == "harbor==0.25.0"
"""


@pytest.mark.soak
def test_the_agents_and_environments_of_the_later_harbor_are_known(wheel: Path) -> None:
    run_with(wheel, "-c", AGENTS_OF_THE_WHEEL)


@pytest.mark.soak
def test_the_later_harbor_still_gives_the_vectors(wheel: Path) -> None:
    found = run_later(wheel)
    assert found.pop("reward_parse") == load_lines("later_reward_parse")
    assert not any(found.values())
