"""Withheld is not absent: bytes go, digests stay."""

import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from proctor.errors import LedgerError
from proctor.ledger.api import Ledger
from proctor.ledger.entry import Withheld, WithholdEntry
from proctor.ledger.index import Index
from proctor.ledger.ledger import OpenLedger
from proctor.ledger.query import find_trial, list_trials
from proctor.ledger.row import COLUMNS
from proctor.ledger.sealing import Submission, seal
from proctor.ledger.upkeep import catch_up
from proctor.ledger.verification.verify import verify_ledger
from proctor.ledger.withhold import Why, withhold_trial
from tests.cli.programs import environment
from tests.ledger.ledgers import ORIGIN, find_key, index_of, record_bytes, small
from tests.ledger.trials import all_bytes, open_ledger, seal_files

KEY = b"sk-leaked-0123456789"
WHY = {"reason": "a key leaked", "author": "ana"}


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    """Three trials; `leaky` has a key in its record and in its trace, and shares a file."""
    with open_ledger(tmp_path, "first") as ledger:
        files = {"trace.jsonl": KEY * 100, "shared.txt": b"shared", "own.txt": b"own"}
        seal_files(ledger, "leaky", files, **{"inputs.instruction": KEY.decode()})
        seal_files(ledger, "other", {"copy.txt": b"shared"})
        yield ledger


def holds(ledger: Ledger, trial: str, path: str) -> bool:
    entry = ledger.entry(ledger.find(trial).seq)
    files = {file.path: file.sha256 for file in getattr(entry, "evidence", ())}
    return ledger.artifacts.holds(files[path])


def withholdings(ledger: Ledger) -> list[WithholdEntry]:
    ledger.refresh()
    entries = [ledger.entry(seq) for seq in range(ledger.checkpoint().tree.size)]
    return [entry for entry in entries if isinstance(entry, WithholdEntry)]


def test_an_index_that_another_process_changed_meanwhile_has_the_right_conditions(
    tmp_path: Path,
) -> None:
    directory, key = small(tmp_path), find_key(tmp_path)
    with OpenLedger.open(directory, key=key) as server, OpenLedger.open(directory, key=key) as own:
        for name in ("first", "second"):
            seal(server, [Submission(record=record_bytes(name), where=name)])
            server.refresh()
            own.refresh()
            # No other trial was run under its conditions.
            withhold_trial(own, find_trial(own, name), Why("private", "ana"))
        seal(server, [Submission(record=record_bytes("third"), where="third")])
        server.refresh()
        (row,) = (each for each in list_trials(server) if each.trial_id == "third")
        assert row.run_conditions is not None


def test_nothing_of_a_withheld_trial_is_left_but_its_digests(ledger: Ledger) -> None:
    trial = ledger.find("leaky")
    leaves = ledger.index.hashes(0, 0, 4)
    done = ledger.withhold(trial, **WHY)
    assert (done.is_new, done.line, len(done.removed)) == (True, trial.seq, 2)
    assert KEY not in all_bytes(Path(ledger.where))
    left = ledger.entry(trial.seq)
    assert isinstance(left, Withheld)
    assert bytes.fromhex(left.withheld) == leaves[trial.seq]
    assert ledger.index.hashes(0, 0, 4) == leaves
    (said,) = withholdings(ledger)
    assert (said.reason, said.author) == ("a key leaked", "ana")
    assert said.subject is not None
    assert said.subject.record == trial.record
    row = ledger.find("leaky")
    assert (row.status, row.record, row.model, row.reward) == (
        "withheld", trial.record, None, None,
    )  # fmt: skip


def test_other_trials_stay_as_they_are(ledger: Ledger) -> None:
    before = [(row, ledger.record(row)) for row in ledger.trials() if row.trial_id != "leaky"]
    ledger.withhold(ledger.find("leaky"), **WHY)
    assert [(row, ledger.record(row)) for row in ledger.trials() if row.trial_id != "leaky"] == (
        before
    )


def test_what_another_trial_names_stays_until_that_is_withheld_too(ledger: Ledger) -> None:
    done = ledger.withhold(ledger.find("leaky"), **WHY)
    assert list(done.kept.values()) == [["experiment-001/other"]]
    assert holds(ledger, "other", "copy.txt")
    done = ledger.withhold(ledger.find("other"), **WHY)
    assert len(done.removed) == 1
    assert list(Path(ledger.where).rglob("*.zst")) == []


def test_evidence_can_go_alone(ledger: Ledger) -> None:
    trial = ledger.find("leaky")
    done = ledger.withhold(trial, **WHY, evidence=["own.txt", "shared.txt"])
    assert (done.line, len(done.removed), len(done.kept)) == (None, 1, 1)
    assert ledger.find("leaky") == trial
    assert not holds(ledger, "leaky", "own.txt")
    assert holds(ledger, "leaky", "trace.jsonl")
    ledger.withhold(trial, **WHY, evidence=[])
    assert not holds(ledger, "leaky", "trace.jsonl")
    # It was withheld of one and is named by the other alone now.
    assert len(ledger.withhold(ledger.find("other"), **WHY, evidence=[]).removed) == 1


def test_withholding_twice_says_it_once(ledger: Ledger) -> None:
    trial = ledger.find("leaky")
    first = ledger.withhold(trial, **WHY)
    again = ledger.withhold(ledger.find("leaky"), reason="another word", author="ben")
    assert (again.seq, again.is_new) == (first.seq, False)
    assert len(withholdings(ledger)) == 1


def test_another_word_about_evidence_is_another_entry(ledger: Ledger) -> None:
    trial = ledger.find("leaky")
    first = ledger.withhold(trial, **WHY, evidence=["own.txt"])
    assert ledger.withhold(trial, **WHY, evidence=["own.txt"]).seq == first.seq
    assert ledger.withhold(trial, reason="more", author="ana", evidence=["own.txt"]).is_new


@pytest.mark.parametrize(
    ("reason", "author", "evidence", "sentence"),
    [
        ("", "ana", None, "the reason is empty"),
        ("r", " ", None, "the author is empty"),
        ("r", "ana", ["nix"], "has no evidence 'nix'"),
        ("r", "ana", ["../key"], "has no evidence '../key'"),
    ],
)
def test_bad_wishes_are_refused_and_nothing_is_written(
    ledger: Ledger, reason: str, author: str, evidence: list[str] | None, sentence: str
) -> None:
    before = ledger.checkpoint()
    with pytest.raises(LedgerError, match=sentence):
        ledger.withhold(ledger.find("leaky"), reason=reason, author=author, evidence=evidence)
    assert ledger.checkpoint() == before


def test_a_sealed_trial_without_evidence_has_none_to_withhold(ledger: Ledger) -> None:
    with pytest.raises(LedgerError, match="first has no evidence"):
        ledger.withhold(ledger.find("first"), **WHY, evidence=[])


def test_sealing_a_withheld_trial_again_brings_nothing_back(ledger: Ledger) -> None:
    files = {"trace.jsonl": KEY * 100, "shared.txt": b"shared", "own.txt": b"own"}
    ledger.withhold(ledger.find("leaky"), **WHY)
    sealed = seal_files(ledger, "leaky", files, **{"inputs.instruction": KEY.decode()})
    assert (sealed.is_new, sealed.status) == (False, "withheld")
    assert KEY not in all_bytes(Path(ledger.where))


def test_sealing_again_brings_withheld_evidence_not_back(ledger: Ledger) -> None:
    files = {"trace.jsonl": KEY * 100, "shared.txt": b"shared", "own.txt": b"own"}
    ledger.withhold(ledger.find("leaky"), **WHY, evidence=["trace.jsonl"])
    sealed = seal_files(ledger, "leaky", files, **{"inputs.instruction": KEY.decode()})
    assert not sealed.is_new
    assert not holds(ledger, "leaky", "trace.jsonl")


# Kills

KILLED = """
import os, signal, sys
from pathlib import Path
from proctor.ledger.api import Ledger
from tests.ledger.ledgers import find_key

def look(event, arguments):
    if event == sys.argv[2] and str(arguments[-2 if event == "os.remove" else 1]).endswith(sys.argv[3]):
        os.kill(os.getpid(), signal.SIGKILL)

root = Path(sys.argv[1])
ledger = Ledger.open(root / "ledger", key=find_key(root))
trial = ledger.find("leaky")
sys.addaudithook(look)
ledger.withhold(trial, reason="a key leaked", author="ana")
"""  # noqa: E501 - a program


@pytest.mark.parametrize(
    ("event", "name", "is_said"),
    [
        ("os.rename", "checkpoint", False),
        ("os.rename", "000000.jsonl", True),
        ("os.remove", ".zst", True),
    ],
)
def test_a_kill_is_mended_by_withholding_again(
    ledger: Ledger, tmp_path: Path, event: str, name: str, is_said: bool
) -> None:
    ledger.close()
    child = [sys.executable, "-c", KILLED, str(tmp_path), event, name]
    done = subprocess.run(child, env=environment(), check=False, cwd=Path.cwd())
    assert done.returncode == -signal.SIGKILL
    with Ledger.open(tmp_path / "ledger", key=find_key(tmp_path)) as after:
        assert len(withholdings(after)) == is_said
        verified = verify_ledger(Path(after.where))
        assert verified.damage == []
        is_half = name == "000000.jsonl"
        assert any("repeat it" in note for note in verified.notes) is is_half
        again = after.withhold(after.find("leaky"), **WHY)
        assert again.is_new is not is_said
        assert len(withholdings(after)) == 1
        assert after.find("leaky").status == "withheld"
        assert KEY not in all_bytes(Path(after.where) / "entries") + all_bytes(
            Path(after.where) / "artifacts"
        )
        assert not any(b"leaked-0123" in path.read_bytes() for path in Path(after.where).glob("i*"))
        after.seal(record_bytes("next"))
        assert list((Path(after.where) / "entries").glob(".*")) == []
        verified = verify_ledger(Path(after.where))
        assert (verified.damage, verified.notes, verified.withheld) == ([], [], 1)


def dump(index: Index) -> dict[str, list[tuple[object, ...]]]:
    """All rows of an index, with documents instead of their numbers."""
    documents = "(SELECT document FROM conditions WHERE id = {})"
    resolved = {name: documents.format(name) for name in ("run_conditions", "task_conditions")}
    columns = ", ".join(resolved.get(name, name) for name in COLUMNS)
    queries = {
        "trials": f"SELECT {columns} FROM trials ORDER BY seq",  # noqa: S608
        "conditions": "SELECT document FROM conditions ORDER BY document",
        "remarks": "SELECT * FROM remarks ORDER BY seq, record",
        **{name: f"SELECT * FROM {name}" for name in ("entries", "withholdings", "hashes")},  # noqa: S608
        "position": "SELECT * FROM position",
    }
    return {name: index.select(query) for name, query in queries.items()}


@pytest.mark.parametrize("seed", range(6))
def test_an_index_that_followed_every_withholding_is_the_one_built_anew(
    tmp_path: Path, seed: int
) -> None:
    chance = random.Random(seed)
    with open_ledger(tmp_path) as ledger:
        for number in range(12):
            backend = {"environment.compute_backend": f"{KEY.decode()}-{number % 7}"}
            seal_files(ledger, f"t{number}", {"f": b"%d" % (number % 5)}, **backend)
        for one, other in ((1, 2), (3, 4)):
            pair = (ledger.find(f"t{one}"), ledger.find(f"t{other}"))
            ledger.supersede(*pair, "infrastructure", reason="a disk", author="ana")
            ledger.review(pair[0], "pass", reviewer="ana")
        gone: set[int] = set()
        for seq in chance.sample(range(1, 13), 8):
            ledger.withhold(ledger.find(f"t{seq - 1}"), **WHY)
            gone.add(seq)
            fresh = Index.in_memory(ORIGIN)
            catch_up(fresh, ledger.log, ledger.refresh().tree)
            assert isinstance(ledger.index, Index)
            assert dump(ledger.index) == dump(fresh)
        assert "rebuilt" not in "".join(verify_ledger(Path(ledger.where)).notes)
        left = {f"{KEY.decode()}-{(seq - 1) % 7}".encode() for seq in {*range(1, 13)} - gone}
        path = index_of(Path(ledger.where))
        held = b"".join(each.read_bytes() for each in path.parent.glob(f"{path.name}*"))
        for number in range(7):
            key = f"{KEY.decode()}-{number}".encode()
            assert (key in held) == (key in left)
