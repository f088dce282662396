"""What an agent's commands print, recorded on the host as it comes."""

import asyncio
import json
import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from proctor.traces.trajectory import load_trajectory
from proctor.traces.writer import Redactor
from proctor.trial import output_log
from proctor.trial.output_log import CommandOutput, OutputLog

SECRET = "s3cr3t-value-123"  # noqa: S105 - of a test


def log_in(place: Path, *, secrets: bool = False) -> OutputLog:
    redactor = Redactor({"API_KEY": SECRET}) if secrets else None
    return OutputLog(str(place), redactor, logging.getLogger("tests.trial"))


def rows_in(place: Path) -> list[dict[str, Any]]:
    lines = (place / "proctor-output.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def texts_in(place: Path) -> list[str]:
    return [row["stdout"] for row in rows_in(place) if "stdout" in row]


def record(
    log: OutputLog, *pieces: bytes, act: Callable[[CommandOutput], None] = lambda _: None
) -> None:
    """Record one command that prints some pieces and ends well."""

    async def go() -> None:
        output = log.start("the command")
        for piece in pieces:
            output.feed(piece)
        act(output)
        output.end(0)

    asyncio.run(go())
    log.close()


@pytest.mark.parametrize(
    ("pieces", "texts"),
    [
        ([b"one\ntwo\n"], ["one\ntwo\n"]),
        ([b"one\n", b"two\n"], ["one\n", "two\n"]),
        ([b"o", b"ne\ntw", b"o"], ["one\n", "two"]),
        ([b""], []),
        ([b"\xe2\x82", b"\xac\n"], ["€\n"]),
        ([b"a\xff\xfe\nb\xe2"], ["a��\n", "b�"]),
        ([b"\x1b[2J\0\r\n"], ["\x1b[2J\0\r\n"]),
        ([b"x" * 70_000], ["x" * 70_000]),
    ],
)
def test_lines_are_written_whole_whatever_the_pieces(
    tmp_path: Path, pieces: list[bytes], texts: list[str]
) -> None:
    record(log_in(tmp_path), *pieces)
    assert texts_in(tmp_path) == texts
    header, first, *_, last = rows_in(tmp_path)
    assert (header["version"], header["format"]) == (1, "proctor-output")
    assert (first["role"], first["step"], first["command"]) == ("output", 0, "the command")
    assert (last["exit_code"], last["timestamp"][-1]) == (0, "Z")
    found = load_trajectory(str(tmp_path / "proctor-output.jsonl"))
    assert (len(found.entries), found.diagnostics) == (len(texts) + 2, [])


async def test_a_line_is_in_the_file_at_once_and_half_of_one_a_moment_later(tmp_path: Path) -> None:
    log = log_in(tmp_path)
    output, seen = log.start("x"), []
    output.feed(b"whole\nhalf")
    seen.append(texts_in(tmp_path))
    while len(texts_in(tmp_path)) < 2:
        await asyncio.sleep(0.01)
    seen.append(texts_in(tmp_path))
    output.close()
    assert seen == [["whole\n"], ["whole\n", "half"]]
    assert rows_in(tmp_path)[-1]["content"] == "stopped before it ended"


def test_secrets_are_redacted_also_where_they_come_in_two_pieces(tmp_path: Path) -> None:
    log = log_in(tmp_path, secrets=True)
    record(log, f"key {SECRET[:5]}".encode(), f"{SECRET[5:]}!\n".encode())
    assert texts_in(tmp_path) == ["key [redacted:API_KEY]!\n"]
    log.write_text("command.txt")
    assert (tmp_path / "command.txt").read_text() == "key [redacted:API_KEY]!\n"


def test_of_a_long_output_both_ends_are_kept_and_the_cut_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, size in (("HEAD", 1 << 16), ("_LONGEST", 3 << 16), ("_APART", 1 << 11)):
        monkeypatch.setattr(output_log, name, size)
    log, sizes = log_in(tmp_path), []
    lines = [f"{number:09}\n".encode() * 100 for number in range(2000)]

    def print_all(output: CommandOutput) -> None:
        for line in lines:
            output.feed(line)
            sizes.append(Path(log.path).stat().st_size)

    record(log, act=print_all)
    assert max(sizes) < 4 << 16
    kept = "".join(texts_in(tmp_path)).encode()
    whole = b"".join(lines)
    assert len(kept) + log.n_cut == len(whole)
    assert 1 << 16 < len(kept) < 3 << 16
    assert whole.startswith(kept[: 1 << 15])
    assert whole.endswith(kept[-(1 << 15) :])
    notes = [row["content"] for row in rows_in(tmp_path) if "content" in row]
    assert notes == [f"{log.n_cut:,} bytes were cut here"]
    log.write_text("command.txt")
    assert f"\n[{notes[0]}]\n" in (tmp_path / "command.txt").read_text()
    assert sorted(each.name for each in tmp_path.iterdir()) == [
        "command.txt",
        "proctor-output.jsonl",
    ]


async def test_commands_after_the_first_are_numbered_and_may_run_at_once(tmp_path: Path) -> None:
    log = log_in(tmp_path)
    one, two = log.start("a\ud800"), log.start("b" * 9000)
    one.feed(b"1\n")
    two.feed(b"2\n")
    two.end(3)
    one.end(0)
    log.close()
    _, *rows = rows_in(tmp_path)
    assert [row.get("metadata") for row in rows] == [
        *(None, {"command": 2}, None, {"command": 2}, {"command": 2}, None)
    ]
    assert [row["command"] for row in rows[:2]] == ["a���", "b" * 4000 + "…"]


@pytest.mark.parametrize("fault", ["no directory", "a link", "lost later"])
def test_a_disk_that_fails_ends_the_recording_and_not_the_trial(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, fault: str
) -> None:
    place = tmp_path / "agent"
    victim = tmp_path / "victim"
    if fault != "no directory":
        place.mkdir()
    if fault == "a link":
        (place / "proctor-output.jsonl").symlink_to(victim)
    log = log_in(place)

    def act(output: CommandOutput) -> None:
        if fault == "lost later":
            os.close(log._fd)
            log._fd = os.open("/dev/full", os.O_WRONLY)
        output.feed(b"one\n")
        output.feed(b"two\n")

    with caplog.at_level(logging.WARNING):
        record(log, act=act)
    assert caplog.text.count("the agent's output is not recorded further") == 1
    assert not victim.exists()
