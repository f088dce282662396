"""`proctor trace follow`: a trajectory while it is being written."""

import json
import os
import pty
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import Empty, Queue

import pytest

from proctor.cli import trace_tail
from proctor.traces.writer import TrajectoryWriter
from tests.cli.programs import Proctor, command_line, environment
from tests.unprivileged import unprivileged

HEAD = "aec-bench-trajectory, version 1"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A trace of three steps."""
    path = tmp_path / "trajectory.jsonl"
    with TrajectoryWriter(path) as trace:
        trace.user("Calculate\tthe drop.\nPlease.")
        for at in range(1, 4):
            trace.new_step()
            trace.tool_call("bash", f"echo {at}", {"n": at})
            trace.tool_result("bash", f"{at}\n", exit_code=at - 1, duration_ms=1142)
    return path


class Following:
    """A `follow` that runs in a child; its output comes line by line."""

    def __init__(self, *arguments: object) -> None:
        self.process = subprocess.Popen(
            command_line("trace", "follow", *arguments),
            env=environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._lines: Queue[str] = Queue()
        self._collector = threading.Thread(target=self._collect)
        self._collector.start()

    def end(self) -> None:
        self.process.kill()
        self._collector.join()
        self.process.communicate()

    def _collect(self) -> None:
        for line in self.process.stdout or ():
            self._lines.put(line.removesuffix("\n"))

    def next(self, seconds: float = 20) -> str:
        return self._lines.get(timeout=seconds)

    def is_quiet(self) -> bool:
        try:
            self._lines.get(timeout=0.6)
        except Empty:
            return True
        return False


@contextmanager
def following(*arguments: object) -> Iterator[Following]:
    found = Following(*arguments)
    try:
        yield found
    finally:
        found.end()


def append(path: Path, text: str) -> None:
    with path.open("ab") as file:
        file.write(text.encode())


def said(text: str, step: int = 9) -> str:
    return json.dumps({"step": step, "role": "assistant", "content": text}) + "\n"


def test_what_is_there_is_shown_readably(proctor: Proctor, path: Path) -> None:
    ran = proctor("trace", "follow", "--once", "--from-start", path)
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.splitlines()[:8] == [
        HEAD,
        "step 0  user",
        "    Calculate   the drop.",
        "    Please.",
        "step 1  tool_call  bash",
        "    echo 1",
        '    arguments: {"n": 1}',
        "step 1  tool_result  bash  exit 0  1,142 ms",
    ]


@pytest.mark.parametrize(
    ("options", "shown"),
    [
        ([], 8),
        (["--lines", 2], 2),
        (["--lines", 0], 0),
        (["--from-start"], 8),
        (["--lines", 99], 8),
    ],
)
def test_as_much_is_shown_as_is_asked_for(
    proctor: Proctor, path: Path, options: list[object], shown: int
) -> None:
    ran = proctor("trace", "follow", "--once", "--json", *options, path)
    lines = [json.loads(line)["line"] for line in ran.out.splitlines()]
    assert lines == list(range(1, 9))[8 - shown :]


def test_json_lines_hold_what_the_file_holds(proctor: Proctor, tmp_path: Path) -> None:
    path = tmp_path / "t"
    append(
        path,
        '{"version": 1, "format": "f"}\n\n{"step": 1, "role": "é\\u0085\\u007f", "x": NaN}\n[]\n',
    )
    out = proctor("trace", "follow", "--once", "--json", path).out
    assert out.isascii()
    assert "\x7f" not in out
    assert [json.loads(line) for line in out.splitlines()] == [
        {"line": 1, "header": {"version": 1, "format": "f", "timestamp": None}},
        {
            "line": 3,
            "entry": {"role": "é\x85\x7f", "step": 1},
            "beside": {"x": None},
            "problems": [
                "NaN, which JSON numbers cannot express",
                'unknown key "x"; not part of the format',
            ],
        },
        {"line": 4, "problems": ["[]; expected a JSON object"]},
    ]


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        (
            "garbage\n",
            "line 1: not an entry: not JSON at character 1: Expecting value; "
            "expected a JSON object",
        ),
        ("[1]\n", "line 1: not an entry: [1]; expected a JSON object"),
        ('{"role": "x"}\n', "line 1: not an entry: no step; expected one in every entry"),
        ("[" * 100_000 + "\n", "line 1: not an entry: brackets nested deeper than can be read"),
        (
            '{"step": 1, "ro',
            "line 1: not an entry: the file ends inside a line, after 15 bytes of it",
        ),
        ("\n \n", None),
        ("", None),
    ],
    ids=["garbage", "array", "no step", "deep", "torn", "blank", "empty"],
)
def test_a_line_that_is_no_entry_is_shown_as_that(
    proctor: Proctor, tmp_path: Path, line: str, shown: str | None
) -> None:
    path = tmp_path / "t"
    append(path, line)
    ran = proctor("trace", "follow", "--once", path)
    assert (ran.code, ran.out.splitlines()) == (0, [shown] if shown else [])


def test_a_last_line_without_its_end_is_shown_when_nothing_more_will_come(
    proctor: Proctor, tmp_path: Path
) -> None:
    path = tmp_path / "t"
    append(path, said("last").strip())
    assert proctor("trace", "follow", "--once", path).out == "step 9  assistant\n    last\n"


def test_a_line_that_nobody_could_read_is_not_held(
    proctor: Proctor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trace_tail, "LINE_LIMIT", 1_000_000)
    path = tmp_path / "t"
    append(path, said("x" * 3_000_000) + said("y") + "z" * 2_000_000)
    out = proctor("trace", "follow", "--once", path).out.splitlines()
    assert out[0].startswith("line 1: not an entry: 3,000,")
    assert out[1:3] == ["step 9  assistant", "    y"]
    assert out[3].startswith("line 3: not an entry: 2,000,000 bytes long; expected no more than")


@pytest.mark.parametrize(
    ("options", "last"),
    [([], "    … 10,345 more characters"), (["--full"], "    " + "x" * 12_345)],
)
def test_long_texts_are_cut_and_it_is_said(
    proctor: Proctor, tmp_path: Path, options: list[str], last: str
) -> None:
    path = tmp_path / "t"
    append(path, said("x" * 12_345))
    assert proctor("trace", "follow", "--once", *options, path).out.splitlines()[-1] == last


def test_no_control_character_reaches_the_terminal(proctor: Proctor, tmp_path: Path) -> None:
    path = tmp_path / "t"
    hostile = "a\x1b[31mred\x1b]0;title\x07\r\x08\x7f\x9b2J\u202e\u2028z"
    with TrajectoryWriter(path) as trace:
        trace.new_step(hostile)
        trace.tool_call(hostile, hostile, {hostile: hostile})
        trace.tool_result(hostile, hostile, hostile, media=[hostile], metadata={hostile: 1})
        trace.entry(role=hostile)
    append(path, json.dumps({"version": hostile, "format": hostile}) + "\n")
    append(path, json.dumps({"role": hostile, hostile: 1}) + "\n")
    out = proctor("trace", "follow", "--once", path).out
    assert [char for char in out if not char.isprintable() and char != "\n"] == []
    assert r"a\x1b[31mred" in out


def test_on_a_screen_lines_are_broken_and_stay_indented(tmp_path: Path) -> None:
    path = tmp_path / "t"
    append(path, said("x" * 100))
    screen, keyboard = pty.openpty()
    done = subprocess.run(
        command_line("trace", "follow", "--once", path),
        env=environment(COLUMNS="44"),
        stdout=keyboard,
        check=False,
        timeout=60,
    )
    shown = os.read(screen, 10_000).decode().split("\r\n")
    os.close(screen)
    os.close(keyboard)
    assert done.returncode == 0
    assert shown[1:4] == ["    " + "x" * 40, "    " + "x" * 40, "    " + "x" * 20]


# Live


def test_entries_are_shown_as_they_are_appended(path: Path) -> None:
    with following("--lines", 0, path) as follow, TrajectoryWriter(path) as trace:
        wait_until_read(follow, trace)
        trace.assistant("two")
        assert [follow.next(), follow.next()] == ["step 3  assistant", "    two"]
        follow.process.send_signal(signal.SIGINT)
        # Ctrl-C leaves its mark on the line of the cursor; the sentence stands below.
        assert [follow.next(), follow.next()] == ["", "proctor: interrupted"]
        assert follow.process.wait(timeout=20) == 130


def wait_until_read(follow: Following, trace: TrajectoryWriter) -> None:
    """Append until the child shows it: it takes a moment to start."""
    for _ in range(200):
        trace.assistant("one")
        try:
            follow.next(0.3)
        except Empty:
            continue
        break
    while not follow.is_quiet():
        continue


def test_a_half_written_line_is_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "t"
    append(path, said("one"))
    with following(path) as follow:
        assert [follow.next(), follow.next()] == ["step 9  assistant", "    one"]
        line = said("two")
        append(path, line[:20])
        assert follow.is_quiet()
        append(path, line[20:])
        assert [follow.next(), follow.next()] == ["step 9  assistant", "    two"]


def truncate(path: Path) -> None:
    os.truncate(path, 0)
    append(path, said("2"))


def replace(path: Path) -> None:
    other = path.with_name("other")
    append(other, said("2"))
    other.replace(path)


def delete(path: Path) -> None:
    path.unlink()
    time.sleep(1)
    append(path, said("2"))


@pytest.mark.parametrize(
    ("change", "sentences"),
    [
        (truncate, ["was truncated; lines are counted from 1 again"]),
        (replace, ["was replaced; the new file follows from its first line"]),
        (
            delete,
            [
                "was removed; waiting for it to reappear",
                "was replaced; the new file follows from its first line",
            ],
        ),
    ],
)
def test_a_file_that_is_cut_or_replaced_is_followed_on(
    tmp_path: Path, change: Callable[[Path], None], sentences: list[str]
) -> None:
    path = tmp_path / "t"
    append(path, said("one, which is longer") + "{half")
    with following(path) as follow:
        assert [follow.next(), follow.next()] == ["step 9  assistant", "    one, which is longer"]
        change(path)
        assert [follow.next() for _ in sentences] == [f"{path}: {text}" for text in sentences]
        assert [follow.next(), follow.next()] == ["step 9  assistant", "    2"]


def test_a_file_may_be_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "t"
    with following("--wait", path) as follow:
        assert follow.is_quiet()
        append(path, said("here"))
        assert [follow.next(), follow.next()] == ["step 9  assistant", "    here"]


def test_following_ends_when_nothing_has_come_for_a_while(proctor: Proctor, path: Path) -> None:
    began = time.monotonic()
    append(path, "{")
    ran = proctor("trace", "follow", "--lines", 1, "--until-idle", 0.3, path)
    assert ran.code == 0
    assert ran.out.splitlines()[-1].endswith("the file ends inside a line, after 1 bytes of it")
    assert time.monotonic() - began < 10


def test_following_ends_when_nobody_reads(path: Path) -> None:
    process = subprocess.Popen(
        command_line("trace", "follow", path), env=environment(), stdout=subprocess.PIPE
    )
    assert process.stdout
    assert process.stdout.readline() == f"{HEAD}\n".encode()
    process.stdout.close()
    assert process.wait(timeout=20) == 0


# What cannot be followed


def test_what_is_no_file_cannot_be_followed(proctor: Proctor, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for name, why in [
        ("pipe", "not a regular file; expected trajectory.jsonl"),
        ("gone", "cannot be read: No such file or directory"),
    ]:
        ran = proctor("trace", "follow", tmp_path / name)
        assert (ran.code, ran.err) == (2, f"proctor: {tmp_path / name}: {why}\n")


def test_a_file_that_may_not_be_read_cannot_be_followed(
    proctor: Proctor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(tmp_path / "t", said("x"))
    (tmp_path / "t").chmod(0)
    tmp_path.chmod(0o755)
    monkeypatch.chdir(tmp_path)
    with unprivileged():
        ran = proctor("trace", "follow", "t")
    assert (ran.code, ran.err) == (2, "proctor: t: cannot be read: Permission denied\n")


def test_a_file_that_never_appears_is_not_waited_for_for_ever(
    proctor: Proctor, tmp_path: Path
) -> None:
    ran = proctor("trace", "follow", "--wait", "--until-idle", 0.1, tmp_path / "t")
    assert ran.code == 2
    assert ran.err == f"proctor: {tmp_path / 't'}: did not appear within 0.1 seconds\n"


def test_two_amounts_are_one_too_many(proctor: Proctor, path: Path) -> None:
    ran = proctor("trace", "follow", "--from-start", "--lines", 10, path)
    assert ran.code == 2
    assert "--lines cannot be combined with --from-start" in ran.err


def printed(number: int) -> str:
    """A line of what a command printed."""
    row = {"role": "output", "step": 0, "stdout": f"line {number}\n"}
    return json.dumps({**row, "timestamp": f"2026-01-01T00:00:{number:02}.000Z"}) + "\n"


def test_of_a_trial_its_trajectory_is_followed_else_what_its_commands_print(
    proctor: Proctor, tmp_path: Path
) -> None:
    refused = proctor("trace", "follow", "--once", tmp_path)
    assert (refused.code, refused.err.count("\n")) == (2, 1)
    assert (
        "agent/proctor-output.jsonl; expected a trajectory or the directory of a trial"
        in refused.err
    )
    (tmp_path / "agent").mkdir()
    (tmp_path / "agent" / "proctor-output.jsonl").write_text(printed(1))
    assert proctor("trace", "follow", "--once", tmp_path).out == "00:00:01.000  line 1\n"
    (tmp_path / "agent" / "model-trace.jsonl").write_text('{"role": "system", "step": 0}\n')
    assert proctor("trace", "follow", "--once", tmp_path).out == "step 0  system\n"
    (tmp_path / "agent" / "trajectory.jsonl").write_text('{"role": "user", "step": 0}\n')
    assert proctor("trace", "follow", "--once", tmp_path).out == "step 0  user\n"


def test_lines_of_an_output_that_was_cut_are_not_shown_again(tmp_path: Path) -> None:
    file = tmp_path / "proctor-output.jsonl"
    file.write_text("".join(printed(number) for number in range(9)))
    with following(file, "--lines", "1") as follow:
        assert follow.next() == "00:00:08.000  line 8"
        # As the log of a trial is cut: a new file without the middle takes its place.
        new = tmp_path / "new"
        new.write_text("".join(printed(number) for number in (0, 1, 7, 8, 9)))
        new.rename(file)
        assert follow.next() == "00:00:09.000  line 9"
        with file.open("a") as more:
            more.write(printed(10))
        assert follow.next() == "00:00:10.000  line 10"
