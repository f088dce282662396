"""The index updated by a process of its own: started after much, one at a time, and survivable."""

import fcntl
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from proctor.ledger.api import Ledger
from proctor.search.index import SearchIndex
from proctor.search.upkeep import MUCH, ask_index, update_in_background
from tests.cli.programs import run_here
from tests.ledger.ledgers import search_index_of
from tests.ledger.trials import open_ledger
from tests.search.ledgers import ask, said, seal_trace


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    """Three trials with a trace each."""
    with open_ledger(tmp_path) as ledger:
        for trial in ("one", "two", "three"):
            seal_trace(ledger, trial, said(f"needle {trial}"))
        yield ledger


def indexed(ledger: Ledger) -> int:
    return ask_index(ledger, lambda index: index.position().size, is_now=True)


@pytest.mark.process
def test_a_process_updates_it_once_much_is_sealed(ledger: Ledger) -> None:
    place = Path(ledger.where)
    assert update_in_background(place) is None
    assert not search_index_of(place).exists()
    pid = update_in_background(place, much=3)
    assert pid is not None
    assert os.waitpid(pid, 0)[1] == 0
    assert indexed(ledger) == 4
    assert update_in_background(place, much=0) is None
    assert MUCH >= 100


@pytest.mark.process
def test_a_killed_process_leaves_an_index_that_a_search_completes(ledger: Ledger) -> None:
    place = Path(ledger.where)
    pid = update_in_background(place, much=0)
    assert pid is not None
    time.sleep(0.2)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    assert ask(place, "needle").matches == 3


def test_no_ledger_or_no_cache_is_no_error(
    tmp_path: Path, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert update_in_background(tmp_path / "absent", much=0) is None
    monkeypatch.setattr("proctor.search.upkeep.find_folder", lambda _: None)
    assert update_in_background(Path(ledger.where), much=0) is None


def test_there_is_one_update_at_a_time(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(os, "nice", lambda _: 0)
    proctor = run_here(monkeypatch, capsys)
    ledger.refresh()
    lock = search_index_of(Path(ledger.where)).with_name("search.lock")
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        ran = proctor("search", "--update", "--ledger", ledger.where)
        assert "another process is updating the index" in ran.err
    assert indexed(ledger) == 0
    proctor("search", "--update", "--ledger", ledger.where)
    assert indexed(ledger) == 4


def test_now_answers_from_what_is_there_and_says_what_is_not(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    proctor = run_here(monkeypatch, capsys)
    found = proctor("search", "needle", "--now", "--ledger", ledger.where)
    assert found.out.startswith("no match")
    assert "not searched: 4 of 4 entries, not indexed yet" in found.err
    proctor("search", "needle", "--ledger", ledger.where)
    seal_trace(ledger, "four", said("needle four"))
    found = proctor("search", "needle", "--now", "--ledger", ledger.where)
    assert found.out.startswith("3 matches in 3 trials")
    assert "not searched: 1 of 5 entries, not indexed yet" in found.err


def test_now_shows_nothing_that_was_withheld_since(ledger: Ledger) -> None:
    place = Path(ledger.where)
    assert ask(place, "needle").matches == 3
    ledger.withhold(ledger.find("two"), reason="a key leaked", author="ana")

    def count(index: SearchIndex) -> int:
        return int(index.connection.execute("SELECT count(*) FROM read").fetchone()[0])

    assert ask_index(ledger, count, is_now=True) == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "Missing argument 'QUERY…', or --update"),
        (["--update", "x"], "cannot be combined with"),
    ],
)
def test_a_query_or_an_update_is_expected(
    words: list[str], said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    proctor = run_here(monkeypatch, capsys)
    ran = proctor("search", *words)
    assert ran.code == 2
    assert said in ran.err
