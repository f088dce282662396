"""Ledgers to test with."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from proctor.ledger.artifacts import FileArtifacts
from proctor.ledger.derived import INDEX, SEARCH_INDEX, find_folder, remove_database
from proctor.ledger.entry import (
    AnyEntry,
    NoteEntry,
    PlanEntry,
    RescoreEntry,
    ReviewEntry,
    SupersedeEntry,
    TrialScore,
)
from proctor.ledger.keys import SigningKey, load_key, make_key
from proctor.ledger.ledger import OpenLedger
from proctor.ledger.log import FileLog
from proctor.ledger.query import find_trial
from proctor.ledger.sealing import Submission, seal
from proctor.ledger.withhold import Why, withhold_trial
from tests.record.samples import spelled, tree

ORIGIN = "example.org/ledger"
EXPERIMENT = "experiment-001"


def index_of(ledger: Path) -> Path:
    """Where the index of a ledger is, or would be."""
    folder = find_folder(ledger)
    assert folder is not None
    return folder / INDEX


def search_index_of(ledger: Path) -> Path:
    """Where the search index of a ledger is, or would be."""
    return index_of(ledger).with_name(SEARCH_INDEX)


def forget_index(ledger: Path) -> None:
    """Delete the index of a ledger, as if nobody had ever looked at it here."""
    remove_database(index_of(ledger))


def record_bytes(trial: str, /, **changes: object) -> bytes:
    """A record's file; it names no files, so that it needs none beside it."""
    changes = {"outputs.trajectory_path": None, "outputs.conversation_path": None, **changes}
    return spelled(tree("g1-complete.json", trial_id=trial, **changes))


def find_key(directory: Path) -> SigningKey:
    """The key of the ledgers in a directory, made when it is not there."""
    path = directory / "key"
    return load_key(path) if path.exists() else make_key(path, "example.org/me")


def make_ledger(directory: Path, trials: Sequence[str] = ()) -> OpenLedger:
    """A new ledger in `directory/ledger`, with these trials sealed together."""
    ledger = OpenLedger.create(directory / "ledger", find_key(directory), ORIGIN)
    if trials:
        seal(ledger, [Submission(record=record_bytes(trial), where=trial) for trial in trials])
    return ledger


def small(directory: Path, *trials: str) -> Path:
    """Where a new ledger with a few trials is, its index up to date."""
    with make_ledger(directory, trials) as ledger:
        ledger.refresh()
    return directory / "ledger"


@dataclass(frozen=True, slots=True)
class RichLedger:
    """A ledger with all kinds of entries, in many segments, and what a verifier has in hand."""

    directory: Path
    key: SigningKey
    """The key that signs now."""
    first_key: SigningKey
    older: Path
    """A checkpoint of three quarters of it, signed by the first key."""
    withheld: tuple[int, ...]
    """Entries that were taken out."""


def artifact_path(ledger: OpenLedger, sha256: str) -> Path:
    """The file of an artifact in a ledger's directory."""
    return FileArtifacts(Path(ledger.where)).path_of(sha256)


def cut_segments(ledger: OpenLedger, size: int) -> None:
    """Let segments of a ledger in a directory end at so many bytes."""
    assert isinstance(ledger.log, FileLog)
    ledger.log.segment_size = size


def make_rich_ledger(directory: Path, size: int = 1000, segment_size: int = 200_000) -> RichLedger:
    """A ledger of this many entries; the index has read all of them."""
    first_key, key = find_key(directory), make_key(directory / "second", "example.org/me")
    evidence = directory / "evidence"
    evidence.mkdir()
    with OpenLedger.create(directory / "ledger", first_key, ORIGIN) as ledger:
        cut_segments(ledger, segment_size)
        rest = size * 3 // 4 - 1
        for number in range(0, rest, 50):
            count = min(50, rest - number)
            _seal_some(ledger, evidence, [f"t{number + at}" for at in range(count)])
        older = directory / "older"
        older.write_bytes((Path(ledger.where) / "checkpoint").read_bytes())
        _append(ledger, _remarks(ledger))
        ledger.change_key(key)
        _append(ledger, [NoteEntry(at="", seq=0, text="a remark", author="ana")])
        withheld = [find_trial(ledger, name) for name in ("t50", "t55")]
        for row in withheld:
            withhold_trial(ledger, row, Why("a key leaked", "ana"))
        rest = size - ledger.refresh().tree.size
        _seal_some(ledger, evidence, [f"u{at}" for at in range(rest)])
        ledger.refresh()
    return RichLedger(
        directory / "ledger", key, first_key, older, (withheld[0].seq, withheld[1].seq)
    )


def _seal_some(ledger: OpenLedger, evidence: Path, trials: Sequence[str]) -> None:
    (evidence / "shared.txt").write_text("seen by all\n" * 50)
    for trial in trials[:1]:
        (evidence / f"{trial}.txt").write_text(f"what {trial} did\n" * 20)
    seal(
        ledger,
        [
            Submission(
                record=record_bytes(trial),
                where=trial,
                root=evidence,
                evidence=("shared.txt", f"{trial}.txt") if trial == trials[0] else ("shared.txt",),
            )
            for trial in trials
        ],
    )


def _append(ledger: OpenLedger, drafts: Sequence[AnyEntry]) -> list[int]:
    with ledger.writing():
        return ledger.append(drafts)


def _remarks(ledger: OpenLedger) -> list[AnyEntry]:
    ledger.refresh()
    one, other = (find_trial(ledger, trial).subject for trial in ("t1", "t2"))
    return [
        ReviewEntry(at="", seq=0, subject=one, verdict="pass", reviewer="ana", note="read twice"),
        RescoreEntry(
            at="",
            seq=0,
            subject=one,
            score=TrialScore(profile="harbor-0.13.1"),
            reason="mended rules",
            author="ana",
        ),
        SupersedeEntry(
            at="",
            seq=0,
            subject=one,
            by=other,
            cause="infrastructure",
            reason="the disk was full",
            author="ana",
        ),
        PlanEntry(
            at="", seq=0, experiment_id=EXPERIMENT, plan=msgspec.Raw(b'{"n":3}'), author="ana"
        ),
        NoteEntry(at="", seq=0, text="a remark", author="ana"),
    ]
