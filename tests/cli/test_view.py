"""`proctor view` as a program: what it refuses, what it says, how it ends."""

import contextlib
import json
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from proctor.web.server import listen
from tests.cli.programs import Proctor, command_line, environment
from tests.web.subjects import JOBS, SEALED, seal_jobs

JOB = JOBS / SEALED[0]


class Viewing:
    """A viewer that runs."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        text = ""
        assert process.stdout is not None
        for line in process.stdout:
            text += line
            if line.startswith("}"):
                break
        self.said: dict[str, str] = json.loads(text)
        self.address = self.said["address"].rstrip("/")

    def end(self, how: signal.Signals) -> int:
        """End it, and see with which code it goes."""
        self.process.send_signal(how)
        return self.process.wait(30)


@contextlib.contextmanager
def viewing(*arguments: object) -> Iterator[Viewing]:
    """`proctor view`, until the end of the block at the latest."""
    with subprocess.Popen(
        command_line("view", *arguments, "--json"),
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield Viewing(process)
        finally:
            process.kill()


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_it_answers_until_it_is_ended_and_that_is_no_failure(how: signal.Signals) -> None:
    with viewing(JOB, "--port", "0") as viewer:
        assert JOB.name in httpx.get(viewer.address).text
        assert viewer.end(how) == 0
        assert viewer.process.stderr is not None
        assert viewer.process.stderr.read() == ""


def test_a_page_that_listens_does_not_keep_it_from_ending(tmp_path: Path) -> None:
    job = tmp_path / JOB.name
    shutil.copytree(JOB, job)
    result = json.loads((job / "result.json").read_text())
    (job / "result.json").write_text(json.dumps({**result, "finished_at": None}))
    with (
        viewing(job, "--port", "0") as viewer,
        httpx.stream("GET", f"{viewer.address}/experiments/{job.name}/events") as stream,
    ):
        assert next(stream.iter_lines())
        assert viewer.end(signal.SIGINT) == 0


def test_two_at_once_have_a_port_and_a_token_each() -> None:
    with viewing(JOB) as first, viewing(JOB) as second:
        assert first.address != second.address
        assert first.said["token"] != second.said["token"]
        for viewer in (first, second):
            assert httpx.get(viewer.address).status_code == 200
            assert httpx.get(viewer.said["open"]).status_code == 303
        crossed = f"{first.address}/?token={second.said['token']}"
        assert httpx.get(crossed).status_code == 403


def test_a_job_that_is_named_opens_at_its_page_and_others_at_the_list(tmp_path: Path) -> None:
    with viewing(JOB, "--port", "0") as viewer:
        page = f"{viewer.address}/experiments/{JOB.name}"
        assert viewer.said["open"] == f"{page}?token={viewer.said['token']}"
        assert httpx.get(page).status_code == 200
    shutil.copytree(JOB, tmp_path / JOB.name)
    with viewing(tmp_path, "--port", "0") as viewer:
        assert viewer.said["open"] == f"{viewer.address}/?token={viewer.said['token']}"


def test_it_looks_at_the_ledger_that_is_named_or_usual(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PROCTOR_LEDGER", str(seal_jobs(tmp_path / "ledger", SEALED[:1])))
    with viewing("--port", "0") as viewer:
        assert SEALED[0] in httpx.get(viewer.address).text


def test_a_directory_of_jobs_is_looked_at_as_such() -> None:
    with viewing(JOBS, "--port", "0") as viewer:
        text = httpx.get(viewer.address).text
        assert all(name in text for name in SEALED)


def test_a_damaged_ledger_is_shown(tmp_path: Path) -> None:
    ledger = seal_jobs(tmp_path / "ledger", SEALED[:1])
    (ledger / "checkpoint").write_text("none\n")
    with viewing(ledger, "--port", "0") as viewer:
        assert "This ledger is damaged" in httpx.get(viewer.address).text


def test_what_is_neither_a_ledger_nor_a_job_is_refused(proctor: Proctor, tmp_path: Path) -> None:
    empty, other, file = tmp_path / "empty", tmp_path / "other", tmp_path / "file"
    empty.mkdir()
    other.mkdir()
    (other / "x.txt").write_text("x")
    file.write_text("x")
    trial = next(each for each in JOB.iterdir() if each.is_dir())
    for place, sentence in (
        (tmp_path / "nothing", "does not exist; expected a ledger"),
        (empty, "empty directory"),
        (other, "not a Harbor job directory"),
        (file, "this is a file"),
        (trial, "this is one trial; expected the job directory around it"),
    ):
        ran = proctor("view", place)
        assert ran.code == 2
        assert sentence in ran.err
        assert ran.out == ""


def test_a_ledger_of_another_format_is_refused(proctor: Proctor, tmp_path: Path) -> None:
    ledger = seal_jobs(tmp_path / "ledger", SEALED[:1])
    segment = ledger / "entries" / "000000.jsonl"
    first, _, rest = segment.read_bytes().partition(b"\n")
    named = json.loads(first)["format"].encode()
    segment.write_bytes(first.replace(named, b"proctor-ledger/99") + b"\n" + rest)
    ran = proctor("view", ledger)
    assert ran.code == 2
    assert "a newer one may read it" in ran.err


def test_a_port_that_is_taken_is_refused(proctor: Proctor) -> None:
    with listen(0) as taken:
        port = taken.getsockname()[1]
        ran = proctor("view", JOB, "--port", port)
    assert ran.code == 2
    assert f"port {port} of 127.0.0.1 cannot be used" in ran.err
    assert "--port 0 picks a free one" in ran.err


def test_a_thing_and_a_ledger_are_one_too_many(proctor: Proctor, tmp_path: Path) -> None:
    ran = proctor("view", JOB, "--ledger", tmp_path)
    assert ran.code == 2
    assert "expected one of the two" in ran.err
