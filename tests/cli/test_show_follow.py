"""`proctor show --follow`: a trajectory while it is being written."""

import json
import os
import pty
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import Empty, Queue

import pytest

from proctor.cli.showing import follow
from proctor.traces.writer import TrajectoryWriter
from tests.cli.programs import Proctor, command_line, environment
from tests.task.trees import JOBS
from tests.unprivileged import unprivileged

HEAD = "aec-bench-trajectory, version 1"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A trace of three steps."""
    path = tmp_path / "trajectory.jsonl"
    with TrajectoryWriter(path) as trace:
        for at in range(1, 4):
            trace.new_step()
            trace.assistant(f"I print {at}.")
    return path


class Following:
    """A `show --follow` that runs in a child; its output comes line by line."""

    def __init__(self, *arguments: object) -> None:
        self.process = subprocess.Popen(
            command_line("show", "-f", *arguments),
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


def write_trial(place: Path, text: str = "") -> Path:
    """A trial that has ended, with a trace of this text: following it ends by itself."""
    (place / "agent").mkdir()
    (place / "result.json").touch()
    append(place / "agent" / "trajectory.jsonl", text)
    return place


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
    ran = proctor("show", "-f", write_trial(tmp_path, line))
    assert (ran.code, ran.out.splitlines()) == (0, [shown] if shown else [])


def test_a_last_line_without_its_end_is_shown_when_nothing_more_will_come(
    proctor: Proctor, tmp_path: Path
) -> None:
    trial = write_trial(tmp_path, said("last").strip())
    assert proctor("show", "-f", trial).out == "step 9  assistant\n    last\n"


def test_a_line_that_nobody_could_read_is_not_held(
    proctor: Proctor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follow, "LINE_LIMIT", 1_000_000)
    trial = write_trial(tmp_path, said("x" * 3_000_000) + said("y") + "z" * 2_000_000)
    out = proctor("show", "-f", trial).out.splitlines()
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
    trial = write_trial(tmp_path, said("x" * 12_345))
    assert proctor("show", "-f", *options, trial).out.splitlines()[-1] == last


def test_no_control_character_reaches_the_terminal(proctor: Proctor, tmp_path: Path) -> None:
    path = write_trial(tmp_path) / "agent" / "trajectory.jsonl"
    hostile = "a\x1b[31mred\x1b]0;title\x07\r\x08\x7f\x9b2J\u202e\u2028z"
    with TrajectoryWriter(path) as trace:
        trace.new_step(hostile)
        trace.tool_call(hostile, hostile, {hostile: hostile})
        trace.tool_result(hostile, hostile, hostile, media=[hostile], metadata={hostile: 1})
        trace.entry(role=hostile)
    append(path, json.dumps({"version": hostile, "format": hostile}) + "\n")
    append(path, json.dumps({"role": hostile, hostile: 1}) + "\n")
    out = proctor("show", "-f", tmp_path).out
    assert [char for char in out if not char.isprintable() and char != "\n"] == []
    assert r"a\x1b[31mred" in out


def test_on_a_screen_lines_are_broken_and_stay_indented(tmp_path: Path) -> None:
    trial = write_trial(tmp_path, said("x" * 100))
    screen, keyboard = pty.openpty()
    done = subprocess.run(
        command_line("show", "-f", trial),
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
    with following(path) as follow, TrajectoryWriter(path) as trace:
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


def test_of_a_running_trial_its_trace_is_waited_for_and_its_end_ends_it(tmp_path: Path) -> None:
    trial = tmp_path / "trial"
    shutil.copytree(next((JOBS / "16-agent-nonzero").glob("pass-simple__*")), trial)
    shutil.rmtree(trial / "agent")
    (trial / "result.json").rename(tmp_path / "result.json")
    with following(trial) as follow:
        assert follow.is_quiet()
        (trial / "agent").mkdir()
        append(trial / "agent" / "trajectory.jsonl", said("here"))
        assert [follow.next(), follow.next()] == ["step 9  assistant", "    here"]
        assert follow.is_quiet()
        append(trial / "agent" / "trajectory.jsonl", said("last"))
        (tmp_path / "result.json").rename(trial / "result.json")
        assert [follow.next(), follow.next()] == ["step 9  assistant", "    last"]
        assert follow.process.wait(timeout=20) == 0


def test_following_ends_when_nobody_reads(path: Path) -> None:
    process = subprocess.Popen(
        command_line("show", "-f", path), env=environment(), stdout=subprocess.PIPE
    )
    assert process.stdout
    assert process.stdout.readline() == f"{HEAD}\n".encode()
    process.stdout.close()
    assert process.wait(timeout=20) == 0


# What cannot be followed


def test_what_is_no_file_cannot_be_followed(proctor: Proctor, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "empty").mkdir()
    for name, why in [
        (
            "missing",
            "no such file or directory; --follow shows a trace, or the directory of a trial, while "
            "it is written",
        ),
        ("pipe", "not a regular file; expected trajectory.jsonl"),
        (
            "empty",
            "has no agent/trajectory.jsonl, agent/model-trace.jsonl, agent/proctor-output.jsonl; "
            "expected a trajectory or the directory of a trial",
        ),
    ]:
        ran = proctor("show", "-f", tmp_path / name)
        assert (ran.code, ran.err) == (2, f"proctor: {tmp_path / name}: {why}\n")


def test_a_file_that_may_not_be_read_cannot_be_followed(
    proctor: Proctor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(tmp_path / "t", said("x"))
    (tmp_path / "t").chmod(0)
    tmp_path.chmod(0o755)
    monkeypatch.chdir(tmp_path)
    with unprivileged():
        ran = proctor("show", "-f", "t")
    assert (ran.code, ran.err) == (2, "proctor: t: cannot be read: Permission denied\n")


@pytest.mark.parametrize("name", ["atif", "conversation"])
def test_another_kind_of_trace_is_not_followed(proctor: Proctor, tmp_path: Path, name: str) -> None:
    texts = {
        "atif": '{"schema_version": "ATIF-v1.7", "agent": {}, "steps": []}',
        "conversation": '{"role": "user", "content": "x"}\n',
    }
    path = tmp_path / f"{name}.jsonl"
    path.write_text(texts[name])
    ran = proctor("show", "-f", path)
    assert (ran.code, ran.out) == (2, "")
    assert "which is not written line by line; omit --follow" in ran.err


@pytest.mark.parametrize(
    "options", [["--json"], ["--step", "1"], ["--part", "x"], ["--raw"], ["--changes"]]
)
def test_options_without_effect_are_refused(
    proctor: Proctor, tmp_path: Path, options: list[str]
) -> None:
    ran = proctor("show", "-f", write_trial(tmp_path), *options)
    assert (ran.code, ran.out) == (2, "")
    assert "cannot be used with --follow" in ran.err


def printed(number: int) -> str:
    """A line of what a command printed."""
    row = {"role": "output", "step": 0, "stdout": f"line {number}\n"}
    return json.dumps({**row, "timestamp": f"2026-01-01T00:00:{number:02}.000Z"}) + "\n"


def test_of_a_trial_its_trajectory_is_followed_else_what_its_commands_print(
    proctor: Proctor, tmp_path: Path
) -> None:
    (tmp_path / "result.json").touch()
    (tmp_path / "agent").mkdir()
    (tmp_path / "agent" / "proctor-output.jsonl").write_text(printed(1))
    assert proctor("show", "-f", tmp_path).out == "00:00:01.000  line 1\n"
    (tmp_path / "agent" / "model-trace.jsonl").write_text('{"role": "system", "step": 0}\n')
    assert proctor("show", "-f", tmp_path).out == "step 0  system\n"
    (tmp_path / "agent" / "trajectory.jsonl").write_text('{"role": "user", "step": 0}\n')
    assert proctor("show", "-f", tmp_path).out == "step 0  user\n"


def test_lines_of_an_output_that_was_cut_are_not_shown_again(tmp_path: Path) -> None:
    file = tmp_path / "proctor-output.jsonl"
    file.write_text("".join(printed(number) for number in range(9)))
    with following(file) as follow:
        assert [follow.next() for _ in range(9)][-1] == "00:00:08.000  line 8"
        # As the log of a trial is cut: a new file without the middle takes its place.
        new = tmp_path / "new"
        new.write_text("".join(printed(number) for number in (0, 1, 7, 8, 9)))
        new.rename(file)
        assert follow.next() == "00:00:09.000  line 9"
        with file.open("a") as more:
            more.write(printed(10))
        assert follow.next() == "00:00:10.000  line 10"
