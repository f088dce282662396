"""What the nodes of a cluster have, what they lack, and how many trials fit. Asks nobody."""

import math
import platform
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from proctor import __version__
from proctor.errors import ClusterError
from proctor.harbor.configs import EnvironmentConfig
from proctor.sentence import count_of
from proctor.task.directory import Task

DEFAULT_CPUS: Final = 1
DEFAULT_MEMORY_MB: Final = 2048
_MEBI: Final = 1 << 20
_MOST_NAMED: Final = 3
_HOST_PORTS: Final = "host_ports"


class Demand(msgspec.Struct, frozen=True):
    """What a trial takes of a node."""

    cpus: float
    memory_mb: int
    gpus: int = 0

    def __str__(self) -> str:
        gpus = f" and {count_of(self.gpus, 'GPU')}" if self.gpus else ""
        return f"{self.cpus:g} CPUs, {self.memory_mb:,} MiB of memory{gpus}"


class Node(msgspec.Struct, frozen=True):
    """A node that is alive."""

    node_id: str
    name: str
    cpus: float
    memory_mb: float
    gpus: float = 0

    def count(self, demand: Demand) -> int:
        """Return how many such trials it holds at once."""
        fits = [self.cpus // demand.cpus, self.memory_mb // demand.memory_mb]
        if demand.gpus:
            fits.append(self.gpus // demand.gpus)
        return math.floor(min(fits))


class NodeReport(msgspec.Struct, frozen=True):
    """What a node says about itself."""

    node: str
    """Name of the machine."""
    proctor: str
    python: str
    problem: str | None = None
    """Why trials cannot run there."""
    needs_token: bool = True
    """Whether its Ray expects a token."""


def find_demand(task: Task, environment: EnvironmentConfig) -> Demand:
    """Return what a trial of a task takes: as the job overrides it, as the task says, else 2 GB."""
    own = task.config.environment
    return Demand(
        environment.override_cpus or own.cpus or DEFAULT_CPUS,
        environment.override_memory_mb or own.memory_mb or DEFAULT_MEMORY_MB,
        environment.override_gpus or own.gpus or 0,
    )


def read_nodes(described: Iterable[Mapping[str, Any]]) -> list[Node]:
    """Read what Ray says about its nodes; those that are dead or run nothing are left out."""
    return [
        Node(
            node_id=str(each["NodeID"]),
            name=f"{each['NodeManagerHostname']} ({each['NodeManagerAddress']})",
            cpus=each["Resources"]["CPU"],
            memory_mb=each["Resources"].get("memory", 0) / _MEBI,
            gpus=each["Resources"].get("GPU", 0),
        )
        for each in described
        if each["Alive"] and each["Resources"].get("CPU", 0) > 0
    ]


def check_fit(nodes: Sequence[Node], demands: Mapping[str, Demand]) -> None:
    """Check that every task fits on some node.

    Raises:
        ClusterError: there is no node, or one that a task needs.
    """
    if not nodes:
        raise ClusterError("the cluster has no node that runs trials; start one with `ray start`")
    unfit = {
        task: demand for task, demand in demands.items() if not any(n.count(demand) for n in nodes)
    }
    if unfit:
        task, demand = next(iter(unfit.items()))
        others = f" (and {count_of(len(unfit) - 1, 'other task')})" if len(unfit) > 1 else ""
        raise ClusterError(
            f"no node of the cluster fits task {task}{others}: it takes {demand}; the largest "
            f"node has {max(n.cpus for n in nodes):g} CPUs, and the most memory of one is "
            f"{max(n.memory_mb for n in nodes):,.0f} MiB. Add a node, or pass --override-cpus or "
            "--override-memory-mb"
        )


def check_portable(environment: EnvironmentConfig) -> None:
    """Check that an environment needs nothing of this machine that does not travel.

    Raises:
        ClusterError: it does; the message names the option.
    """
    if environment.kwargs.get(_HOST_PORTS):
        raise ClusterError(
            "--allow-host-port names a port of this machine, and trials on a cluster run on "
            "others; pass a model server with --model-endpoint, or use --on local"
        )
    if environment.mounts:
        raise ClusterError(
            "mounts of the environment name directories of this machine, and trials on a cluster "
            "run on others; use --on local"
        )


def count_trials(nodes: Sequence[Node], demands: Iterable[Demand]) -> int:
    """Return how many trials the cluster holds at once, if they are the smallest ones."""
    each = [sum(node.count(demand) for node in nodes) for demand in set(demands)]
    return max([1, *each])


def check_reports(reports: Sequence[NodeReport], *, is_insecure: bool) -> None:
    """Check what nodes say about themselves.

    Raises:
        ClusterError: trials cannot run on some of them; the message says why and what to do.
    """
    ours = platform.python_version()
    problems = []
    for report in reports:
        if report.proctor != __version__:
            problems.append(
                f"{report.node} has proctor {report.proctor}, and this machine {__version__}; "
                f"install the same there: pip install 'proctor[ray]=={__version__}'"
            )
        elif report.python.split(".")[:2] != ours.split(".")[:2]:
            problems.append(
                f"{report.node} has Python {report.python}, and this machine {ours}; use the same"
            )
        elif report.problem is not None:
            problems.append(f"{report.node}: {report.problem}")
        elif not report.needs_token and not is_insecure:
            problems.append(f"{report.node}: its Ray was started without RAY_AUTH_MODE=token")
    if problems:
        more = len(problems) - _MOST_NAMED
        rest = f"; and {count_of(more, 'other node')}" if more > 0 else ""
        raise ClusterError("; ".join(problems[:_MOST_NAMED]) + rest)
