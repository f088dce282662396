"""What is read from a log must be as it would have been sealed, whoever appended and signed it."""

import json
from pathlib import Path

import msgspec
import pytest

from proctor.errors import ConflictError, DamageError, NotSealedError
from proctor.ledger.entry import (
    AnyEntry,
    EvidenceFile,
    PlanEntry,
    ReviewEntry,
    Source,
    Subject,
    SupersedeEntry,
    TrialScore,
)
from proctor.ledger.ledger import OpenLedger
from proctor.ledger.query import find_trial
from proctor.ledger.sealing import Submission, seal
from proctor.ledger.verification.damage import DamageKind
from proctor.ledger.verification.verify import verify_ledger
from proctor.ledger.withhold import Why, withhold_trial
from tests.cli.programs import Proctor
from tests.ledger.by_hand import append_by_hand, overwrite_by_hand, trial, withhold
from tests.ledger.ledgers import EXPERIMENT, find_key, record_bytes, small

BETTER = {"evaluation.reward": 0.5}
WHY = Why("a key leaked", "ana")


def damage_of(directory: Path) -> dict[DamageKind, str]:
    return {each.kind: each.message for each in verify_ledger(directory).damage}


def refusal_of(directory: Path) -> str:
    """What every command says that reads the ledger."""
    with OpenLedger.open(directory) as ledger, pytest.raises(DamageError) as caught:
        ledger.refresh()
    return str(caught.value)


def subject(name: str, record: str = "0" * 64) -> Subject:
    return Subject(experiment_id=EXPERIMENT, trial_id=name, record=record)


def sealed_subject(directory: Path, name: str) -> Subject:
    with OpenLedger.open(directory) as ledger:
        ledger.refresh()
        row = find_trial(ledger, name)
    return subject(row.trial_id, row.record)


def review(about: Subject) -> ReviewEntry:
    return ReviewEntry(at="", seq=0, subject=about, verdict="pass", reviewer="ana")


# Ids, paths and digests


@pytest.mark.parametrize(
    "name", ["../../x/site-packages", "t1 ", "t\u0435st", ".hidden", "a/b", "", "t\n"]
)
def test_an_id_that_is_no_name_is_damage_and_is_read_by_no_command(
    tmp_path: Path, name: str
) -> None:
    directory = small(tmp_path, "t1")
    append_by_hand(directory, find_key(tmp_path), trial(name))
    assert "trial_id is" in damage_of(directory)[DamageKind.BAD_ID]
    said = refusal_of(directory)
    assert "entry 2: trial_id is" in said
    assert "`proctor ledger verify`" in said


def plan(experiment: str) -> PlanEntry:
    return PlanEntry(at="", seq=0, experiment_id=experiment, plan=msgspec.Raw(b"{}"), author="ana")


@pytest.mark.parametrize(
    ("entry", "kind", "said"),
    [
        (trial("t2", experiment_id="../x"), DamageKind.BAD_ID, "experiment_id is '../x'"),
        (plan("../x"), DamageKind.BAD_ID, "experiment_id is '../x'"),
        (review(subject("../x")), DamageKind.BAD_ID, "trial_id of a subject is '../x'"),
        (review(subject("t1", "../x")), DamageKind.MALFORMED, "expected a SHA-256"),
        (
            SupersedeEntry(
                at="", seq=0, subject=subject("t1"), by=subject("/t"), cause="other", reason="r",
                author="a",
            ),
            DamageKind.BAD_ID,
            "trial_id of a subject is '/t'",
        ),
        (withhold(subject(".."), 1, "0" * 64), DamageKind.BAD_ID, "trial_id of a subject is '..'"),
        (withhold(None, 1, "../x"), DamageKind.MALFORMED, "no SHA-256"),
        (withhold(None, 2, "0" * 64), DamageKind.MALFORMED, "does not come before it"),
        (trial("t2", "../../x"), DamageKind.MALFORMED, "expected a plain relative path"),
        (trial("t2", "/etc/x"), DamageKind.MALFORMED, "expected a plain relative path"),
        (trial("t2", "a", "a"), DamageKind.MALFORMED, "'a' is named twice"),
        (trial("t2", "a", "a/b/c"), DamageKind.MALFORMED, "is a file, and a directory of"),
        (
            msgspec.structs.replace(trial("t2"), source=Source(kind="harbor", name="../x")),
            DamageKind.MALFORMED,
            "source.name is '../x'",
        ),
    ],
)  # fmt: skip
def test_what_sealing_refuses_is_refused_when_it_is_read(
    tmp_path: Path, entry: AnyEntry, kind: DamageKind, said: str
) -> None:
    directory = small(tmp_path, "t1")
    append_by_hand(directory, find_key(tmp_path), entry)
    assert said in damage_of(directory)[kind]
    assert said in refusal_of(directory)


def test_a_line_with_a_key_twice_is_refused_by_the_index_too(tmp_path: Path) -> None:
    directory = small(tmp_path, "t1")
    line = b'{"at":"","kind":"note","seq":2,"text":"a","author":"b","about":[],"text":"c"}'
    append_by_hand(directory, find_key(tmp_path), line)
    assert "a duplicate or an unknown key" in refusal_of(directory)


def test_two_files_of_one_name_are_not_sealed(tmp_path: Path) -> None:
    directory = small(tmp_path, "t1")
    submission = Submission(
        record=record_bytes("t2"), where="t2", attached={"a": b"one", "a/b": b"two"}
    )
    with (
        OpenLedger.open(directory, key=find_key(tmp_path)) as ledger,
        pytest.raises(NotSealedError, match="is a file, and a directory"),
    ):
        seal(ledger, [submission])
    assert not (directory / "artifacts").exists()


# The same trial twice


def test_a_sealed_trial_is_not_replaced_by_a_second_entry(tmp_path: Path, proctor: Proctor) -> None:
    directory = small(tmp_path, "t1", "t2")
    since = tmp_path / "since"
    since.write_bytes((directory / "checkpoint").read_bytes())
    append_by_hand(directory, find_key(tmp_path), trial("t1", **BETTER))
    ran = proctor("ledger", "verify", "--ledger", directory, "--since", since)
    assert ran.code == 1
    both = f"entries 1 and 3 are both trial t1 of {EXPERIMENT}"
    assert f"duplicate-trial: entries/000000.jsonl: {both}" in ran.out
    for words in (["board"], ["ledger", "list"], ["ledger", "prove", "t1"], ["report", EXPERIMENT]):
        ran = proctor(*words, "--ledger", directory)
        assert (ran.code, both in ran.err) == (1, True), (words, ran.out, ran.err)
        assert "`proctor ledger verify`" in ran.err


def test_a_withheld_trial_is_not_sealed_again_with_other_bytes(tmp_path: Path) -> None:
    directory, key = small(tmp_path, "t1", "t2"), find_key(tmp_path)
    with OpenLedger.open(directory, key=key) as ledger:
        ledger.refresh()
        withhold_trial(ledger, find_trial(ledger, "t1"), WHY)
        with pytest.raises(ConflictError, match=r"t1 of .* is sealed already"):
            seal(ledger, [Submission(record=record_bytes("t1", **BETTER), where="t1")])
        (again,) = seal(ledger, [Submission(record=record_bytes("t1"), where="t1")])
        assert (again.status, again.is_new) == ("withheld", False)
    assert verify_ledger(directory).is_sound
    append_by_hand(directory, key, trial("t1", **BETTER))
    assert "entries 1 and 4 are both trial t1" in damage_of(directory)[DamageKind.DUPLICATE_TRIAL]
    assert "entries 1 and 4 are both trial t1" in refusal_of(directory)


def test_a_trial_may_not_be_withheld_after_it_was_replaced(tmp_path: Path) -> None:
    directory, key = small(tmp_path, "t1"), find_key(tmp_path)
    first = sealed_subject(directory, "t1")
    append_by_hand(directory, key, trial("t1", **BETTER))
    leaf = overwrite_by_hand(directory, 1)
    append_by_hand(directory, key, withhold(first, 1, leaf))
    assert "entries 1 and 2 are both trial t1" in damage_of(directory)[DamageKind.DUPLICATE_TRIAL]
    assert "entries 1 and 2 are both trial t1" in refusal_of(directory)


def test_a_line_that_is_there_is_the_trial_that_it_is_withheld_as(tmp_path: Path) -> None:
    directory, key = small(tmp_path, "t1", "t2"), find_key(tmp_path)
    append_by_hand(directory, key, withhold(sealed_subject(directory, "t2"), 1, "0" * 64))
    found = damage_of(directory)[DamageKind.DUPLICATE_TRIAL]
    assert found.startswith("entry 3 withholds entry 1 as trial t2")
    assert f"that entry is trial t1 of {EXPERIMENT}" in found
    assert "entry 3 withholds entry 1 as trial t2" in refusal_of(directory)


def test_a_line_that_is_gone_is_one_trial_only(tmp_path: Path) -> None:
    directory, key = small(tmp_path, "t1"), find_key(tmp_path)
    first = sealed_subject(directory, "t1")
    leaf = overwrite_by_hand(directory, 1)
    append_by_hand(directory, key, withhold(first, 1, leaf), withhold(subject("x"), 1, leaf))
    said = "entry 3 withholds entry 1 as trial x"
    assert damage_of(directory)[DamageKind.DUPLICATE_TRIAL].startswith(said)
    assert said in refusal_of(directory)


def test_what_is_no_trial_is_not_withheld_as_one(tmp_path: Path) -> None:
    directory = small(tmp_path, "t1")
    append_by_hand(directory, find_key(tmp_path), withhold(subject("x"), 0, "0" * 64))
    assert "that entry is no trial" in damage_of(directory)[DamageKind.DUPLICATE_TRIAL]
    assert "that entry is no trial" in refusal_of(directory)


def test_fast_says_that_it_does_not_look_for_duplicates(tmp_path: Path, proctor: Proctor) -> None:
    directory = small(tmp_path, "t1")
    append_by_hand(directory, find_key(tmp_path), trial("t1", **BETTER))
    ran = proctor("ledger", "verify", "--fast", "--ledger", directory)
    assert "trials     ids and duplicates not checked (--fast)" in ran.out


def test_ids_that_differ_in_case_are_two_trials(tmp_path: Path) -> None:
    directory = small(tmp_path, "t1", "T1")
    assert verify_ledger(directory).is_sound


# One number


@pytest.mark.parametrize("stated", [0.0, None])
def test_a_record_that_contradicts_its_certificate_has_one_number_everywhere(
    tmp_path: Path, proctor: Proctor, stated: float | None
) -> None:
    certificate = {"task": "add", "rewards": {"reward": (1.0).hex()}, "basis": "reward file"}
    score = TrialScore(profile="harbor-0.13.1", certificate={**certificate, "exception": None})
    directory, key = small(tmp_path), find_key(tmp_path)
    sealed = trial("a", **{"evaluation.reward": stated})
    append_by_hand(directory, key, msgspec.structs.replace(sealed, score=score))
    assert verify_ledger(directory).is_sound
    (row,) = json.loads(proctor("ledger", "list", "--ledger", directory, "--json").out)
    claim = proctor("ledger", "claim", "--experiment", EXPERIMENT, "--ledger", directory, "--json")
    assert (row["reward"], json.loads(claim.out)["counts"]["scored"]) == (1.0, 1)


def test_a_duplicate_is_named_whatever_else_is_wrong_with_it(tmp_path: Path) -> None:
    directory, key = small(tmp_path, "a"), find_key(tmp_path)
    hostile = EvidenceFile(path="../out", sha256="0" * 64, size=1)
    append_by_hand(
        directory, key, msgspec.structs.replace(trial("a", **BETTER), evidence=(hostile,))
    )
    assert damage_of(directory).keys() == {DamageKind.DUPLICATE_TRIAL, DamageKind.MALFORMED}
