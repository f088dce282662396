"""Where `--on` sends the trials of a job, before anything is connected."""

import subprocess
from collections.abc import Mapping
from importlib import util
from types import SimpleNamespace

import click
import pytest

from proctor.cli.running.place import Place, choose_place
from proctor.cluster.executor import OnCluster
from proctor.cluster.shipping import HELD, find_variables
from proctor.errors import ClusterError
from proctor.harbor.configs import AgentConfig
from tests.cluster.ray_cluster import ROOT
from tests.executors.test_contract import make_spec


def test_this_process_is_the_default() -> None:
    assert choose_place("local", is_insecure=False) is None


@pytest.mark.parametrize("on", ["ray", "ray://host:10001"])
def test_a_cluster_is_named(on: str) -> None:
    assert choose_place(on, is_insecure=True) == OnCluster(on, is_insecure=True)


@pytest.mark.parametrize("on", ["slurp", "host:6379"])
def test_another_place_is_wrong_usage(on: str) -> None:
    with pytest.raises(click.BadParameter, match="expected local, ray or ray://HOST:PORT"):
        Place().convert(on, None, None)


def test_this_process_has_no_token() -> None:
    with pytest.raises(click.UsageError, match="--insecure-cluster requires --on ray"):
        choose_place("local", is_insecure=True)


def test_without_ray_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    there: Mapping[str, object] = {"grpc": SimpleNamespace()}
    monkeypatch.setattr(util, "find_spec", there.get)
    with pytest.raises(ClusterError, match=r"pip install 'proctor\[ray\]'"):
        choose_place("ray", is_insecure=False)


def test_only_named_variables_travel_and_keys_stay_with_the_gateway(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    who = AgentConfig(
        name="command",
        kwargs={"command": "true"},
        env={"A": "${NAMED}", "OPENAI_API_KEY": "${OPENAI_API_KEY}", "B": "${MISSING:-x}"},
    )
    spec = make_spec(tmp_path_factory.mktemp("spec"), who)
    host = {"NAMED": "1", "OPENAI_API_KEY": "sk-1", "OTHER": "2", "ANTHROPIC_API_KEY": "sk-2"}
    assert find_variables(spec, host) == {"NAMED": "1", "OPENAI_API_KEY": "sk-1"}
    served = find_variables(spec, host, is_served=True)
    assert served == {"NAMED": "1", "OPENAI_API_KEY": HELD}


def test_the_batch_script_for_slurm_is_valid() -> None:
    subprocess.run(["bash", "-n", ROOT / "examples" / "slurm.sbatch"], check=True)
