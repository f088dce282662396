"""Where the indexes of a ledger lie, what is done with those that are not ours, and what stays."""

import os
import sqlite3
import stat
from pathlib import Path

import pytest

from proctor.errors import DamageError
from proctor.ledger import derived
from proctor.ledger.api import Ledger
from proctor.ledger.derived import find_folder, remove_unused
from proctor.ledger.ledger import OpenLedger
from proctor.ledger.trial_index import TrialFilter
from proctor.ledger.verification.verify import verify_ledger
from tests.cli.programs import Proctor, run_here
from tests.ledger.ledgers import find_key, index_of, search_index_of, small
from tests.ledger.trials import all_bytes, open_ledger, seal_files
from tests.search.ledgers import TRACE, ask, lines, said

SECRET = b"leaked018456789secret"


@pytest.fixture
def proctor(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Proctor:
    return run_here(monkeypatch, capsys)


def trials(ledger: Path) -> list[tuple[str, str]]:
    with OpenLedger.open(ledger) as opened:
        opened.refresh()
        return [(row.trial_id, row.status) for row in opened.index.trials(TrialFilter())]


BOTH = [("a", "sealed"), ("b", "sealed")]


def test_an_index_is_the_users_own_and_not_in_the_ledger(tmp_path: Path) -> None:
    ledger = small(tmp_path, "a", "b")
    folder = find_folder(ledger)
    assert folder is not None
    assert sorted(path.name for path in ledger.iterdir()) == ["checkpoint", "entries", "lock"]
    assert (folder / "ledger").read_text() == str(ledger)
    modes = {stat.S_IMODE(path.stat().st_mode) for path in (folder, folder.parent)}
    assert modes == {0o700}
    link = tmp_path / "link"
    link.symlink_to(ledger)
    assert find_folder(link) == folder


def make_stranger(path: Path) -> None:
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE position (version, size, segment, offset, peaks, key)")
        database.execute("INSERT INTO position VALUES (5, 3, 0, 0, x'', '')")
        database.execute("CREATE TABLE trials (trial_id, status)")
        database.execute("INSERT INTO trials VALUES ('ghost', 'sealed')")
    database.close()


def test_an_index_that_was_shipped_along_is_neither_read_nor_touched(
    tmp_path: Path, proctor: Proctor
) -> None:
    ledger = small(tmp_path, "a", "b")
    someones = tmp_path / "someones.sqlite"
    make_stranger(someones)
    make_stranger(ledger / "index.sqlite")
    (ledger / "search.sqlite").symlink_to(someones)
    before = [someones.read_bytes(), (ledger / "index.sqlite").read_bytes()]
    for words in (["ledger", "list"], ["ledger", "verify"], ["search", "x"]):
        ran = proctor(*words, "--ledger", ledger)
        assert (ran.code, "ghost" in ran.out) == (0, False)
    assert [someones.read_bytes(), (ledger / "index.sqlite").read_bytes()] == before
    assert (ledger / "search.sqlite").is_symlink()


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE position SET origin = 'example.org/other'",
        "UPDATE position SET version = 5",
        "INSERT INTO position SELECT * FROM position",
        "CREATE TRIGGER lie AFTER INSERT ON trials BEGIN DELETE FROM trials; END",
        "CREATE VIEW more AS SELECT * FROM trials",
        "CREATE TABLE more (id)",
        "DROP INDEX trials_id",
        "ALTER TABLE remarks ADD COLUMN more",
        "UPDATE position SET peaks = zeroblob(32)",
    ],
)
def test_an_index_that_is_not_ours_is_deleted_and_made_again(tmp_path: Path, change: str) -> None:
    ledger = small(tmp_path, "a", "b")
    with sqlite3.connect(index_of(ledger)) as index:
        index.execute(
            "INSERT INTO trials (seq, experiment_id, trial_id, record, status, reward, "
            "evidence_files, evidence_bytes) "
            "SELECT 99, 'x', 'ghost', record, status, 1, 0, 0 FROM trials LIMIT 1"
        )
        index.execute(change)
    index.close()
    assert trials(ledger) == BOTH
    assert verify_ledger(ledger).notes == []


def set_home(patch: pytest.MonkeyPatch, **values: str) -> None:
    for name in ("PROCTOR_CACHE", "XDG_CACHE_HOME", "HOME"):
        patch.delenv(name, raising=False)
    for name, value in values.items():
        patch.setenv(name, value)


def test_without_a_home_the_index_is_in_a_temporary_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger, temporary = small(tmp_path, "a", "b"), tmp_path / "temporary"
    temporary.mkdir(mode=0o700)
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    set_home(monkeypatch)
    ours = temporary / f"proctor-indexes-{os.geteuid()}"
    assert trials(ledger) == BOTH
    assert index_of(ledger).is_relative_to(ours)
    assert stat.S_IMODE(ours.stat().st_mode) == 0o700


@pytest.mark.parametrize("fault", ["file", "others-write", "network", "somebody-else"])
def test_a_cache_that_cannot_be_used_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    ledger, temporary = small(tmp_path, "a", "b"), tmp_path / "temporary"
    temporary.mkdir(mode=0o700)
    cache = tmp_path / "cache"
    if fault == "file":
        cache.write_text("no directory")
    else:
        cache.mkdir(mode=0o700)
    if fault == "others-write":
        cache.chmod(0o777)
    elif fault == "network":
        network = {cache: "nfs4"}
        monkeypatch.setattr(derived, "find_network", network.get)
    elif fault == "somebody-else" and os.geteuid() == 0:
        os.chown(cache, 65534, 65534)
    elif fault == "somebody-else":
        cache = Path("/")
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    set_home(monkeypatch, PROCTOR_CACHE=str(cache))
    assert trials(ledger) == BOTH
    assert index_of(ledger).is_relative_to(temporary)


@pytest.mark.parametrize("fault", ["link", "file", "not sticky", "absent"])
def test_where_nothing_can_be_written_the_index_is_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    ledger, temporary = small(tmp_path, "a", "b"), tmp_path / "temporary"
    temporary.mkdir(mode=0o700)
    ours, elsewhere = temporary / f"proctor-indexes-{os.geteuid()}", tmp_path / "elsewhere"
    elsewhere.mkdir()
    if fault == "link":
        ours.symlink_to(elsewhere)
    elif fault == "file":
        ours.write_text("somebody's")
    elif fault == "not sticky":
        temporary.chmod(0o777)
    else:
        temporary.rmdir()
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    set_home(monkeypatch)
    assert find_folder(ledger) is None
    assert trials(ledger) == BOTH
    assert verify_ledger(ledger).damage == []
    assert list(elsewhere.iterdir()) == []


def test_an_older_checkpoint_that_was_put_back_is_seen_and_the_file_to_delete_is_named(
    tmp_path: Path,
) -> None:
    directory = small(tmp_path, "a")
    older = (directory / "checkpoint").read_bytes()
    with Ledger.open(directory, key=find_key(tmp_path)) as ledger:
        seal_files(ledger, "b", {})
        ledger.trials()
    (directory / "checkpoint").write_bytes(older)
    with pytest.raises(DamageError, match=f"restored; .* delete {index_of(directory)}$"):
        trials(directory)
    (damage,) = verify_ledger(directory).damage
    assert (str(damage.kind), str(index_of(directory)) in damage.message) == ("rolled-back", True)
    index_of(directory).unlink()
    assert trials(directory) == [("a", "sealed")]


def test_what_the_owner_withholds_leaves_the_indexes_of_other_users(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_ledger(tmp_path) as ledger:
        text = SECRET.decode()
        seal_files(ledger, "kept", {TRACE: lines(said("needle"))})
        seal_files(ledger, "leaky", {TRACE: lines(said(text))}, **{"agent.model": text})
    directory, caches = tmp_path / "ledger", [tmp_path / name for name in ("owner", "other")]
    for cache in caches:
        monkeypatch.setenv("PROCTOR_CACHE", str(cache))
        assert (len(trials(directory)), ask(directory, text).matches) == (2, 1)
        assert SECRET in all_bytes(cache)
    monkeypatch.setenv("PROCTOR_CACHE", str(caches[0]))
    with Ledger.open(directory, key=find_key(tmp_path)) as ledger:
        ledger.withhold(ledger.find("leaky"), reason="a key leaked", author="ana")
    assert SECRET not in all_bytes(caches[0])
    monkeypatch.setenv("PROCTOR_CACHE", str(caches[1]))
    assert trials(directory) == [("kept", "sealed"), ("leaky", "withheld")]
    assert SECRET not in all_bytes(caches[1])
    assert (ask(directory, text).matches, ask(directory, "needle").matches) == (0, 1)
    assert SECRET not in all_bytes(caches[1])


def test_an_index_that_was_read_while_somebody_withheld_forgets_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The entry is there, the bytes are still there, and only then they go."""
    monkeypatch.setenv("PROCTOR_CACHE", str(tmp_path / "owner"))
    with open_ledger(tmp_path) as ledger:
        text = SECRET.decode()
        seal_files(ledger, "leaky", {TRACE: lines(said(text))}, **{"agent.model": text})
        refresh = ledger.refresh

        def look_as_somebody_else() -> object:
            result = refresh()
            with pytest.MonkeyPatch.context() as patch:
                patch.setenv("PROCTOR_CACHE", str(tmp_path / "other"))
                trials(Path(ledger.where))
                ask(Path(ledger.where), text)
            return result

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(ledger, "refresh", look_as_somebody_else)
            ledger.withhold(ledger.find("leaky"), reason="a key leaked", author="ana")
    monkeypatch.setenv("PROCTOR_CACHE", str(tmp_path / "other"))
    assert trials(tmp_path / "ledger") == [("leaky", "withheld")]
    assert ask(tmp_path / "ledger", text).matches == 0
    assert SECRET not in all_bytes(tmp_path / "other")


def test_a_line_that_was_edited_is_not_shown(tmp_path: Path, proctor: Proctor) -> None:
    ledger = small(tmp_path, "a", "b")
    segment = ledger / "entries" / "000000.jsonl"
    data = segment.read_bytes()
    at = data.index(b'"reward":') + 9
    segment.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
    ran = proctor("show", "a", "--ledger", ledger)
    assert (ran.code, "from what was signed" in ran.err) == (1, True)
    assert ran.out == ""
    assert proctor("show", "b", "--ledger", ledger).code == 0


def test_clean_removes_the_indexes_of_ledgers_that_are_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PROCTOR_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    (tmp_path / "here").mkdir()
    (tmp_path / "gone").mkdir()
    here, gone = (small(tmp_path / name, "a") for name in ("here", "gone"))
    folders = [find_folder(ledger) for ledger in (here, gone)]
    gone.rename(tmp_path / "away")
    (tmp_path / "cache" / "ledgers" / "unknown").mkdir()
    assert remove_unused(dry_run=True) == [gone]
    assert remove_unused() == [gone]
    assert [folder is not None and folder.exists() for folder in folders] == [True, False]
    assert (tmp_path / "cache" / "ledgers" / "unknown").exists()
    assert search_index_of(here).parent == folders[0]
