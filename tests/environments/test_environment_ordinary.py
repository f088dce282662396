"""The sandbox in a process of its own: an ordinary user's, and one whose process is killed."""

import json
import os
import select
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from proctor.environments.sandbox.subordinate import find_subordinate_ids
from tests import ordinary_user
from tests.become_user import IDS, ROOT, TUN
from tests.environments.sandboxes import host_addresses

HERE = Path(__file__).resolve().parent

by_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can furnish a machine")


@pytest.fixture
def place() -> Iterator[Path]:
    with ordinary_user.ordinary_home() as directory:
        yield directory


def command_line(place: Path, *words: str, machine: tuple[str, ...] = ()) -> list[str]:
    """The trial as an ordinary user's, perhaps on a machine with more on it."""
    return ordinary_user.command_line(*as_root(place, *words), machine=machine)


def as_root(place: Path, *words: str) -> list[str]:
    return [sys.executable, str(HERE / "ordinary_trial.py"), str(place), *words]


def environment(path: str = "") -> dict[str, str]:
    return {
        "PATH": path or os.environ["PATH"],
        "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}",
    }


def run_as_a_user(
    place: Path, *words: str, machine: tuple[str, ...] = (), path: str = ""
) -> object:
    """What the trial saw."""
    return run(command_line(place, *words, machine=machine), path)


def run(argv: list[str], path: str = "", more: Mapping[str, str] | None = None) -> object:
    env = environment(path) | dict(more or {})
    done = subprocess.run(argv, capture_output=True, text=True, check=False, env=env, timeout=100)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_it_runs_and_leaves_nothing(place: Path) -> None:
    seen = run_as_a_user(place, "none")
    assert isinstance(seen, dict)
    assert seen["probe"].startswith("0\n")
    assert (seen["reward"], seen["scratch left"]) == ("1\n", 0)
    assert ("changed /usr" in seen["probe"], seen["findings"]) == (False, ["usr-read-only"])


@by_root
def test_roots_own_can_change_usr_and_that_is_no_finding(place: Path) -> None:
    seen = run(as_root(place, "none"))
    assert isinstance(seen, dict)
    assert ("changed /usr" in seen["probe"], seen["findings"]) == (True, [])


@pytest.mark.skipif(bool(find_subordinate_ids()), reason="this user has subordinate ids")
def test_another_user_than_root_is_refused_without_subordinate_ids(place: Path) -> None:
    seen = run_as_a_user(place, "none", "--user", "daemon")
    assert isinstance(seen, dict)
    assert "user 'daemon'" in seen["user"]
    assert "/etc/subuid" in seen["user"]


@by_root
@pytest.mark.skipif(shutil.which("newuidmap") is None, reason="newuidmap is not installed")
def test_another_user_can_be_had_with_subordinate_ids_and_its_files_are_deleted(
    place: Path,
) -> None:
    seen = run_as_a_user(place, "none", "--user", "daemon", machine=(IDS,))
    assert isinstance(seen, dict)
    assert (seen["user"], seen["scratch left"]) == ("1", 0)


@by_root
@pytest.mark.parametrize(
    ("helper", "resolver"), [("slirp4netns", "10.0.2.3"), ("pasta", "169.254.0.1")]
)
def test_a_helper_connects_it(place: Path, helper: str, resolver: str) -> None:
    found = shutil.which(helper)
    if found is None:
        pytest.skip(f"{helper} is not installed")
    (place / "bin").mkdir()
    for name in (helper, "sh", "nsenter"):
        (place / "bin" / name).symlink_to(shutil.which(name) or "")
    argv = command_line(place, "public", machine=(TUN,))
    with socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True) as server:
        # Nobody takes the calls, but the kernel does.
        knock = {"PORT": str(server.getsockname()[1]), "HOSTS": " ".join(host_addresses())}
        seen = run(argv, str(place / "bin"), knock)
    assert isinstance(seen, dict)
    assert (seen["network"], seen["findings"]) == (helper, ["usr-read-only"])
    assert seen["probe"] == f"0\nnameserver {resolver}"
    assert (seen["helpers"], seen["helpers left"]) == (1, 0)


def test_without_a_helper_the_network_is_the_hosts_and_that_is_a_finding(place: Path) -> None:
    (place / "bin").mkdir()
    seen = run_as_a_user(place, "public", path=str(place / "bin"))
    assert isinstance(seen, dict)
    assert (seen["network"], seen["findings"]) == (
        "host",
        ["usr-read-only", "network-shared"],
    )


@pytest.mark.parametrize("line", [as_root, command_line], ids=["root", "user"])
def test_a_killed_run_takes_its_sandbox_along_and_its_evidence_is_found(
    place: Path, line: Callable[..., list[str]]
) -> None:
    argv = line(place, "none", "--wait")
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, env=environment()) as runner:
        assert runner.stdout is not None
        assert json.loads(runner.stdout.readline())["reward"] == "1\n"
        inside = [os.pidfd_open(pid) for pid in descendants(runner.pid)]
        assert len(inside) >= 2  # the zygote, PID 1
        runner.kill()
    for handle in inside:
        assert select.select([handle], [], [], 30)[0]
        os.close(handle)
    log = place / "job" / "trial-1" / "agent" / "log.txt"
    assert not log.exists()
    assert run(line(place, "reap")) == [str(log)]
    assert log.read_text() == "evidence\n"
    assert list((place / "cache" / "scratch").iterdir()) == []
    groups = [str(path) for path in Path("/sys/fs/cgroup").rglob(f"proctor-{runner.pid}-*/")]
    assert groups == []


def descendants(pid: int) -> list[int]:
    """All processes below one."""
    text = "".join(path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/children"))
    children = [int(word) for word in text.split()]
    return children + [one for child in children for one in descendants(child)]
