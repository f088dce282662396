"""What nodes have and lack, in sentences."""

import platform

import pytest

from proctor import __version__
from proctor.cluster.connection import find_address
from proctor.cluster.nodes import (
    Demand,
    Node,
    NodeReport,
    check_fit,
    check_portable,
    check_reports,
    count_trials,
    read_nodes,
)
from proctor.errors import ClusterError
from proctor.harbor.configs import EnvironmentConfig

SMALL = Node("1", "small (10.0.0.1)", 4, 8192)
LARGE = Node("2", "large (10.0.0.2)", 16, 65536)
PYTHON = platform.python_version()


def test_dead_nodes_and_those_without_processors_run_nothing() -> None:
    described = [
        {
            "NodeID": name,
            "NodeManagerHostname": name,
            "NodeManagerAddress": "10.0.0.1",
            "Alive": alive,
            "Resources": resources,
        }
        for name, alive, resources in (
            ("works", True, {"CPU": 4.0, "memory": 8192.0 * (1 << 20)}),
            ("dead", False, {"CPU": 4.0, "memory": 1.0}),
            ("head", True, {"memory": 1.0}),
        )
    ]
    assert read_nodes(described) == [Node("works", "works (10.0.0.1)", 4, 8192)]


@pytest.mark.parametrize(
    ("demand", "n"),
    [
        (Demand(1, 2048), 4 + 16),
        (Demand(4, 2048), 1 + 4),
        (Demand(1, 8192), 1 + 8),
        (Demand(8, 2048), 2),
    ],
)
def test_as_many_trials_fit_as_processors_and_memory_allow(demand: Demand, n: int) -> None:
    assert count_trials([SMALL, LARGE], [demand]) == n


def test_a_task_that_fits_nowhere_is_named() -> None:
    check_fit([SMALL, LARGE], {"a": Demand(16, 65536)})
    with pytest.raises(ClusterError, match=r"fits task b: it takes 32 CPUs, 2,048 MiB"):
        check_fit([SMALL, LARGE], {"a": Demand(1, 1), "b": Demand(32, 2048)})
    with pytest.raises(ClusterError, match="no node that runs trials"):
        check_fit([], {})
    with pytest.raises(ClusterError, match="1 GPU"):
        check_fit([LARGE], {"a": Demand(1, 1, 1)})


@pytest.mark.parametrize(
    ("report", "said"),
    [
        (NodeReport("n", "0.0.1", PYTHON), "n has proctor 0.0.1, and this machine"),
        (NodeReport("n", __version__, "3.9.1"), "n has Python 3.9.1, and this machine"),
        (NodeReport("n", __version__, PYTHON, "no overlays"), "n: no overlays"),
        (NodeReport("n", __version__, PYTHON, needs_token=False), "without RAY_AUTH_MODE=token"),
    ],
)
def test_a_node_that_differs_is_refused(report: NodeReport, said: str) -> None:
    good = NodeReport("good", __version__, PYTHON)
    check_reports([good], is_insecure=False)
    with pytest.raises(ClusterError, match=said):
        check_reports([good, report], is_insecure=False)


def test_a_node_without_a_token_may_be_used_if_wanted() -> None:
    open_node = NodeReport("n", __version__, PYTHON, needs_token=False)
    check_reports([open_node], is_insecure=True)


def test_many_problems_are_cut() -> None:
    with pytest.raises(ClusterError, match="and 2 other nodes"):
        check_reports([NodeReport(f"n{n}", "0", PYTHON) for n in range(5)], is_insecure=False)


@pytest.mark.parametrize(
    ("on", "environ", "found"),
    [
        ("ray://h:1", {}, "ray://h:1"),
        ("ray", {"RAY_ADDRESS": "h:6379"}, "h:6379"),
        ("ray", {"RAY_ADDRESS": "ray://h:10001"}, "ray://h:10001"),
    ],
)
def test_an_address_is_given_or_in_the_environment(
    on: str, environ: dict[str, str], found: str
) -> None:
    assert find_address(on, environ) == found


@pytest.mark.parametrize("on", ["ray", "ray://host", "ray://:1", "ray://h:x"])
def test_what_is_no_address_is_refused(on: str) -> None:
    with pytest.raises(ClusterError):
        find_address(on, {})


@pytest.mark.parametrize(
    ("environment", "said"),
    [
        (EnvironmentConfig(kwargs={"host_ports": "127.0.0.1:80"}), "--allow-host-port"),
        (EnvironmentConfig(mounts=[{"type": "bind", "source": "/a", "target": "/b"}]), "mounts"),
    ],
)
def test_what_only_this_machine_has_is_refused(environment: EnvironmentConfig, said: str) -> None:
    check_portable(EnvironmentConfig())
    with pytest.raises(ClusterError, match=said):
        check_portable(environment)
