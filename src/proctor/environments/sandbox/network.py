"""The network of a sandbox: none, the host's own, or one of its own that a helper connects.

slirp4netns or pasta runs on the host, beside the sandbox, and passes its packets on. The host's
loopback stays closed to it; the host's other addresses are refused by routes that PID 1 makes
before anything runs (routes.py). The helper ends with the sandbox, and also when this process is
killed: a shell that holds one end of a pipe of ours ends it then.

Nothing here decides what a task may reach: `NetworkPolicy` does.
"""

import asyncio
import os
import shutil
import signal
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from proctor.environments.sandbox.blueprint import Network
from proctor.environments.sandbox.privileges import is_all_powerful
from proctor.errors import SandboxError, UnsupportedError
from proctor.task.network import NetworkMode, NetworkPolicy

MARK = "PROCTOR_SCRATCH_OF"
"""Variable of a helper that says of which sandbox it is; the reaper looks for it."""

_TUN = Path("/dev/net/tun")
_LOG = "network.log"
"""What a helper says, in the sandbox's scratch."""
_PATIENCE_SEC = 20.0
_RESOLVERS = {Network.SLIRP: "10.0.2.3", Network.PASTA: "169.254.0.1"}
"""What a helper answers questions about names at; it asks the host's own resolver."""

_APART = ("unshare", "--mount", "--propagation", "private")
_NEEDED = {Network.SLIRP: ("slirp4netns", "nsenter"), Network.PASTA: ("pasta", "sh")}
"""Programs that have to be there; for root, what sets them apart as well."""

# The pipe is at its end when this process is; then the whole group goes.
_WATCH = 'exec 9<&0; { read gone <&9; kill -9 0; } & exec "$@" 9<&- </dev/null'

_SLIRP = (
    *(Network.SLIRP.value, "--configure", "--mtu=65520", "--disable-host-loopback"),
    *("--enable-sandbox", "--enable-seccomp"),
)
_PASTA = (
    *(Network.PASTA.value, "--foreground", "--quiet", "--config-net", "--no-map-gw"),
    # Without these, ports of the host's loopback could be reached on the sandbox's own.
    *("--tcp-ports", "none", "--udp-ports", "none", "--tcp-ns", "none", "--udp-ns", "none"),
    *("--dns-forward", _RESOLVERS[Network.PASTA]),
)


@dataclass(frozen=True, slots=True)
class Choice:
    """Which network a sandbox gets."""

    network: Network
    shared_because: str | None = None
    """Why it is the host's own; a sentence."""


def choose_network(policy: NetworkPolicy) -> Choice:
    """The network for a policy.

    Raises:
        UnsupportedError: it lists hosts, which only a filter could hold it to.
    """
    match policy.mode:
        case NetworkMode.NO_NETWORK:
            return Choice(Network.NONE)
        case NetworkMode.ALLOWLIST:
            raise UnsupportedError(
                f"network_mode 'allowlist' ({', '.join(policy.allowed_hosts)}): the sandbox cannot "
                "hold a task to a list of hosts; use 'public' or 'no-network'"
            )
        case _:
            return _choose_helper()


def _choose_helper() -> Choice:
    # pasta gives its privileges up before it enters a namespace: root's own it cannot enter.
    usable = (Network.SLIRP,) if is_all_powerful() else (Network.SLIRP, Network.PASTA)
    more = _APART[:1] if is_all_powerful() else ()
    helper = next((kind for kind in usable if all(map(shutil.which, _NEEDED[kind] + more))), None)
    if helper is None:
        return Choice(Network.HOST, f"{' or '.join(usable)} is not installed")
    if not os.access(_TUN, os.R_OK | os.W_OK):
        return Choice(Network.HOST, f"{helper} is installed, but {_TUN} cannot be opened")
    return Choice(helper)


def resolver_for(network: Network) -> str | None:
    """/etc/resolv.conf for a sandbox that a helper connects; None: the host's will do."""
    address = _RESOLVERS.get(network)
    return None if address is None else f"nameserver {address}\n"


class Connection:
    """A helper that connects one sandbox, and the pipe that it lives by."""

    def __init__(self, network: Network, session: Path) -> None:
        self._network = network
        self._session = session
        self._pipe = os.pipe()
        self._process: asyncio.subprocess.Process | None = None
        self._is_open = False

    async def open(self, pid: int, namespaces: tuple[int, ...]) -> None:
        """Start the helper for the sandbox whose PID 1 is `pid`, and wait until it is ready.

        Raises:
            SandboxError: it does not come up.
        """
        start = self._open_slirp if self._network is Network.SLIRP else self._open_pasta
        if await start(pid, namespaces):
            self._is_open = True
            return
        said = (self._session / _LOG).read_text(encoding="utf-8", errors="replace").strip()
        raise SandboxError(
            f"{self._network} could not connect the sandbox to the network: "
            f"{said.replace(chr(10), ' | ') or 'it said nothing'}; without {self._network} on PATH "
            "the host's network is shared instead"
        )

    async def _open_slirp(self, _pid: int, namespaces: tuple[int, ...]) -> bool:
        ready, told = os.pipe()
        network, *owner = (f"/proc/self/fd/{fd}" for fd in namespaces)
        ends = (f"--ready-fd={told}", f"--exit-fd={self._pipe[0]}")
        # It shuts itself in only where it is root, if only of a user namespace. As the host's root
        # it would unmount what is mounted below shared mounts, Docker's containers for one.
        within = ("nsenter", f"--user={owner[0]}", "--preserve-credentials") if owner else _APART
        argv = (*within, *_SLIRP, *ends, "--netns-type=path", network, "tap0")
        with os.fdopen(ready, "rb", 0):
            with os.fdopen(told, "wb", 0):
                fds = (told, self._pipe[0], *namespaces)
                self._process = await _start(argv, self._session, pass_fds=fds)
            return bool(await _read_soon(ready))

    async def _open_pasta(self, pid: int, namespaces: tuple[int, ...]) -> bool:
        network, owner = (f"/proc/self/fd/{fd}" for fd in namespaces)
        argv = (*_PASTA, "--no-netns-quit", "--netns", network, "--userns", owner)
        watched = ("sh", "-c", _WATCH, "sh", *argv)
        self._process = await _start(
            watched, self._session, pass_fds=namespaces, stdin=self._pipe[0]
        )
        return await _wait_for_route(pid, self._process)

    async def close(self) -> None:
        """End the helper; once.

        Raises:
            SandboxError: it had ended before, and the sandbox was without its network since.
        """
        process, self._process = self._process, None
        ended = process.returncode if process is not None and self._is_open else None
        if process is not None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
        for fd in self._pipe:
            os.close(fd)
        if ended is not None:
            raise SandboxError(
                f"{self._network}, which connected the sandbox to the network, ended with {ended} "
                "while the sandbox ran: what was done after that was done without a network"
            )


async def connect(
    network: Network, pid: int, namespaces: tuple[int, ...], session: Path
) -> Connection | None:
    """Connect a sandbox by its PID 1 and its open namespaces; None where nothing is to be done.

    Raises:
        SandboxError: the helper does not come up.
    """
    if network not in _RESOLVERS:
        return None
    connection = Connection(network, session)
    try:
        await connection.open(pid, namespaces)
    except BaseException:
        await connection.close()
        raise
    return connection


async def _start(
    argv: tuple[str, ...],
    session: Path,
    *,
    pass_fds: tuple[int, ...] = (),
    stdin: int = asyncio.subprocess.DEVNULL,
) -> asyncio.subprocess.Process:
    said = os.open(session / _LOG, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        return await asyncio.create_subprocess_exec(
            *argv,
            stdin=stdin,
            stdout=said,
            stderr=said,
            pass_fds=pass_fds,
            start_new_session=True,
            env={"PATH": os.environ.get("PATH", os.defpath), MARK: f"{session}/"},
        )
    finally:
        os.close(said)


async def _read_soon(fd: int) -> bytes:
    """What is written to a pipe first; empty when its other end is closed, or nothing comes."""
    loop = asyncio.get_running_loop()
    readable = asyncio.Event()
    loop.add_reader(fd, readable.set)
    try:
        await asyncio.wait_for(readable.wait(), _PATIENCE_SEC)
        return os.read(fd, 1)
    except TimeoutError:
        return b""
    finally:
        loop.remove_reader(fd)


async def _wait_for_route(pid: int, process: asyncio.subprocess.Process) -> bool:
    """Whether the sandbox gets a way out; pasta says nothing when it is ready."""
    loop = asyncio.get_running_loop()
    until = loop.time() + _PATIENCE_SEC
    while not _has_way_out(pid):
        if process.returncode is not None or loop.time() > until:
            return False
        await asyncio.sleep(0.002)
    return True


def _has_way_out(pid: int) -> bool:
    """Whether the network namespace of a process has a default route."""
    try:
        lines = Path(f"/proc/{pid}/net/route").read_text(encoding="utf-8").splitlines()[1:]
    except OSError:
        return False
    return any(line.split()[1] == "00000000" for line in lines)
