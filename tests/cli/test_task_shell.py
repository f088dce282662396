"""`proctor task try --shell`: a shell in a task's environment, from a pipe or on a terminal."""

import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from proctor.task.scaffold import render_example
from tests.cli.programs import Proctor, command_line, environment, run_child
from tests.task.trees import write

pytestmark = pytest.mark.sandbox


@pytest.fixture
def task(tmp_path: Path) -> Path:
    return write(tmp_path / "task", dict(render_example()))


@pytest.fixture
def temporary(tmp_path: Path) -> Path:
    """The directory for temporary files of a child."""
    place = tmp_path / "temporary"
    place.mkdir()
    return place


class Screen:
    """A command on a terminal of its own."""

    def __init__(self, leader: int, child: "subprocess.Popen[bytes]") -> None:
        self.child = child
        self._leader = leader
        self._seen = ""

    def resize(self, lines: int, columns: int) -> None:
        fcntl.ioctl(self._leader, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def type(self, text: str) -> None:
        os.write(self._leader, text.encode())

    def wait_for(self, text: str) -> str:
        """What was printed up to a text; what follows is left for the next call."""
        ends = time.monotonic() + 60
        while text not in self._seen:
            assert time.monotonic() < ends, self._seen
            if select.select([self._leader], [], [], 0.1)[0]:
                self._seen += os.read(self._leader, 65536).decode(errors="replace")
        before, _, self._seen = self._seen.partition(text)
        return before


@contextmanager
def on_screen(*arguments: object) -> Iterator[Screen]:
    """A command that a person has started."""
    leader, follower = pty.openpty()
    child = subprocess.Popen(
        ["setsid", "-c", *command_line(*arguments)],
        env=environment(TERM="dumb"),
        stdin=follower,
        stdout=follower,
        stderr=follower,
    )
    os.close(follower)
    screen = Screen(leader, child)
    screen.resize(33, 111)
    try:
        yield screen
    finally:
        child.kill()
        child.wait()
        os.close(leader)


def test_commands_from_a_pipe_run_where_the_agent_would(task: Path, temporary: Path) -> None:
    commands = "pwd; cat numbers.txt | tail -n 1; echo told >&2; echo again > /dev/stdout; exit 3\n"
    ran = run_child("task", "try", task, "--shell", stdin=commands, env={"TMPDIR": str(temporary)})
    assert (ran.code, ran.out) == (3, "/app\n21\ntold\nagain\n")
    assert ran.err.startswith(f"{task}: a shell in its sandbox, in /app, as root; leave with exit ")
    assert list(temporary.iterdir()) == []


def test_a_terminal_has_job_control_and_the_size_of_the_window(task: Path) -> None:
    with on_screen("task", "try", task, "--shell") as screen:
        screen.wait_for("everything in it is removed")
        screen.type("stty size; sed -u s/in/out/\n")
        screen.wait_for("33 111")
        screen.type("in\n")
        screen.wait_for("out\r\n")
        screen.type("\x03")
        # Ctrl-C also discards what was typed before the shell is back.
        screen.wait_for("# ")
        screen.type("echo $((130 + 0))=$?\n")
        screen.wait_for("130=130")
        screen.resize(44, 99)
        screen.type("until stty size | grep '44 99'; do sleep 0.05; done; exit 7\n")
        screen.wait_for("\n44 99")
        assert screen.child.wait(60) == 7


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_it_and_everything_in_it(
    task: Path, temporary: Path, number: signal.Signals
) -> None:
    child = subprocess.Popen(
        command_line("task", "try", task, "--shell"),
        env=environment(TMPDIR=str(temporary)),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert child.stdin is not None
    assert child.stdout is not None
    with child:
        child.stdin.write(b"echo up; exec sleep 1000\n")
        child.stdin.flush()
        assert child.stdout.readline() == b"up\n"
        child.send_signal(number)
        # The output ends when nothing in the sandbox can write to it any more.
        assert child.stdout.read() == b""
        assert child.wait(60) == 130
    assert list(temporary.iterdir()) == []


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"environment/Dockerfile": "FROM debian:12\nRUN echo 'cc: fatal: no file'; false\n"},
            "no shell could be opened: RuntimeError: Build failed: ",
        ),
        ({"task.toml": "[agent"}, ": task.toml is not TOML: "),
    ],
)
def test_an_environment_that_does_not_start_is_explained(
    task: Path, proctor: Proctor, changes: dict[str, str], message: str
) -> None:
    write(task, changes)
    ran = proctor("task", "try", task, "--shell")
    assert (ran.code, ran.out) == (2, "")
    assert message in ran.err
