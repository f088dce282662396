"""A sandbox before it is built, as values that travel to the zygote as JSON.

Only the standard library: the zygote imports this, and every sandbox is a fork of it.
"""

from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

RANGE = 1 << 20
"""How many users and groups a sandbox has that nobody else has, where it has ids of its own."""


FIRST_OF_RANGES = 1 << 31
"""Where such ids begin: above what distributions, containers and /etc/subuid give out."""


class Network(StrEnum):
    """What a sandbox's network is."""

    NONE = "none"
    """A namespace of its own with nothing but loopback."""
    HOST = "host"
    """The host's own."""
    SLIRP = "slirp4netns"
    """A namespace of its own, connected by slirp4netns; the host's loopback is closed."""
    PASTA = "pasta"
    """A namespace of its own, connected by pasta; the host's loopback is closed."""


@dataclass(frozen=True, slots=True)
class Part:
    """One overlay mount of the root file system; the first part of a sandbox is `/`."""

    target: str
    """Where it is mounted, seen from inside."""
    lowers: tuple[str, ...]
    """Read-only layers on the host, top one first."""
    upper: str
    """Directory on the host that takes what is written; beside it lies an empty `work`."""
    work: str
    mounted: str = ""
    """Directory on which the zygote keeps the overlay, so that one sandbox after the other can have
    it while nothing is written there; empty: it is mounted for this sandbox alone."""


@dataclass(frozen=True, slots=True)
class Blueprint:
    """Everything that decides how a sandbox is built."""

    session: str
    root: str
    """An empty directory on the host on which the root is assembled."""
    parts: tuple[Part, ...]
    network: Network
    hostname: str = "sandbox"
    host_ports: tuple[tuple[str, int], ...] = ()
    """Addresses and TCP ports of the host that a relay will serve: PID 1 binds the same ones, and
    hands the sockets out. Only on a network that a helper connects."""
    cgroups: tuple[str, ...] = ()
    """cgroup directories that PID 1 enters before it forks anything."""
    directories: tuple[str, ...] = ()
    """Directories that are made inside, mode 0777: /logs/agent and the like."""
    subordinate: tuple[tuple[int, int, int], ...] = ()
    """As an ordinary user with subordinate ids: further (inside, outside, count) lines of the
    maps of users and groups, written by newuidmap and newgidmap."""
    first_id: int = 0
    """As root: the first of the host's ids that the sandbox's users have, as many as RANGE, and the
    owner of its namespaces; 0: all have the ids that they have inside."""
    guarded: tuple[str, ...] = ("/tests", "/logs/verifier")
    """Directories that are made inside and that nobody inside can rename, remove or replace by
    a link: they and those above them are mount points. Only these can be new in a verifier's room,
    for only they stay where they are."""

    @property
    def rooms(self) -> str:
        """Directory on the host, beside the root, for what is written in verifiers' rooms."""
        return f"{self.root.rstrip('/')}.rooms"

    @property
    def layers(self) -> str:
        """Directory on the host, beside the root, on which mapped layers are mounted."""
        return f"{self.root.rstrip('/')}.layers"


@dataclass(frozen=True, slots=True)
class Command:
    """A command to be run inside."""

    argv: tuple[str, ...]
    cwd: str
    env: dict[str, str] = field(default_factory=dict)
    """Its whole environment; PATH and HOME are filled in when they are missing."""
    user: str = "root"
    """A name, or a number as text, and perhaps `:group`; looked up inside."""
    room: int = 0
    """0: where the agent is; else the number of a verifier's room."""
    script: str = ""
    """A file that everybody may execute from before it on, if there is one at this path."""


def as_json(value: Blueprint | Command) -> dict[str, object]:
    """The value as a plain dict."""
    return asdict(value)


def blueprint_of(fields: dict[str, Any]) -> Blueprint:
    """What as_json was given."""
    parts = tuple(Part(**{**part, "lowers": tuple(part["lowers"])}) for part in fields["parts"])
    plain = {
        **{name: tuple(fields[name]) for name in ("cgroups", "directories", "guarded")},
        "subordinate": tuple(tuple(line) for line in fields["subordinate"]),
        "host_ports": tuple((address, port) for address, port in fields["host_ports"]),
        "network": Network(fields["network"]),
    }
    return Blueprint(**{**fields, **plain, "parts": parts})


def command_of(fields: dict[str, Any]) -> Command:
    """What as_json was given."""
    return Command(**{**fields, "argv": tuple(fields["argv"])})
