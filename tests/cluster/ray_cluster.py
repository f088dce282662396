"""A real Ray cluster of two nodes on this machine, with token authentication.

It has a network of its own, in which nothing but its own processes and the tests' drivers are: a
driver enters it with `entered`, or is started with `command`. In the mount namespaces of its nodes,
the directories of the tests are empty: what a trial reads has travelled.
"""

import contextlib
import json
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
BIN = Path(sys.executable).parent
PORT = 6379
CLIENT_PORT = 10001
ADDRESS = f"127.0.0.1:{PORT}"
CLIENT = f"ray://127.0.0.1:{CLIENT_PORT}"
START_SEC = 180
# What `ray start` prints when the cluster has the node.
STARTED = b"Ray runtime started"
MEMORY = {"head": 6_000_000_000, "other": 8_000_000_000}
"""Bytes of each node: a task may fit on one of them only."""


@dataclass
class RayNode:
    """One node: the processes of a `ray start --block`."""

    name: str
    process: subprocess.Popen[bytes]

    def find_processes(self) -> list[int]:
        """Every process of the node; workers and the sandboxes below them included."""
        return find_below(self.process.pid)

    def find_raylet(self) -> int:
        return next(pid for pid in self.find_processes() if read_command(pid)[0].endswith("raylet"))

    def find_workers(self) -> list[int]:
        """Workers that run a trial."""
        return [
            pid
            for pid in self.find_processes()
            if any(word.startswith("ray::proctor") for word in read_command(pid)[:1])
        ]

    def kill(self) -> None:
        """Kill everything, as a power cut does."""
        kill_all(self.find_processes())
        self.process.wait()


@dataclass
class RayCluster:
    """The cluster, its nodes and what a driver needs to use it."""

    place: Path
    hidden: Sequence[Path]
    token: str | None
    network: subprocess.Popen[bytes] = field(init=False)
    nodes: dict[str, RayNode] = field(default_factory=dict)

    @property
    def meeting(self) -> Path:
        """A directory that is not hidden from the nodes."""
        return self.place / "meeting"

    def start(self) -> None:
        self.meeting.mkdir(parents=True, exist_ok=True)
        self.network = subprocess.Popen(["unshare", "--net", "sleep", "infinity"])
        # The process has its own network as soon as it is another program.
        wait_until(lambda: read_command(self.network.pid)[0] == "sleep")
        subprocess.run([*self.command, "ip", "link", "set", "lo", "up"], check=True)
        self.add_node("head")
        self.add_node("other")

    @property
    def command(self) -> list[str]:
        """What a command line begins with to run in the cluster's network."""
        return ["nsenter", f"--net=/proc/{self.network.pid}/ns/net"]

    @property
    def variables(self) -> dict[str, str]:
        """Environment variables of drivers and nodes."""
        mode = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": self.token} if self.token else {}
        return {
            **({"RAY_AUTH_MODE": "disabled"} | mode),
            "RAY_ADDRESS": ADDRESS,
            "RAY_raylet_start_wait_time_s": str(START_SEC),
            # A dead node refuses connections and is known to be dead after a second; one that is
            # only slow has as long as ever to answer.
            "RAY_health_check_period_ms": "300",
            "RAY_health_check_failure_threshold": "3",
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",
            "GRPC_ENABLE_FORK_SUPPORT": "0",
            "PYTHONPATH": str(ROOT),
            "PATH": f"{BIN}:{os.environ['PATH']}",
        }

    def add_node(self, name: str) -> None:
        """Start a node, and wait until the cluster has it."""
        is_head = name == "head"
        home = self.place / name
        home.mkdir(exist_ok=True)
        own = ["--head", f"--port={PORT}", f"--ray-client-server-port={CLIENT_PORT}"]
        line = [
            *("ray", "start", "--block", "--node-ip-address=127.0.0.1", "--num-cpus=4"),
            *(f"--memory={MEMORY[name]}", "--object-store-memory=100000000"),
            "--disable-usage-stats",
            # The path of a socket has at most 107 characters.
            *(f"--temp-dir={self.place / 'r'}", "--include-log-monitor=false"),
            *(own if is_head else [f"--address={ADDRESS}"]),
            *(["--include-dashboard=false"] if is_head else []),
        ]
        script = "".join(f"mount -t tmpfs none '{each}' && " for each in self.hidden)
        log = home / "ray.log"
        with log.open("ab") as file:
            before = file.tell()
            process = subprocess.Popen(
                [
                    *self.command,
                    "unshare",
                    "--mount",
                    "sh",
                    "-c",
                    f'{script} exec "$@"',
                    "-",
                    *line,
                ],
                stdout=file,
                stderr=file,
                env={**os.environ, **self.variables, "PROCTOR_CACHE": str(home / "cache")},
                start_new_session=True,
                cwd="/",
            )
        self.nodes[name] = RayNode(name, process)
        wait_until(
            lambda: process.poll() is not None or STARTED in log.read_bytes()[before:], START_SEC
        )
        if process.poll() is not None:
            raise RuntimeError(log.read_text())

    def restore(self) -> None:
        """Start nodes that a test has killed."""
        for name, node in list(self.nodes.items()):
            if node.process.poll() is not None:
                del self.nodes[name]
                self.add_node(name)

    def stop(self) -> None:
        for node in self.nodes.values():
            with contextlib.suppress(ProcessLookupError):
                node.kill()
        self.network.kill()
        self.network.wait()

    @contextlib.contextmanager
    def entered(self) -> Iterator[None]:
        """Let this thread, and threads that it starts, be in the cluster's network."""
        before = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        there = os.open(f"/proc/{self.network.pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.setns(there, os.CLONE_NEWNET)
            yield
        finally:
            os.setns(before, os.CLONE_NEWNET)
            os.close(before)
            os.close(there)

    def run(self, *line: str, variables: Mapping[str, str] | None = None) -> subprocess.Popen[str]:
        """Start `proctor` as a driver."""
        return subprocess.Popen(
            [*self.command, sys.executable, "-m", "proctor", *line],
            env={**os.environ, **self.variables, **(variables or {})},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )


def make_token() -> str:
    return secrets.token_hex(32)


def read_processes() -> dict[int, tuple[int, str]]:
    """The parent and the name of every process."""
    found = {}
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            # The name of the program may contain blanks and brackets.
            before, _, after = (path / "stat").read_text(errors="replace").rpartition(")")
            found[int(path.name)] = int(after.split()[1]), before.partition("(")[2]
    return found


def find_below(pid: int) -> list[int]:
    """A process and those that it and they have started."""
    below: dict[int, list[int]] = {}
    for each, (parent, _) in read_processes().items():
        below.setdefault(parent, []).append(each)
    found, todo = [], [pid]
    while todo:
        found.append(todo.pop())
        todo += below.get(found[-1], [])
    return found


def read_command(pid: int) -> list[str]:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_text(errors="replace").split("\0")
    return [""]


def kill_all(pids: Sequence[int]) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def wait_until(is_so: object, seconds: float = 60) -> None:
    assert callable(is_so)
    end = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < end, "waited for too long"
        time.sleep(0.1)


if __name__ == "__main__":
    # For people: start a cluster and print how to use it, until Enter is pressed.
    made = RayCluster(Path(sys.argv[1]), [Path(each) for each in sys.argv[2:]], make_token())
    made.start()
    print(json.dumps({**made.variables, "net": made.network.pid}), flush=True)  # noqa: T201
    input()
    made.stop()
