"""What kind of thing a path leads to: its content tells, its name only where content does not."""

import json
import os
from pathlib import Path

import pytest

from proctor.audit.file_kind import FileKind, find_file_kind
from proctor.errors import InputError
from tests.audit.directories import COPIED
from tests.unprivileged import unprivileged

DATA = Path(__file__).resolve().parent.parent / "data"
JOB = COPIED / "04-binary-scripted-k5"
TRIAL = JOB / "pass-simple__35oQqES"
ATIF = (TRIAL / "agent" / "trajectory.json").read_bytes()
RECORD = (DATA / "records" / "g1-complete.json").read_bytes()
HEADER = b'{"version": 1, "format": "aec-bench-trajectory"}\n'
ENTRY = b'{"step": 1, "role": "user", "content": "x"}\n'
ROW = b'{"role": "user", "content": "x"}\n'
LONG = b'"' + b"x" * (1 << 17) + b'"'


def compact(document: bytes) -> bytes:
    return json.dumps(json.loads(document), separators=(",", ":")).encode()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A file whose name says nothing."""
    return tmp_path / "x"


def thing_of(path: Path, data: bytes) -> FileKind:
    path.write_bytes(data)
    return find_file_kind(str(path))


@pytest.mark.parametrize("name", ["x.json", "conversation.jsonl", "trajectory.jsonl", "x", "a b"])
@pytest.mark.parametrize(
    ("data", "thing"),
    [
        (HEADER + ENTRY, FileKind.TRAJECTORY),
        (ENTRY, FileKind.TRAJECTORY),
        (ENTRY.rstrip(), FileKind.TRAJECTORY),
        (b"\n \r\n" + ENTRY, FileKind.TRAJECTORY),
        (b"\xef\xbb\xbf" + ENTRY, FileKind.TRAJECTORY),
        (b"\xef\xbb\xbf\n" + ROW, FileKind.CONVERSATION),
        (ENTRY.replace(b"\n", b"\r\n") * 2, FileKind.TRAJECTORY),
        (b"garbage\n" + ENTRY, FileKind.TRAJECTORY),
        (b'{"st\n' + ENTRY, FileKind.TRAJECTORY),
        (b"\0\0\0\n" + ROW, FileKind.CONVERSATION),
        (b'{"step": 1, "role": "user", "content": ' + LONG + b"}\n" + ENTRY, FileKind.TRAJECTORY),
        (b'{"role": "system", "content": ' + LONG + b"}\n" + ROW, FileKind.CONVERSATION),
        (b'[{"role": "system", "content": ' + LONG + b"}]", FileKind.CONVERSATION),
        (b"[" + ROW.rstrip() + b"]\n", FileKind.CONVERSATION),
        (b'{"event": "tool_call"}\n', FileKind.CONVERSATION),
        (b'{"kind": "request", "parts": []}\n', FileKind.CONVERSATION),
        (ROW * 5000, FileKind.CONVERSATION),
        (ENTRY * 5000, FileKind.TRAJECTORY),
        (ATIF, FileKind.ATIF),
        (compact(ATIF), FileKind.ATIF),
        (b"\xef\xbb\xbf" + ATIF, FileKind.ATIF),
        (ATIF.replace(b"\n", b"\r\n"), FileKind.ATIF),
        (b'{"agent": {}, "steps": []}', FileKind.ATIF),
        (b'{"notes": ' + LONG + b', "agent": {}, "steps": []}', FileKind.ATIF),
        (b'{\n"notes": ' + LONG + b',\n"agent": {}, "steps": []}', FileKind.ATIF),
        (RECORD, FileKind.RECORD),
        (compact(RECORD), FileKind.RECORD),
        (b'{"format": "f", "profile": "p", "version": 1}', FileKind.CERTIFICATE),
        (b"\xef\xbb\xbf" + RECORD, FileKind.RECORD),
        (ATIF.replace(b"0.00125", b"NaN"), FileKind.ATIF),
        (ATIF.replace(b"simple", b"\xff\x01"), FileKind.ATIF),
        (ATIF.replace(b"simple", b"\\ud800"), FileKind.ATIF),
        (RECORD.replace(b"trial-001", b"\xff"), FileKind.RECORD),
        (b'[{"role": "user", "n": NaN}]\n', FileKind.CONVERSATION),
    ],
    ids=lambda value: str(value)[:24],
)
def test_content_tells_whatever_the_name(
    tmp_path: Path, name: str, data: bytes, thing: FileKind
) -> None:
    assert thing_of(tmp_path / name, data) is thing


@pytest.mark.parametrize("data", [b"", b"\n\n", b"garbage\n", b"\0" * 100, b'{"step": 1, "ro'])
@pytest.mark.parametrize(
    ("name", "thing"),
    [
        ("trajectory.jsonl", FileKind.TRAJECTORY),
        ("other.jsonl", FileKind.TRAJECTORY),
        ("conversation.jsonl", FileKind.CONVERSATION),
        ("my-conversation-2.jsonl", FileKind.CONVERSATION),
    ],
)
def test_the_name_tells_where_content_does_not(
    tmp_path: Path, name: str, data: bytes, thing: FileKind
) -> None:
    assert thing_of(tmp_path / name, data) is thing


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "an empty file"),
        (b" \n", "an empty file"),
        (b"text", "torn or not JSON"),
        (compact(RECORD)[:-1], "torn or not JSON"),
        (b"\xff\xfe{\0}\0", "torn or not JSON"),
        (b"5", "JSON, but not an object"),
        (b"[" * 100_000, "torn or not JSON"),
        (b'{"a": 1}', "a JSON document with unknown keys"),
    ],
)
def test_what_is_nothing_known_has_a_reason(file: Path, data: bytes, reason: str) -> None:
    with pytest.raises(InputError) as raised:
        thing_of(file, data)
    known = "trajectory, conversation, ATIF trajectory, command output, trial record"
    more = "certificate, ledger, checkpoint, proof, claim, bundle"
    rest = "task, dataset, trial, job"
    expected = f"{file}: {reason}; expected one of: {known}, {more}, {rest}"
    assert str(raised.value) == expected


def test_every_directory_of_harbor_is_known() -> None:
    jobs = [path for path in COPIED.iterdir() if path.is_dir()]
    assert {find_file_kind(str(job)) for job in jobs} == {FileKind.JOB}
    trials = [path.parent for job in jobs for path in job.glob("*/config.json")]
    assert len(trials) > 100
    assert {find_file_kind(str(trial)) for trial in trials} == {FileKind.TRIAL}
    sets = [path for path in (DATA / "harbor" / "tasks").iterdir() if path.is_dir()]
    assert {find_file_kind(str(path)) for path in sets} == {FileKind.DATASET}
    tasks = [path.parent for path in (DATA / "harbor" / "tasks").glob("*/*/task.toml")]
    assert {find_file_kind(str(path)) for path in tasks} == {FileKind.TASK}


@pytest.mark.parametrize(
    ("names", "thing"),
    [
        (("task.toml", "result.json"), FileKind.TASK),
        (("result.json",), FileKind.JOB),
        (("config.json", "agent"), FileKind.TRIAL),
        (("config.json", "steps"), FileKind.TRIAL),
        (("config.json", "record.json"), FileKind.TRIAL),
        (("result.json", "exception.txt"), FileKind.TRIAL),
        (("config.json", "agent", "job.log"), FileKind.JOB),
        (("config.json", "lock.json"), FileKind.JOB),
        (("config.json", "lock.json", "trial.log"), FileKind.TRIAL),
        (("agent", "verifier"), FileKind.DATASET),
    ],
)
def test_directories_are_told_by_their_files(
    tmp_path: Path, names: tuple[str, ...], thing: FileKind
) -> None:
    for name in names:
        (tmp_path / name).touch()
    assert find_file_kind(str(tmp_path)) is thing


def test_an_empty_directory_is_nothing(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="an empty directory; expected a job"):
        find_file_kind(str(tmp_path))


def test_links_are_followed(tmp_path: Path) -> None:
    (tmp_path / "file").symlink_to(TRIAL / "agent" / "trajectory.json")
    (tmp_path / "directory").symlink_to(JOB)
    assert find_file_kind(str(tmp_path / "file")) is FileKind.ATIF
    assert find_file_kind(str(tmp_path / "directory")) is FileKind.JOB


def test_what_cannot_be_opened_has_a_reason(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "broken").symlink_to("nowhere")
    (tmp_path / "loop").symlink_to("loop")
    reasons = {
        str(tmp_path / "missing"): "No such file or directory",
        str(tmp_path / "fifo"): "not a regular file",
        "/dev/zero": "not a regular file",
        str(tmp_path / "broken"): "No such file or directory",
        str(tmp_path / "loop"): "Too many levels of symbolic links",
        str(tmp_path / "nul\0"): "embedded null byte",
        "": "No such file or directory",
        str(tmp_path / ("x" * 300)): "File name too long",
    }
    for path, reason in reasons.items():
        with pytest.raises(InputError) as raised:
            find_file_kind(path)
        assert str(raised.value) == f"{path}: cannot be read: {reason}"


def test_a_file_without_permission_has_a_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "trajectory.jsonl"
    file.write_bytes(ENTRY)
    file.chmod(0)
    tmp_path.chmod(0o755)
    monkeypatch.chdir(tmp_path)
    with unprivileged(), pytest.raises(InputError, match="cannot be read: Permission denied"):
        find_file_kind(file.name)
