"""Descriptions of sandboxes and commands, which are sent to the zygote and PID 1 as JSON.

Uses only the standard library: the zygote imports this, and every sandbox is a fork of it.
"""

from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

RANGE = 1 << 20
"""Number of ids in the range of a sandbox that has its own."""


FIRST_OF_RANGES = 1 << 31
"""First of these ids: above those that distributions, containers and /etc/subuid assign."""


class Network(StrEnum):
    """The network of a sandbox."""

    NONE = "none"
    """Its own namespace, with only loopback."""
    HOST = "host"
    """The host's namespace."""
    SLIRP = "slirp4netns"
    """Its own namespace, connected by slirp4netns; the host's loopback is not reachable."""
    PASTA = "pasta"
    """Its own namespace, connected by pasta; the host's loopback is not reachable."""


@dataclass(frozen=True, slots=True)
class Part:
    """One overlay mount of the root file system; the first part of a sandbox is `/`."""

    target: str
    """Mount point inside."""
    lowers: tuple[str, ...]
    """Read-only layers on the host, topmost first."""
    upper: str
    """Directory on the host for what is written, next to an empty `work`."""
    work: str
    mounted: str = ""
    """Directory on which the zygote keeps the overlay mounted, so that further sandboxes can reuse
    it as long as nothing is written there; empty: it is mounted for this sandbox only."""


@dataclass(frozen=True, slots=True)
class Blueprint:
    """Description of a sandbox to build."""

    session: str
    root: str
    """Empty directory on the host on which the root is mounted."""
    parts: tuple[Part, ...]
    network: Network
    hostname: str = "sandbox"
    host_ports: tuple[tuple[str, int], ...] = ()
    """Addresses and TCP ports of the host for a relay: PID 1 binds the same ones, and sends the
    sockets to the runner. Only on a network that a helper connects."""
    model_port: int = 0
    """Port of the host's loopback where the model gateway listens: PID 1 listens on the same one
    and sends the socket to the runner, after those of `host_ports`. 0 if there is none. Not on the
    host's network."""
    cgroups: tuple[str, ...] = ()
    """cgroup directories that PID 1 enters before it forks anything."""
    storage: str = ""
    """Device of the file system that is mounted on `writable`; empty if storage is not limited."""
    directories: tuple[str, ...] = ()
    """Directories to create inside, with mode 0777, such as /logs/agent."""
    subordinate: tuple[tuple[int, int, int], ...] = ()
    """For an unprivileged user with subordinate ids: further (inside, outside, count) lines of the
    id maps, written by newuidmap and newgidmap."""
    first_id: int = 0
    """For root: first of the RANGE host ids of the sandbox's users, and owner of its namespaces;
    0: users have the same ids inside and outside."""
    guarded: tuple[str, ...] = ("/tests", "/logs/verifier")
    """Directories to create inside that cannot be renamed, removed or replaced by a symlink,
    because they and their parents are mount points. Only these can be new in a verifier's room."""

    @property
    def rooms(self) -> str:
        """Directory on the host, next to the root, for files of verifiers' rooms."""
        return f"{self.root.rstrip('/')}.rooms"

    @property
    def writable(self) -> str:
        """Directory on the host, next to the root, that contains the upper directories."""
        return f"{self.root.rstrip('/').rpartition('/')[0]}/parts"

    @property
    def layers(self) -> str:
        """Directory on the host, next to the root, on which mapped layers are mounted."""
        return f"{self.root.rstrip('/')}.layers"


@dataclass(frozen=True, slots=True)
class Command:
    """A command to run inside."""

    argv: tuple[str, ...]
    cwd: str
    env: dict[str, str] = field(default_factory=dict)
    """Its complete environment; missing PATH and HOME are added."""
    user: str = "root"
    """Name or number, optionally with `:group`; looked up inside."""
    room: int = 0
    """0 for the agent's namespace, or the number of a verifier's room."""
    script: str = ""
    """Path of a file to make executable first, if it exists."""


def as_json(value: Blueprint | Command) -> dict[str, object]:
    """Return the value as a dict for JSON."""
    return asdict(value)


def blueprint_of(fields: dict[str, Any]) -> Blueprint:
    """Return the Blueprint that as_json converted."""
    parts = tuple(Part(**{**part, "lowers": tuple(part["lowers"])}) for part in fields["parts"])
    plain = {
        **{name: tuple(fields[name]) for name in ("cgroups", "directories", "guarded")},
        "subordinate": tuple(tuple(line) for line in fields["subordinate"]),
        "host_ports": tuple((address, port) for address, port in fields["host_ports"]),
        "network": Network(fields["network"]),
    }
    return Blueprint(**{**fields, **plain, "parts": parts})


def command_of(fields: dict[str, Any]) -> Command:
    """Return the Command that as_json converted."""
    return Command(**{**fields, "argv": tuple(fields["argv"])})
