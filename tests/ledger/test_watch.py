"""A monitor: it sees each kind of event once, and only reads."""

import json
import os
import signal
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest

from proctor.errors import DamageError, LedgerError
from proctor.ledger.attestation import append_attestation
from proctor.ledger.claims.witness import WitnessInput, witness_copy
from proctor.ledger.entry import NoteEntry, TrialEntry, WithholdEntry
from proctor.ledger.keys import make_key
from proctor.ledger.ledger import OpenLedger
from proctor.ledger.log import FileLog, read_lines
from proctor.ledger.memory import Memory
from proctor.ledger.note import VerifierKey
from proctor.ledger.query import find_trial
from proctor.ledger.tree import leaf_hash
from proctor.ledger.watch.event import Event
from proctor.ledger.watch.reading import read_new
from proctor.ledger.watch.watching import Monitor
from proctor.ledger.withhold import Why, withhold_entry, withhold_trial
from tests.cli.programs import Proctor, command_line, environment
from tests.ledger.by_hand import append_by_hand
from tests.ledger.claims import seal_marked, supersede
from tests.ledger.ledgers import EXPERIMENT, ORIGIN, cut_segments, find_key, make_ledger

WHY = Why("a key leaked", "ana")


@dataclass
class Watcher:
    """A monitor that is started anew for every look."""

    memory: Memory

    def look(self, ledger: OpenLedger | Path, *keys: VerifierKey) -> list[Event]:
        place = Path(ledger.where) if isinstance(ledger, OpenLedger) else ledger
        monitor = Monitor(self.memory, keys)
        events, cursor = monitor.look(place)
        monitor.cursors.keep(cursor)
        return events

    def kinds(self, ledger: OpenLedger | Path, *keys: VerifierKey) -> list[str]:
        """What a look sees; a second one sees nothing more."""
        events = self.look(ledger, *keys)
        assert self.look(ledger, *keys) == []
        return [str(event.kind) for event in events]


@pytest.fixture
def watcher(tmp_path: Path) -> Watcher:
    return Watcher(Memory(tmp_path / "state"))


@pytest.fixture
def ledger(tmp_path: Path) -> OpenLedger:
    """A ledger that was seen already is for the test to make: it holds four trials."""
    made = make_ledger(tmp_path)
    seal_marked(made, {"a": 1.0, "b": 0.0, "c": 1.0, "d": None})
    return made


@pytest.fixture
def fork(tmp_path: Path) -> Callable[..., OpenLedger]:
    """Another history of the same origin and key."""

    def make(*texts: str) -> OpenLedger:
        made = OpenLedger.create(tmp_path / "fork" / "ledger", find_key(tmp_path), ORIGIN)
        note(made, *texts)
        return made

    return make


def note(ledger: OpenLedger, *texts: str) -> None:
    with ledger.writing():
        ledger.append([NoteEntry(at="", seq=0, text=text, author="ana") for text in texts])


def put_in_place(other: OpenLedger, ledger: OpenLedger) -> None:
    """Show the monitor another log where the first one was."""
    for name in ("checkpoint", "entries/000000.jsonl"):
        (Path(ledger.where) / name).write_bytes((Path(other.where) / name).read_bytes())


def append_copy_of(ledger: OpenLedger, seq: int) -> None:
    ledger.refresh()
    entry = ledger.entry(seq)
    assert isinstance(entry, TrialEntry)
    with ledger.writing():
        ledger.append([entry])


def test_the_first_look_tells_whose_it_is_and_is_no_alarm(
    watcher: Watcher, ledger: OpenLedger
) -> None:
    (event,) = watcher.look(ledger)
    assert (event.kind, event.kind.is_alarm, event.origin) == ("first-seen", False, ORIGIN)
    assert "--key to check who signed it" in event.message
    assert watcher.look(ledger) == []
    note(ledger, "more")
    assert watcher.look(ledger) == []


def test_each_event_of_the_log_is_seen_once_across_restarts(
    watcher: Watcher, ledger: OpenLedger, tmp_path: Path
) -> None:
    watcher.look(ledger)
    withhold_trial(ledger, find_trial(ledger, "a"), WHY)
    assert watcher.kinds(ledger) == ["withheld"]
    note(ledger, "a remark that is long enough to be taken out of the log" * 3)
    withhold_entry(ledger, 6, WHY)
    assert watcher.kinds(ledger) == ["withheld-unnamed"]
    supersede(ledger, "b", "c")
    assert watcher.kinds(ledger) == ["superseded"]
    supersede(ledger, "d", "c")
    assert watcher.kinds(ledger) == []
    ledger.change_key(make_key(tmp_path / "heir", "example.org/heir"))
    assert watcher.kinds(ledger) == ["key-changed"]
    append_copy_of(ledger, 3)
    assert watcher.kinds(ledger) == ["duplicate-identity"]
    late = Watcher(Memory(tmp_path / "late"))
    assert late.kinds(ledger) == [
        "first-seen", "withheld", "withheld-unnamed", "superseded", "key-changed",
        "duplicate-identity",
    ]  # fmt: skip


def test_a_withheld_trial_that_is_sealed_again_is_a_duplicate(
    watcher: Watcher, ledger: OpenLedger
) -> None:
    ledger.refresh()
    copy = ledger.entry(3)
    assert isinstance(copy, TrialEntry)
    withhold_trial(ledger, find_trial(ledger, "c"), WHY)
    append_by_hand(Path(ledger.where), find_key(Path(ledger.where).parent), copy)
    assert watcher.kinds(ledger) == ["first-seen", "withheld", "duplicate-identity"]


def test_a_fork_is_seen_once_and_both_checkpoints_are_kept(
    watcher: Watcher, ledger: OpenLedger, fork: Callable[..., OpenLedger]
) -> None:
    seen = ledger.refresh()
    watcher.look(ledger)
    other = fork("x", "y", "z", "w", "v")
    kept = {name: (Path(ledger.where) / name).read_bytes() for name in ("checkpoint",)}
    log = ((Path(ledger.where) / "entries") / "000000.jsonl").read_bytes()
    put_in_place(other, ledger)
    (event,) = watcher.look(ledger)
    assert event.kind == "forked"
    found = {Path(path).read_bytes() for path in event.evidence}
    assert found == {seen.render(), other.refresh().render()}
    assert watcher.look(ledger) == []
    (Path(ledger.where) / "checkpoint").write_bytes(kept["checkpoint"])
    ((Path(ledger.where) / "entries") / "000000.jsonl").write_bytes(log)
    assert watcher.look(ledger) == []
    put_in_place(other, ledger)
    assert watcher.kinds(ledger) == ["forked"]


def test_a_fork_in_another_directory_is_seen_by_its_origin(
    watcher: Watcher, ledger: OpenLedger, fork: Callable[..., OpenLedger]
) -> None:
    watcher.look(ledger)
    assert watcher.kinds(fork(*"vwxyz")) == ["forked"]


def test_a_fork_with_another_handover_is_a_fork(
    watcher: Watcher, ledger: OpenLedger, fork: Callable[..., OpenLedger], tmp_path: Path
) -> None:
    watcher.look(ledger)
    other = fork("x")
    other.change_key(make_key(tmp_path / "heir", "example.org/heir"))
    note(other, *"vwxyz")
    put_in_place(other, ledger)
    assert watcher.kinds(ledger) == ["forked"]


def test_a_log_that_went_back_is_seen(watcher: Watcher, ledger: OpenLedger, tmp_path: Path) -> None:
    before = (Path(ledger.where) / "checkpoint").read_bytes()
    note(ledger, "more")
    watcher.look(ledger)
    (Path(ledger.where) / "checkpoint").write_bytes(before)
    (event,) = watcher.look(ledger)
    assert (event.kind, len(event.evidence)) == ("rolled-back", 2)
    assert watcher.look(ledger) == []


def test_a_strangers_log_in_its_place_is_no_fork_of_the_owners(
    watcher: Watcher, ledger: OpenLedger, tmp_path: Path
) -> None:
    watcher.look(ledger)
    stranger = make_key(tmp_path / "stranger", "example.org/stranger")
    theirs = OpenLedger.create(tmp_path / "theirs", stranger, ORIGIN)
    note(theirs, *"vwxyz")
    put_in_place(theirs, ledger)
    assert watcher.kinds(ledger) == ["wrong-key"]
    other = OpenLedger.create(tmp_path / "other", stranger, "example.org/other")
    put_in_place(other, ledger)
    assert watcher.kinds(ledger) == ["replaced", "first-seen"]


def test_a_key_that_is_given_must_have_signed(
    watcher: Watcher, ledger: OpenLedger, tmp_path: Path
) -> None:
    stranger = make_key(tmp_path / "stranger", "example.org/stranger")
    theirs = OpenLedger.create(tmp_path / "theirs", stranger, ORIGIN)
    assert watcher.kinds(theirs) == ["first-seen"]
    trusted = find_key(tmp_path).verifier
    assert watcher.kinds(theirs, trusted) == ["wrong-key"]
    assert watcher.kinds(ledger, trusted) == ["first-seen"]
    seen = watcher.memory.find(ORIGIN)
    assert seen is not None
    assert (seen.is_key_given, seen.keys) == (True, (trusted,))


def test_an_edited_line_is_damage_old_or_new(watcher: Watcher, ledger: OpenLedger) -> None:
    watcher.look(ledger)
    path = (Path(ledger.where) / "entries") / "000000.jsonl"
    log = path.read_bytes()
    path.write_bytes(log.replace(b'"reward":0.0', b'"reward":1.0'))
    assert watcher.kinds(ledger) == ["damaged"]
    path.write_bytes(log)
    assert watcher.kinds(ledger) == []
    path.write_bytes(log[:-10])
    assert watcher.kinds(ledger) == ["damaged"]
    path.unlink()
    assert watcher.kinds(ledger) == []
    path.write_bytes(log)
    assert watcher.kinds(ledger) == []
    (Path(ledger.where) / "checkpoint").write_text("nothing")
    assert watcher.kinds(ledger) == ["damaged"]


def test_entries_that_are_signed_and_wrong_are_damage(watcher: Watcher, ledger: OpenLedger) -> None:
    watcher.look(ledger)
    entry = append_attestation(ledger, EXPERIMENT, "ana")
    assert watcher.kinds(ledger) == []
    with ledger.writing():
        ledger.append([msgspec.structs.replace(entry, entries=3)])
    (event,) = watcher.look(ledger)
    assert (event.kind, event.seq) == ("damaged", 6)
    assert "attests" in event.message
    path = (Path(ledger.where) / "entries") / "000000.jsonl"
    lines = path.read_bytes().splitlines()
    left = json.dumps({"withheld": leaf_hash(lines[2]).hex(), "seq": 2}, separators=(",", ":"))
    lines[2] = left.encode().ljust(len(lines[2]))
    path.write_bytes(b"\n".join(lines) + b"\n")
    assert watcher.kinds(ledger) == ["damaged"]
    with ledger.writing():
        leaf = json.loads(left)["withheld"]
        word = WithholdEntry(
            at="", seq=0, subject=None, entry=2, leaf=leaf, artifacts=(), reason="x", author="ana"
        )
        ledger.append([word])
    assert watcher.kinds(ledger) == ["withheld-unnamed"]


def test_only_new_lines_are_decoded(watcher: Watcher, ledger: OpenLedger) -> None:
    cut_segments(ledger, 1000)
    watcher.look(ledger)
    seal_marked(ledger, {"e": 1.0, "f": 1.0})
    watcher.look(ledger)
    seal_marked(ledger, {"g": 1.0})
    cursor = Monitor(watcher.memory).cursors.find(Path(ledger.where))
    assert cursor is not None
    size = ledger.refresh().tree.size
    found = read_new(ledger.log, ledger.log.stamps(), cursor, size)
    assert [seq for seq, _ in found.entries] == [7]
    assert found.frontier.root() == ledger.refresh().tree.root
    assert len(found.segments) > 2


def test_a_witness_and_a_monitor_share_what_they_saw(
    watcher: Watcher, ledger: OpenLedger, fork: Callable[..., OpenLedger], tmp_path: Path
) -> None:
    copy = tmp_path / "copy"
    copy.write_bytes(ledger.refresh().render())
    key = make_key(tmp_path / "witness", "example.org/witness")
    trusted = WitnessInput(log_key=find_key(tmp_path).verifier)
    witness_copy(copy, watcher.memory, trusted, lambda: key, 1)
    note(ledger, "more")
    assert watcher.kinds(ledger) == ["first-seen"]
    seen = watcher.memory.find(ORIGIN)
    assert seen is not None
    assert (seen.checkpoint, seen.is_key_given) == (ledger.refresh(), True)
    with pytest.raises(DamageError, match="went back"):
        witness_copy(copy, watcher.memory, trusted, lambda: key, 1)
    assert watcher.kinds(fork(*"vwxyz")) == ["forked"]


def test_a_strangers_ledger_is_read_harmlessly(
    watcher: Watcher, ledger: OpenLedger, tmp_path: Path
) -> None:
    before = sorted(path for path in Path(ledger.where).rglob("*"))
    times = [os.lstat(path).st_mtime_ns for path in before]
    watcher.look(ledger)
    assert sorted(path for path in Path(ledger.where).rglob("*")) == before
    assert [os.lstat(path).st_mtime_ns for path in before] == times
    path = (Path(ledger.where) / "entries") / "000000.jsonl"
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    assert watcher.kinds(ledger) == ["damaged"]
    path.unlink()
    os.mkfifo(path)
    assert watcher.look(ledger) == []
    (Path(ledger.where) / "entries").rename(tmp_path / "entries")
    (Path(ledger.where) / "entries").symlink_to(tmp_path / "entries")
    assert watcher.look(ledger) == []
    (Path(ledger.where) / "checkpoint").unlink()
    os.mkfifo(Path(ledger.where) / "checkpoint")
    assert watcher.look(ledger) == []


def test_a_line_that_does_not_end_is_not_held(tmp_path: Path) -> None:
    entries = tmp_path / "entries"
    entries.mkdir()
    with (entries / "000000.jsonl").open("wb") as file:
        file.truncate(18 << 20)
    with pytest.raises(DamageError, match="a line of more than 16 MiB"):
        list(read_lines(FileLog(entries.parent)))


def test_what_is_no_ledger_is_refused(watcher: Watcher, tmp_path: Path) -> None:
    with pytest.raises(LedgerError, match="not a ledger"):
        watcher.look(tmp_path / "absent")


def test_the_command_has_exit_codes_for_cron_and_prints_json_lines(
    ledger: OpenLedger, tmp_path: Path, proctor: Proctor
) -> None:
    words = ("ledger", "watch", Path(ledger.where), "--once", "--state", tmp_path / "state")
    first = proctor(*words)
    assert (first.code, first.err) == (0, "")
    assert first.out.startswith(f"{Path(ledger.where)}: first-seen: 5 entries, signed by")
    assert proctor(*words).out == ""
    withhold_trial(ledger, find_trial(ledger, "a"), WHY)
    supersede(ledger, "b", "c")
    ran = proctor(*words, "--json")
    assert ran.code == 1
    lines = [json.loads(line) for line in ran.out.splitlines()]
    assert [(each["kind"], each["seq"], each["is_alarm"]) for each in lines] == [
        ("withheld", 5, True),
        ("superseded", 6, True),
    ]
    assert proctor(*words, "--json").code == 0
    bad = proctor(*words, tmp_path / "absent")
    assert (bad.code, bad.out, "not a ledger" in bad.err) == (2, "", True)
    assert proctor(*words, "--interval", "5").code == 2
    followed = proctor("ledger", "watch", tmp_path / "absent", "--state", tmp_path / "state")
    assert (followed.code, "not a ledger" in followed.err) == (2, True)


def test_it_polls_until_it_is_interrupted(ledger: OpenLedger, tmp_path: Path) -> None:
    words = ("ledger", "watch", Path(ledger.where), "--interval", "0.1", "--state", tmp_path / "s")
    with subprocess.Popen(
        command_line(*words), env=environment(), stdout=subprocess.PIPE, text=True
    ) as child:
        try:
            assert child.stdout is not None
            assert "first-seen" in child.stdout.readline()
            append_copy_of(ledger, 1)
            assert "duplicate-identity: entry 5" in child.stdout.readline()
            child.send_signal(signal.SIGINT)
            assert child.stdout.read() == ""
            assert child.wait(30) == 1
        finally:
            child.kill()
