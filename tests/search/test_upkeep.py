"""The index is derived: whatever happens to it, it is made again, and holds no more than it may."""

import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from proctor.errors import LedgerError
from proctor.ledger.api import Ledger
from proctor.ledger.artifacts import ArtifactStore
from proctor.ledger.derived import SEARCH_INDEX
from proctor.ledger.entry import TrialEntry
from proctor.search import upkeep
from proctor.search.index import SearchIndex
from proctor.search.row import Row
from proctor.search.texts import Passed, rows_of
from tests.cli.programs import environment
from tests.ledger.ledgers import search_index_of
from tests.ledger.trials import all_bytes, open_ledger, seal_files
from tests.search.ledgers import TRACE, ask, lines, said, seal_trace
from tests.unprivileged import unprivileged

SECRET = b"leaked018456789secret"
WHY = {"reason": "a key leaked", "author": "ana"}


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    """Three trials with a trace each."""
    with open_ledger(tmp_path) as ledger:
        for trial in ("one", "two", "three"):
            seal_trace(ledger, trial, said(f"needle {trial}"))
        yield ledger


def count(ledger: Ledger, query: str = "needle") -> int:
    return ask(Path(ledger.where), query).matches


def index_of(ledger: Ledger) -> Path:
    return search_index_of(Path(ledger.where))


def test_only_what_is_new_is_read(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []

    def spy(artifacts: ArtifactStore, entry: TrialEntry, passed: Passed) -> Iterator[Row]:
        read.append(entry.seq)
        return rows_of(artifacts, entry, passed)

    monkeypatch.setattr("proctor.search.upkeep.rows_of", spy)
    assert (count(ledger), read) == (3, [1, 2, 3])
    seal_trace(ledger, "four", said("needle four"))
    assert (count(ledger), read) == (4, [1, 2, 3, 4])
    assert (count(ledger), read) == (4, [1, 2, 3, 4])


def _write_garbage(path: Path) -> None:
    path.write_bytes(b"garbage" * 5000)


def _cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def _empty(path: Path) -> None:
    path.write_bytes(b"")


def _link(path: Path) -> None:
    other = path.parent.parent / "other"
    path.rename(other)
    path.symlink_to(other)


def _set_version(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE position SET version = 99")
    connection.close()


def _take_table(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("DROP TABLE blocks")
    connection.close()


def _spoil_words(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE rows_data SET block = x'00ff00ff' WHERE id > 10")
    connection.close()


def _spoil_texts(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE blocks SET data = x'00'")
    connection.close()


@pytest.mark.parametrize(
    "spoil",
    [
        Path.unlink, _write_garbage, _cut, _empty, _link, _set_version, _take_table, _spoil_words,
        _spoil_texts,
    ],
)  # fmt: skip
def test_an_index_that_is_no_good_is_made_again(
    ledger: Ledger, spoil: Callable[[Path], None]
) -> None:
    count(ledger)
    spoil(index_of(ledger))
    assert count(ledger) == 3


def test_an_index_of_another_ledger_is_made_again(ledger: Ledger, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    with open_ledger(tmp_path / "elsewhere") as other:
        for trial in ("x", "y", "z"):
            seal_trace(other, trial, said("other"))
        count(other)
        shutil.copy(index_of(other), index_of(ledger))
    assert (count(ledger), count(ledger, "other")) == (3, 0)


def test_an_index_of_a_ledger_that_was_put_back_is_made_again(
    ledger: Ledger, tmp_path: Path
) -> None:
    shutil.copytree(Path(ledger.where), tmp_path / "earlier")
    seal_trace(ledger, "four", said("needle four"))
    count(ledger)
    shutil.copy(index_of(ledger), search_index_of(tmp_path / "earlier"))
    assert ask(tmp_path / "earlier", "needle").matches == 3


@pytest.fixture
def leaky(ledger: Ledger) -> Ledger:
    """The same, and a trial with a secret, all of it indexed."""
    said_it = lines(said(f"needle {SECRET.decode()}"))
    seal_files(ledger, "leaky", {TRACE: said_it}, **{"inputs.instruction": SECRET.decode()})
    assert count(ledger, SECRET.decode()) == 2
    return ledger


def test_what_is_withheld_leaves_the_index(leaky: Ledger) -> None:
    leaky.withhold(leaky.find("leaky"), **WHY)
    assert SECRET not in all_bytes(Path(leaky.where)) + all_bytes(index_of(leaky).parent)
    assert (count(leaky), count(leaky, SECRET.decode())) == (3, 0)
    assert SECRET not in all_bytes(Path(leaky.where)) + all_bytes(index_of(leaky).parent)


def test_a_trace_that_is_withheld_leaves_the_index(leaky: Ledger) -> None:
    leaky.withhold(leaky.find("leaky"), evidence=[TRACE], **WHY)
    assert (count(leaky), count(leaky, SECRET.decode())) == (3, 1)


def test_a_journal_that_lost_its_index_goes_too(leaky: Ledger) -> None:
    journal = index_of(leaky).with_name(f"{SEARCH_INDEX}-journal")
    index_of(leaky).rename(journal)
    leaky.withhold(leaky.find("leaky"), **WHY)
    assert not journal.exists()
    assert SECRET not in all_bytes(Path(leaky.where)) + all_bytes(index_of(leaky).parent)


def test_an_index_elsewhere_forgets_what_was_withheld_once_it_is_asked(leaky: Ledger) -> None:
    before = index_of(leaky).read_bytes()
    leaky.withhold(leaky.find("leaky"), **WHY)
    index_of(leaky).write_bytes(before)
    assert (count(leaky), count(leaky, SECRET.decode())) == (3, 0)
    assert SECRET not in all_bytes(Path(leaky.where)) + all_bytes(index_of(leaky).parent)


def test_who_is_indexing_stores_nothing_that_was_withheld_meanwhile(
    leaky: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    index_of(leaky).unlink()
    withheld: list[object] = []

    def withhold_first(_seconds: float) -> None:
        # Between two batches.
        if not withheld:
            withheld.append(None)
            leaky.withhold(leaky.find("leaky"), **WHY)

    monkeypatch.setattr(upkeep, "_BATCH_ENTRIES", 1)
    monkeypatch.setattr("proctor.search.upkeep.time.sleep", withhold_first)
    assert count(leaky, SECRET.decode()) == 0
    assert withheld
    assert SECRET not in all_bytes(Path(leaky.where)) + all_bytes(index_of(leaky).parent)


ASKING = """
import sys
from pathlib import Path
from proctor.search import upkeep
from tests.search.ledgers import ask
upkeep._BATCH_ENTRIES = 2
print("ready", flush=True)
sys.stdin.readline()
print(ask(Path(sys.argv[1]), "needle").matches)
"""


def start_asking(ledger: Ledger) -> subprocess.Popen[str]:
    child = subprocess.Popen(
        [sys.executable, "-c", ASKING, ledger.where],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment(),
    )  # fmt: skip
    assert child.stdout is not None
    assert child.stdout.readline() == "ready\n"
    return child


def test_several_at_once_make_one_index(ledger: Ledger) -> None:
    for number in range(5):
        seal_trace(ledger, f"more-{number}", said("needle"))
    children = [start_asking(ledger) for _ in range(2)]
    for child in children:
        assert child.stdin is not None
        child.stdin.write("\n")
        child.stdin.flush()
    assert [child.communicate()[0] for child in children] == ["8\n", "8\n"]
    assert count(ledger) == 8


def test_a_process_that_is_killed_leaves_an_index_to_go_on_with(ledger: Ledger) -> None:
    seal_trace(ledger, "long", *(said("needle and some words " * 50, at) for at in range(3000)))
    child = start_asking(ledger)
    assert child.stdin is not None
    child.stdin.write("\n")
    child.stdin.flush()
    while not index_of(ledger).exists() or index_of(ledger).stat().st_size == 0:
        assert child.poll() is None
    os.kill(child.pid, signal.SIGKILL)
    child.communicate()
    assert count(ledger) == 3003


def test_a_disk_without_room_is_said(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    prepare = SearchIndex._prepare

    def cramped(index: SearchIndex) -> object:
        found = prepare(index)
        pages = index.connection.execute("PRAGMA page_count").fetchone()[0]
        index.connection.execute(f"PRAGMA max_page_count = {pages}")
        return found

    seal_trace(ledger, "long", *(said(f"needle {at} " * 50, at) for at in range(500)))
    monkeypatch.setattr(SearchIndex, "_prepare", cramped)
    with pytest.raises(LedgerError, match="no room for the search index"):
        count(ledger)


def test_a_ledger_that_may_only_be_read_is_searched_by_an_index_of_ones_own(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as scratch:  # where nobody may enter
        place, cache = Path(scratch, "ledger"), Path(scratch, "cache")
        shutil.copytree(Path(ledger.where), place)
        Path(scratch).chmod(0o777)
        for path in (place, *place.rglob("*")):
            path.chmod(0o555 if path.is_dir() else 0o444)
        monkeypatch.setenv("PROCTOR_CACHE", str(cache))
        with unprivileged():
            assert [ask(place, "needle").matches for _ in range(2)] == [3, 3]
            assert len(list(cache.glob(f"ledgers/*/{SEARCH_INDEX}"))) == 1
        for path in (place, *place.rglob("*")):
            path.chmod(0o755)


def test_a_pipe_in_the_place_of_the_index_is_replaced_and_a_directory_is_said(
    ledger: Ledger,
) -> None:
    os.mkfifo(index_of(ledger))
    assert count(ledger) == 3
    index_of(ledger).unlink()
    index_of(ledger).mkdir()
    with pytest.raises(LedgerError, match="the index cannot be used"):
        count(ledger)


def test_who_asks_waits_for_who_writes(ledger: Ledger) -> None:
    count(ledger)
    writer = sqlite3.connect(index_of(ledger), isolation_level=None, check_same_thread=False)
    writer.execute("BEGIN EXCLUSIVE")
    finishing = threading.Timer(1.5, lambda: writer.execute("ROLLBACK"))
    finishing.start()
    assert count(ledger) == 3
    finishing.join()
    writer.close()


def test_no_room_to_unpack_evidence_is_said(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(Path(ledger.where) / "nowhere"))
    with pytest.raises(LedgerError, match="its evidence cannot be unpacked"):
        count(ledger)
    with pytest.raises(LedgerError, match="its evidence cannot be unpacked"):
        count(ledger)
