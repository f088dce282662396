"""Every golden vector of rewards and their arithmetic, replayed: values, types, bits, messages."""

import pytest

from tests.conformance import ours
from tests.conformance.facts import difference
from tests.conformance.vectors import Line, line_params


@pytest.mark.parametrize("line", line_params("reward_parse"))
def test_reward_files_give_what_harbor_reads(line: Line) -> None:
    assert difference(line["expect"], ours.parse_rewards(line["input"])) is None


@pytest.mark.parametrize("line", line_params("metrics"))
def test_metrics_give_what_harbor_computes(line: Line) -> None:
    assert difference(line["expect"], ours.run_metric(line["input"])) is None


@pytest.mark.parametrize("line", line_params("pass_at_k"))
def test_pass_at_k_gives_what_harbor_computes(line: Line) -> None:
    assert difference(line["expect"], ours.run_pass_at_k(line["input"])) is None


@pytest.mark.parametrize("line", line_params("multi_step"))
def test_steps_give_what_harbor_selects(line: Line) -> None:
    assert difference(line["expect"], ours.run_steps(line["input"])) is None
