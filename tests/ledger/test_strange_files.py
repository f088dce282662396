"""Links, pipes, sockets and directories at every name below a ledger: nothing is followed.

A stranger may hand over any of them. Whatever is asked of such a ledger ends soon, with a sentence,
and nothing outside it is read or changed.
"""

import contextlib
import os
import shutil
import signal
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from proctor.errors import ProctorError
from proctor.ledger.api import Ledger
from proctor.ledger.entry import NoteEntry
from proctor.ledger.verification.verify import verify_ledger
from proctor.web.data_source import DataSource, Health
from proctor.web.ledger_log import opened_log
from tests.cli.programs import Proctor, run_here
from tests.ledger.ledgers import EXPERIMENT, find_key, forget_index, record_bytes
from tests.ledger.trials import open_ledger, seal_files

EVIDENCE = b"what it did\n" * 100
SOON_SECONDS = 20


@pytest.fixture
def proctor(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Proctor:
    return run_here(monkeypatch, capsys)


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    with open_ledger(tmp_path) as ledger:
        seal_files(ledger, "one", {"agent/trajectory.jsonl": EVIDENCE})
    return tmp_path / "ledger"


@pytest.fixture(autouse=True)
def soon() -> Iterator[None]:
    """A read that waits for somebody is a failure, not a wait."""

    def fail(_signal: int, _frame: object) -> None:
        raise AssertionError("still waiting")

    before = signal.signal(signal.SIGALRM, fail)
    signal.alarm(SOON_SECONDS)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def artifact(ledger: Path) -> Path:
    (found,) = ledger.glob("artifacts/sha256/??/*.zst")
    return found


NAMES: dict[str, Callable[[Path], Path]] = {
    "checkpoint": lambda ledger: ledger / "checkpoint",
    "entries": lambda ledger: ledger / "entries",
    "segment": lambda ledger: ledger / "entries" / "000000.jsonl",
    "artifacts": lambda ledger: ledger / "artifacts",
    "sha256": lambda ledger: ledger / "artifacts" / "sha256",
    "two letters": lambda ledger: artifact(ledger).parent,
    "artifact": artifact,
}
READ_WITHOUT_EVIDENCE = {"checkpoint", "entries", "segment"}


def put_link(path: Path, aside: Path) -> None:
    """The very same, elsewhere."""
    path.symlink_to(aside)


def put_pipe(path: Path, _aside: Path) -> None:
    os.mkfifo(path)


def put_socket(path: Path, _aside: Path) -> None:
    here = Path.cwd()
    os.chdir(path.parent)  # the name of a socket is short
    try:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(path.name)
    finally:
        os.chdir(here)


def put_directory(path: Path, _aside: Path) -> None:
    path.mkdir()


def put_dangling(path: Path, aside: Path) -> None:
    path.symlink_to(aside.with_name("nowhere"))


THINGS = [put_link, put_pipe, put_socket, put_directory, put_dangling]
COMMANDS = (
    ("ledger", "list"),
    ("ledger", "verify"),
    ("ledger", "prove", "1", "-o", "-"),
    ("ledger", "claim", "--experiment", EXPERIMENT, "-o", "OUT/claim"),
    ("ledger", "checkpoint"),
    ("show", "one"),
    ("show", "one", "--evidence", "agent/trajectory.jsonl"),
    ("board",),
    ("search", "did"),
    ("export", "--format", "harbor", "-o", "OUT/job"),
)
OF_EVIDENCE = {COMMANDS[1], COMMANDS[6]}


def snapshot(directory: Path) -> dict[str, tuple[int, int, bytes]]:
    return {
        str(path.relative_to(directory)): (
            (found := path.lstat()).st_mode,
            found.st_mtime_ns,
            path.read_bytes() if path.is_file() else b"",
        )
        for path in directory.rglob("*")
    }


@pytest.mark.parametrize("put", THINGS, ids=lambda put: put.__name__)
@pytest.mark.parametrize("name", NAMES)
def test_nothing_strange_below_a_ledger_is_opened(
    ledger: Path,
    proctor: Proctor,
    tmp_path: Path,
    name: str,
    put: Callable[[Path, Path], None],
) -> None:
    path, aside = NAMES[name](ledger), tmp_path / "outside" / "aside"
    aside.parent.mkdir()
    path.rename(aside)
    put(path, aside)
    forget_index(ledger)
    before = snapshot(aside.parent)
    for number, command in enumerate(COMMANDS):
        words = [word.replace("OUT", str(tmp_path / f"out-{number}")) for word in command]
        (tmp_path / f"out-{number}").mkdir()
        ran = proctor(*words, "--ledger", ledger)
        where = (command, name, put.__name__, ran)
        assert "Traceback" not in ran.err, where
        assert EVIDENCE.decode() not in ran.out, where
        if name in READ_WITHOUT_EVIDENCE or command in OF_EVIDENCE:
            assert ran.code in (1, 2), where
            assert ran.out or ran.err, where
    with contextlib.closing(Health(ledger)) as health:
        health.look()
    with opened_log(DataSource(ledger=ledger)) as log:
        assert (log.damage is not None) == (name in READ_WITHOUT_EVIDENCE)
        log.list_entries(None, None)
    assert snapshot(aside.parent) == before


@pytest.mark.parametrize("put", [put_link, put_pipe, put_socket], ids=lambda put: put.__name__)
@pytest.mark.parametrize(
    "name", ["artifacts", "artifacts/sha256", "artifacts/sha256/XX", "torn", "entries", "segment"]
)
def test_nothing_is_written_through_what_is_strange(
    ledger: Path, tmp_path: Path, name: str, put: Callable[[Path, Path], None]
) -> None:
    new = b"never seen before\n"
    outside = tmp_path / "outside"
    outside.mkdir()
    path = ledger / name
    if name.endswith("XX"):
        for number in range(256):
            folder = path.with_name(f"{number:02x}")
            if not folder.exists():
                put(folder, outside)
    else:
        path = ledger / "entries" / "000000.jsonl" if name == "segment" else path
        if path.exists():
            path.rename(tmp_path / "aside")
        else:
            (tmp_path / "aside").mkdir()
        put(path, tmp_path / "aside" if name in ("entries", "segment") else outside)
    before = snapshot(outside), snapshot(tmp_path / "aside") if not name.endswith("XX") else None
    key = find_key(tmp_path)
    if name == "torn":
        with (ledger / "entries" / "000000.jsonl").open("ab") as file:
            file.write(b"torn")
    with (
        pytest.raises((ProctorError, OSError)),
        Ledger.open(ledger, key=key) as opened,
    ):
        seal_files(opened, "two", {"new.txt": new})
    after = snapshot(outside), snapshot(tmp_path / "aside") if not name.endswith("XX") else None
    assert after == before


@pytest.mark.parametrize("put", [put_link, put_pipe, put_socket, put_dangling, "hard link"])
def test_a_strange_temporary_file_of_the_checkpoint_is_replaced(
    ledger: Path, tmp_path: Path, put: Callable[[Path, Path], None] | str
) -> None:
    someones, temporary = tmp_path / "someones", ledger / ".checkpoint.tmp"
    someones.write_bytes(b"precious")
    if callable(put):
        put(temporary, someones)
    else:
        temporary.hardlink_to(someones)
    with Ledger.open(ledger, key=find_key(tmp_path)) as opened, opened.writing():
        opened.append([NoteEntry(at="", seq=0, text="more", author="ana")])
    assert someones.read_bytes() == b"precious"
    assert not (ledger / "checkpoint").is_symlink()
    assert verify_ledger(ledger).damage == []


def test_a_segment_that_becomes_a_pipe_is_not_waited_for(ledger: Path, tmp_path: Path) -> None:
    segment = ledger / "entries" / "000000.jsonl"
    with Ledger.open(ledger, key=find_key(tmp_path)) as opened, opened.writing():
        opened.refresh()
        segment.unlink()
        os.mkfifo(segment)
        with pytest.raises((ProctorError, OSError)):
            opened.append([NoteEntry(at="", seq=0, text="more", author="ana")])


def test_a_ledger_may_itself_be_a_link(ledger: Path, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(ledger)
    with Ledger.open(link, key=find_key(tmp_path)) as opened:
        opened.seal(record_bytes("two"))
        assert [row.trial_id for row in opened.trials()] == ["one", "two"]
    assert verify_ledger(link).damage == []


@pytest.mark.parametrize("name", ["index.sqlite", "search.sqlite"])
@pytest.mark.parametrize("put", THINGS, ids=lambda put: put.__name__)
def test_what_is_called_like_an_index_is_left_alone(
    ledger: Path, proctor: Proctor, tmp_path: Path, name: str, put: Callable[[Path, Path], None]
) -> None:
    someones = tmp_path / "someones"
    shutil.copy(artifact(ledger), someones)
    put(ledger / name, someones)
    before = snapshot(ledger), someones.read_bytes()
    for command in (("ledger", "list"), ("ledger", "verify"), ("search", "did")):
        assert proctor(*command, "--ledger", ledger).code == 0
    assert (snapshot(ledger), someones.read_bytes()) == before
