"""Programs of a pilot job, which `pilot_script` calls inside of an allocation of Slurm.

ports             prints the address of a head node on this machine, and a port for clients
wait DIRECTORY N  waits until N nodes run
"""

import socket
import sys
import time
from pathlib import Path
from typing import Final

from ray._raylet import GcsClient
from ray.exceptions import RayError
from ray.util import get_node_ip_address

_START_SEC: Final = 300
_PAUSE_SEC: Final = 0.5
_ALIVE: Final = 0
_LAST: Final = 3


def find_ports(n: int) -> list[int]:
    """Return ports that nobody uses at the moment."""
    taken = [socket.create_server(("", 0)) for _ in range(n)]
    ports = [int(server.getsockname()[1]) for server in taken]
    for server in taken:
        server.close()
    return ports


def wait_for_nodes(pilot: Path, n: int) -> str | None:
    """Wait until all nodes run, or the others have given up; None, or why no trial can run."""
    end = time.monotonic() + _START_SEC
    n_alive = n_ended = 0
    while time.monotonic() < end and n_alive + n_ended < n:
        time.sleep(_PAUSE_SEC)
        n_ended = len(list(pilot.glob("ended-*")))
        address = pilot / "address"
        n_alive = _count_alive(address.read_text().strip()) if address.exists() else 0
    if 0 < n_alive < n:
        _say(f"Ray runs on {n_alive} of {n} nodes; see {pilot / 'nodes.log'}")
    if n_alive:
        return None
    log = pilot / "nodes.log"
    last = log.read_text(errors="replace").splitlines()[-_LAST:] if log.exists() else []
    return "\n".join([*last, f"error: Ray did not start on any node; see {log}"])


def _count_alive(address: str) -> int:
    host, _, port = address.rpartition(":")
    try:
        # Ray's own client complains on stderr while nothing answers.
        socket.create_connection((host.strip("[]"), int(port)), _PAUSE_SEC).close()
        nodes = GcsClient(address=address).get_all_node_info().values()
    except (RayError, OSError, RuntimeError):
        # It has not started yet.
        return 0
    return sum(node.state == _ALIVE for node in nodes)


def _say(sentence: str) -> None:
    sys.stderr.write(f"{sentence}\n")


def main(words: list[str]) -> int:
    """Run one of the programs; returns its exit code."""
    match words:
        case ["ports"]:
            port, client = find_ports(2)
            sys.stdout.write(f"{get_node_ip_address()}:{port} {client}\n")
            return 0
        case ["wait", pilot, n]:
            problem = wait_for_nodes(Path(pilot), int(n))
            if problem is not None:
                _say(problem)
            return 0 if problem is None else 2
    _say("usage: python -m proctor.cluster.pilot ports | wait DIRECTORY N")
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
