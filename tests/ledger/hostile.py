"""What a stranger may hand over: ledgers, a bundle and a job that try to lead a reader outside.

    make_hostile(place)    place/given, and place/outside with what must stay as it is

The ledgers are signed with their key: whoever made them may sign what they like.
"""

import os
import shutil
import sqlite3
import stat
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import msgspec
from backports import zstd

from proctor.exchange.harbor_job import JobOptions, find_trials
from proctor.exchange.intake import seal_offers
from proctor.ledger.entry import TrialEntry, decode_line, encode_entry
from proctor.ledger.exchange.bundle import FORMAT
from proctor.ledger.ledger import OpenLedger
from tests.audit.directories import copy_job, edit_json, find_trial
from tests.ledger.ledgers import find_key, make_ledger
from tests.ledger.test_bundle import Members, write_members
from tests.ledger.test_hostile_ledgers import lines_of, sign_anew

JOB = "01-binary-oracle-k1"


@dataclass(frozen=True)
class Hostile:
    """All of it."""

    place: Path

    @property
    def given(self) -> Path:
        """What was handed over; reading must not change it."""
        return self.place / "given"

    @property
    def outside(self) -> Path:
        """What belongs to the reader."""
        return self.place / "outside"

    def ledger(self, name: str) -> Path:
        """`honest`, `ids`, `paths` or `links`."""
        return self.given / name / "ledger"

    @property
    def job(self) -> Path:
        """A job of harbor's, full of links."""
        return self.given / "jobs" / JOB

    @property
    def bundles(self) -> list[Path]:
        """Bundles with members that are none."""
        return sorted((self.given / "bundles").iterdir())


def make_hostile(place: Path) -> Hostile:
    """Make all of it."""
    made = Hostile(place)
    _make_outside(made.outside)
    honest = made.given / "honest"
    honest.mkdir(parents=True)
    _seal_job(honest)
    ids = [f"{'../' * depth}outside/x/site-packages" for depth in (2, 3)]
    _rewrite(made, "ids", lambda entry, n: _rename(entry, [*ids, str(made.outside)][n]))
    _rewrite(made, "paths", lambda entry, _: _add_evidence(entry, made.outside))
    _make_links(made)
    _make_bundles(made)
    _make_job(made)
    return made


def snapshot(directory: Path) -> dict[str, tuple[int, bytes]]:
    """Every file, directory and link below a directory, with its mode and what it holds."""
    found: dict[str, tuple[int, bytes]] = {}
    for path in sorted(directory.rglob("*")):
        mode = path.lstat().st_mode
        data = b""
        if stat.S_ISLNK(mode):
            data = os.fsencode(path.readlink())
        elif stat.S_ISREG(mode):
            data = path.read_bytes()
        found[str(path.relative_to(directory))] = mode, data
    return found


def _make_outside(outside: Path) -> None:
    (outside / "x" / "site-packages").mkdir(parents=True)
    (outside / "folder").mkdir()
    (outside / "secret").write_text("mine")
    for name in ("database.sqlite", "other.sqlite"):
        with sqlite3.connect(outside / name) as connection:
            connection.execute("CREATE TABLE trials (mine TEXT)")
            connection.execute("INSERT INTO trials VALUES ('mine')")
        connection.close()


def _seal_job(place: Path) -> None:
    make_ledger(place).close()
    job = copy_job(JOB, place)
    found = find_trials(job, JobOptions())
    seal_offers(found.offers, lambda: OpenLedger.open(place / "ledger", key=find_key(place)))
    shutil.rmtree(job)
    for index in (place / "ledger").glob("index.sqlite*"):
        index.unlink()


def _rewrite(made: Hostile, name: str, change: Callable[[TrialEntry, int], TrialEntry]) -> None:
    """A copy of the honest ledger with other trials, signed anew."""
    shutil.copytree(made.given / "honest", made.given / name)
    directory = made.ledger(name)
    lines = lines_of(directory)
    entries = [decode_line(line, "a line") for line in lines]
    trials = [entry for entry in entries if isinstance(entry, TrialEntry)]
    for number, entry in enumerate(trials):
        lines[entry.seq] = encode_entry(change(entry, number))
    sign_anew(directory, find_key(made.given / name), lines)


def _rename(entry: TrialEntry, trial_id: str) -> TrialEntry:
    record = msgspec.json.decode(entry.record)
    record["trial_id"] = trial_id
    data = msgspec.Raw(msgspec.json.encode(record))
    return msgspec.structs.replace(entry, record=data, source=None)


def _add_evidence(entry: TrialEntry, outside: Path) -> TrialEntry:
    first = entry.evidence[0]
    paths = (f"{outside}/evil.pth", "../../../outside/evil.pth", "_job/../../outside/evil.pth")
    more = (msgspec.structs.replace(first, path=path) for path in paths)
    return msgspec.structs.replace(entry, evidence=(*more, *entry.evidence))


def _make_links(made: Hostile) -> None:
    """The honest ledger with a link at every place that something might be written to."""
    shutil.copytree(made.given / "honest", made.given / "links")
    ledger, outside = made.ledger("links"), made.outside
    links = {
        "index.sqlite": "database.sqlite",
        "search.sqlite": "other.sqlite",
        **{f"index.sqlite-{each}": f"new-{each}" for each in ("journal", "wal", "shm")},
        **{f"search.sqlite-{each}": f"new-{each}" for each in ("journal", "wal", "shm")},
        ".checkpoint.tmp": "secret",
        "torn": "folder",
        "lock": "secret",
        "entries/.000000.jsonl.tmp": "secret",
        "entries/000001.jsonl": "secret",
        "artifacts/sha256/00": "folder",
        "artifacts/sha256/.0011223344556677.tmp": "folder",
    }
    for name, target in links.items():
        (ledger / name).unlink(missing_ok=True)
        (ledger / name).symlink_to(outside / target)


def _make_bundles(made: Hostile) -> None:
    place = made.given / "bundles"
    place.mkdir()
    for name in ("ids", "paths"):
        write_members(place / f"{name}.tar.zst", pack(made.ledger(name)))
    members = pack(made.ledger("honest"))
    for number, name in enumerate(("../../outside/evil", f"{made.outside}/evil", "artifacts/../x")):
        write_members(place / f"member-{number}.tar.zst", [*members, (name, b"evil")])


def pack(ledger: Path) -> Members:
    """The members of a bundle of all of a ledger, put together by hand."""
    lines = lines_of(ledger)
    origin = (ledger / "checkpoint").read_text().splitlines()[0]
    head = {"format": FORMAT, "origin": origin, "size": len(lines), "left_out": []}
    artifacts = sorted((ledger / "artifacts").rglob("*.zst"))
    return [
        ("bundle.json", msgspec.json.encode(head)),
        ("checkpoint", (ledger / "checkpoint").read_bytes()),
        ("entries.jsonl", b"".join(line + b"\n" for line in lines)),
        *((f"artifacts/{each.stem}", zstd.decompress(each.read_bytes())) for each in artifacts),
    ]


def _make_job(made: Hostile) -> None:
    """Links to files and directories of the reader, and names that lead there."""
    (made.given / "jobs").mkdir()
    job, outside = copy_job(JOB, made.given / "jobs"), made.outside
    one, two = find_trial(job, "pass-two"), find_trial(job, "pass-simple")
    (job / "evil__abcdefg").symlink_to(outside)
    (job / "attempts").symlink_to(outside / "folder")
    for name in ("result.json", "config.json", "lock.json"):
        (job / f".{name}.tmp").symlink_to(outside / "secret")
    for name in ("runner.lock", "proctor.json"):
        (job / name).symlink_to(outside / "secret")
    (one / "attempts").symlink_to(outside / "folder")
    (one / "agent" / "all").symlink_to(outside)
    (one / "agent" / "trajectory.jsonl").symlink_to(outside / "secret")
    (one / "verifier" / "reward.txt").unlink()
    (one / "verifier" / "reward.txt").symlink_to(outside / "secret")
    (two / "record.json").symlink_to(outside / "secret")
    (two / "findings.json").symlink_to(outside / "secret")
    evil = f"../../../{outside.name}/x/site-packages"
    edit_json(two / "result.json", lambda result: result.update(trial_name=evil, task_name=evil))
