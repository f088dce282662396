"""Connects a sandbox to no network, to the host's, or to its own through a helper.

The helper, slirp4netns or pasta, runs on the host and forwards packets. The host's loopback is not
reachable through it; its other addresses are blocked by routes that PID 1 makes before anything
runs (routes.py). The helper ends with the sandbox, and also if this process is killed: it, or a
shell around it, watches a pipe to this process.

Which network a task may have is decided by `NetworkPolicy`.
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
"""Environment variable of a helper that names its sandbox, for the reaper."""

# Both helpers make a TAP device, for which they need this.
_TUN = Path("/dev/net/tun")
# Output of a helper, in the sandbox's scratch.
_LOG = "network.log"
_PATIENCE_SEC = 20.0
# Addresses at which helpers answer DNS queries, by asking the host's resolver.
_RESOLVERS = {Network.SLIRP: "10.0.2.3", Network.PASTA: "169.254.0.1"}

_APART = ("unshare", "--mount", "--propagation", "private")
# Programs that each helper needs; root needs unshare too.
_NEEDED = {Network.SLIRP: ("slirp4netns", "nsenter"), Network.PASTA: ("pasta", "sh")}

# The pipe closes when this process ends; then the shell kills the whole process group.
_WATCH = 'exec 9<&0; { read gone <&9; kill -9 0; } & exec "$@" 9<&- </dev/null'

_SLIRP = (
    # The largest MTU that slirp4netns supports, for throughput.
    *(Network.SLIRP.value, "--configure", "--mtu=65520", "--disable-host-loopback"),
    *("--enable-sandbox", "--enable-seccomp"),
)
_PASTA = (
    *(Network.PASTA.value, "--foreground", "--quiet", "--config-net", "--no-map-gw"),
    # Without these, ports of the host's loopback would be reachable on the sandbox's loopback.
    *("--tcp-ports", "none", "--udp-ports", "none", "--tcp-ns", "none", "--udp-ns", "none"),
    *("--dns-forward", _RESOLVERS[Network.PASTA]),
)


@dataclass(frozen=True, slots=True)
class Choice:
    """The network of a sandbox."""

    network: Network
    shared_because: str | None = None
    """Why it is the host's network; None if it is not."""


def choose_network(policy: NetworkPolicy) -> Choice:
    """Choose the network for a policy.

    Raises:
        UnsupportedError: it is an allowlist of hosts, which the sandbox cannot enforce.
    """
    match policy.mode:
        case NetworkMode.NO_NETWORK:
            return Choice(Network.NONE)
        case NetworkMode.ALLOWLIST:
            raise UnsupportedError(
                f"network_mode 'allowlist' ({', '.join(policy.allowed_hosts)}): the sandbox cannot "
                "restrict a task to a list of hosts; use 'public' or 'no-network'"
            )
        case _:
            return _choose_helper()


def _choose_helper() -> Choice:
    # pasta drops its privileges before it enters a namespace, so it cannot enter one of root's.
    usable = (Network.SLIRP,) if is_all_powerful() else (Network.SLIRP, Network.PASTA)
    more = _APART[:1] if is_all_powerful() else ()
    helper = next((kind for kind in usable if all(map(shutil.which, _NEEDED[kind] + more))), None)
    if helper is None:
        return Choice(Network.HOST, f"{' or '.join(usable)} is not installed")
    if not os.access(_TUN, os.R_OK | os.W_OK):
        return Choice(Network.HOST, f"{helper} is installed, but {_TUN} cannot be opened")
    return Choice(helper)


def resolver_for(network: Network) -> str | None:
    """Return /etc/resolv.conf for a helper's network; None for others."""
    address = _RESOLVERS.get(network)
    return None if address is None else f"nameserver {address}\n"


class Connection:
    """The helper of one sandbox, and the pipe by which it notices the end of this process."""

    def __init__(self, network: Network, session: Path) -> None:
        self._network = network
        self._session = session
        self._pipe = os.pipe()
        self._process: asyncio.subprocess.Process | None = None
        self._is_open = False

    async def open(self, pid: int, namespaces: tuple[int, ...]) -> None:
        """Start the helper for the sandbox whose PID 1 is `pid`, and wait until it is ready.

        Raises:
            SandboxError: it does not start.
        """
        start = self._open_slirp if self._network is Network.SLIRP else self._open_pasta
        if await start(pid, namespaces):
            self._is_open = True
            return
        said = (self._session / _LOG).read_text(encoding="utf-8", errors="replace").strip()
        raise SandboxError(
            f"{self._network} could not connect the sandbox to the network: "
            f"{said.replace(chr(10), ' | ') or 'no output'}; without {self._network} on PATH "
            "the host's network is shared instead"
        )

    async def _open_slirp(self, _pid: int, namespaces: tuple[int, ...]) -> bool:
        ready, signal_ready = os.pipe()
        network, *owner = (f"/proc/self/fd/{fd}" for fd in namespaces)
        ends = (f"--ready-fd={signal_ready}", f"--exit-fd={self._pipe[0]}")
        # slirp4netns sandboxes itself only as root, at least of a user namespace. As the host's
        # root it needs its own mount namespace, or it would unmount what is below shared mounts,
        # such as Docker's containers.
        within = ("nsenter", f"--user={owner[0]}", "--preserve-credentials") if owner else _APART
        argv = (*within, *_SLIRP, *ends, "--netns-type=path", network, "tap0")
        with os.fdopen(ready, "rb", 0):
            with os.fdopen(signal_ready, "wb", 0):
                fds = (signal_ready, self._pipe[0], *namespaces)
                self._process = await _start(argv, self._session, pass_fds=fds)
            return bool(await _read_soon(ready))

    async def _open_pasta(self, pid: int, namespaces: tuple[int, ...]) -> bool:
        network, owner = (f"/proc/self/fd/{fd}" for fd in namespaces)
        argv = (*_PASTA, "--no-netns-quit", "--netns", network, "--userns", owner)
        watched = ("sh", "-c", _WATCH, "sh", *argv)
        self._process = await _start(
            watched, self._session, pass_fds=namespaces, stdin=self._pipe[0]
        )
        # Pasta does not report that it is ready.
        loop = asyncio.get_running_loop()
        until = loop.time() + _PATIENCE_SEC
        while not _has_way_out(pid):
            if self._process.returncode is not None or loop.time() > until:
                return False
            await asyncio.sleep(0.002)
        return True

    async def close(self) -> None:
        """End the helper.

        Raises:
            SandboxError: it had ended before, and the sandbox had no network since then.
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
                "while the sandbox ran: from then on there was no network"
            )


async def connect(
    network: Network, pid: int, namespaces: tuple[int, ...], session: Path
) -> Connection | None:
    """Connect a sandbox, given its PID 1 and its open namespaces; None if it needs no helper.

    Raises:
        SandboxError: the helper does not start.
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
    """Read one byte from a pipe; empty if it is closed, or on timeout."""
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


def _has_way_out(pid: int) -> bool:
    """Whether the network namespace of a process has a default route."""
    try:
        lines = Path(f"/proc/{pid}/net/route").read_text(encoding="utf-8").splitlines()[1:]
    except OSError:
        return False
    return any(line.split()[1] == "00000000" for line in lines)
