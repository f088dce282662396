"""What is said of a sealed trial: appended, with its history, changing nothing."""

import math
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from proctor.errors import KeyFileError, LedgerError, RecordError
from proctor.ledger.api import Ledger
from proctor.ledger.entry import NoteEntry, PlanEntry, ReviewEntry, SupersedeEntry, TrialScore
from proctor.ledger.row import TrialRow
from tests.ledger.trials import open_ledger


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with open_ledger(tmp_path, "one", "two") as ledger:
        yield ledger


def size(ledger: Ledger) -> int:
    return ledger.checkpoint().tree.size


def test_reviews_are_appended_and_the_latest_is_listed(ledger: Ledger) -> None:
    trial = ledger.find("one")
    before = ledger.line(trial.seq)
    first = ledger.review(trial, "fail", reviewer="ana", note="too short")
    second = ledger.review(trial, "pass", reviewer="ben")
    assert second == first + 1
    assert [row.review for row in ledger.trials()] == ["pass", None]
    reviews = [remark.entry for remark in ledger.remarks(trial)]
    assert [(each.verdict, each.reviewer, each.note) for each in reviews
            if isinstance(each, ReviewEntry)] == [
        ("fail", "ana", "too short"),
        ("pass", "ben", ""),
    ]  # fmt: skip
    assert ledger.line(trial.seq) == before


def test_a_review_names_the_digest_of_what_was_reviewed(ledger: Ledger) -> None:
    trial = ledger.find("two")
    entry = ledger.lookup(str(ledger.review(trial, "defer", reviewer="ana")))
    assert isinstance(entry, ReviewEntry)
    assert entry.subject.record == trial.record


def test_a_superseded_trial_is_said_to_be(ledger: Ledger) -> None:
    one, two = ledger.find("one"), ledger.find("two")
    ledger.supersede(one, two, "infrastructure", reason="the disk was full", author="ana")
    assert [row.status for row in ledger.trials()] == ["superseded", "sealed"]
    for trial in (one, two):
        (remark,) = ledger.remarks(trial)
        assert isinstance(remark.entry, SupersedeEntry)
        assert remark.entry.by.trial_id == "two"


def test_a_rescore_leaves_the_record_as_it_is(ledger: Ledger) -> None:
    trial = ledger.find("one")
    score = TrialScore(profile="harbor-0.25", certificate={"rewards": {"reward": "0x1.0p+0"}})
    ledger.rescore(trial, score, reason="mended rules", author="ana")
    assert ledger.find("one").reward == trial.reward
    assert len(ledger.remarks(trial)) == 1


def test_notes_and_plans_are_entries(ledger: Ledger) -> None:
    about = [ledger.find("one").record]
    note = ledger.lookup(str(ledger.note("moved to a new disk", author="ana", about=about)))
    assert isinstance(note, NoteEntry)
    assert list(note.about) == about
    seq = ledger.plan("nightly", b'{"tasks": [1, 1.0]}', author="ana")
    plan = ledger.lookup(str(seq))
    assert isinstance(plan, PlanEntry)
    assert bytes(plan.plan) == b'{"tasks":[1,1.0]}'


def test_what_was_said_outlives_the_index(ledger: Ledger) -> None:
    ledger.review(ledger.find("one"), "pass", reviewer="ana")
    ledger.supersede(ledger.find("one"), ledger.find("two"), "other", reason="r", author="a")
    before = ledger.trials()
    ledger.index.erase()
    assert ledger.trials() == before


def strange(row: TrialRow) -> TrialRow:
    return msgspec.structs.replace(row, record="0" * 64)


def test_what_cannot_be_said_is_refused_and_nothing_is_written(ledger: Ledger) -> None:
    trial, before = ledger.find("one"), size(ledger)
    nan = TrialScore(profile="p", certificate={"rewards": {"reward": [math.nan]}})
    refusals: list[tuple[Callable[[], int], str]] = [
        (lambda: ledger.review(trial, "great", reviewer="ana"), "verdict is 'great'; expected"),
        (lambda: ledger.review(trial, "pass", reviewer="  "), "the reviewer is empty"),
        (lambda: ledger.review(trial, "pass", reviewer="a" * 300), "has 300 characters"),
        (lambda: ledger.review(trial, "pass", reviewer="a", note="\udcff"), "is not valid text"),
        (lambda: ledger.review(strange(trial), "pass", reviewer="a"), "no record '000"),
        (
            lambda: ledger.supersede(trial, trial, "task", reason="r", author="a"),
            "supersede itself",
        ),
        (lambda: ledger.supersede(trial, trial, "mood", reason="r", author="a"), "cause is 'mood'"),
        (lambda: ledger.rescore(trial, nan, reason="r", author="a"), "holds nan"),
        (lambda: ledger.note("x", author="a", about=["f" * 64]), "no record 'fff"),
        (lambda: ledger.plan("e", b"{", author="a"), "the plan is not JSON"),
    ]
    for refused, sentence in refusals:
        with pytest.raises(LedgerError, match=sentence):
            refused()
    with pytest.raises(RecordError, match=r"experiment_id is '\.\./x'"):
        ledger.plan("../x", b"{}", author="a")
    assert size(ledger) == before


def test_without_the_key_nothing_is_said(
    ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PROCTOR_KEY", str(tmp_path / "elsewhere"))
    missing = "elsewhere: the signing key cannot be read"
    with Ledger.open(Path(ledger.where)) as reader, pytest.raises(KeyFileError, match=missing):
        reader.review(reader.find("one"), "pass", reviewer="ana")
