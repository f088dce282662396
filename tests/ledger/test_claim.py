"""Claims: a score with its proof, and every way in which one could lie."""

import base64
import hashlib
import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from proctor.audit.certificate import make_certificate
from proctor.audit.scoring import score_jobs
from proctor.errors import DamageError, LedgerError, ProofFileError
from proctor.exchange.submission import SealOptions, find_submissions
from proctor.harbor.job import load_job
from proctor.ledger.claims.checks import check_claim_file
from proctor.ledger.claims.claim import (
    Claim,
    ClaimOptions,
    find_differences,
    make_claim,
    parse_claim,
    prove_claim,
)
from proctor.ledger.claims.document import pack, render_document
from proctor.ledger.claims.trials import Scope
from proctor.ledger.entry import RescoreEntry, Subject, SupersedeEntry, TrialScore
from proctor.ledger.ledger import OpenLedger
from proctor.ledger.sealing import Submission, seal
from proctor.reward.profile import DEFAULT_PROFILE
from tests.cli.programs import ROOT, command_line
from tests.ledger.claims import (
    PROFILE,
    WHOLE,
    certificate_of,
    claim_of,
    edit,
    marked,
    seal_marked,
    subject,
    supersede,
    write_claim,
)
from tests.ledger.ledgers import EXPERIMENT, find_key, make_ledger, record_bytes

MARKS = {"a__1": 1.0, "a__2": 0.0, "b__1": 1.0, "b__2": None}


@pytest.fixture
def ledger(tmp_path: Path) -> OpenLedger:
    """Four marked trials among others."""
    made = make_ledger(tmp_path)
    seal_marked(made, {"elsewhere": 1.0}, experiment_id="another")
    seal_marked(made, MARKS)
    return made


def differences(claim: Claim) -> list[str]:
    """What a stranger finds."""
    read = parse_claim(render_document(claim), "claim")
    return list(find_differences(read, prove_claim(read, "claim")))


def test_a_claim_says_what_score_makes_of_the_same_rewards(ledger: OpenLedger) -> None:
    claim = claim_of(ledger, ClaimOptions(scope=Scope(EXPERIMENT), metrics=("mean", "max", "sum")))
    (group,) = claim.certificate.groups
    assert group.key == "claude-code__opus__tb"
    results = {metric.metric: metric.result for metric in group.metrics}
    half, one, two = (0.5).hex(), (1.0).hex(), (2.0).hex()
    assert results == {"mean": {"mean": half}, "max": {"max": one}, "sum": {"sum": two}}
    assert group.pass_at_k == {"2": one}
    assert [trial.trial for trial in group.trials] == list(MARKS)
    assert differences(claim) == []


def test_the_denominators_of_a_claim_add_up(ledger: OpenLedger) -> None:
    counts = claim_of(ledger).counts
    assert (counts.planned, counts.entries, counts.counted) == (4, 4, 4)
    assert (counts.scored, counts.zero_by_missing, counts.errored) == (3, 1, 1)


def test_trials_that_were_never_run_are_planned_all_the_same(ledger: OpenLedger) -> None:
    claim = claim_of(ledger, ClaimOptions(scope=Scope(EXPERIMENT), planned=10))
    assert (claim.counts.not_run, claim.certificate.outcome.total) == (6, 10)
    assert claim.certificate.groups[0].pass_at_k == {}
    assert differences(claim) == []


def test_fewer_planned_than_there_are_is_refused(ledger: OpenLedger) -> None:
    with pytest.raises(LedgerError, match="the denominators do not add up"):
        claim_of(ledger, ClaimOptions(scope=Scope(EXPERIMENT), planned=3))


def test_an_experiment_that_is_not_there_is_refused(ledger: OpenLedger) -> None:
    with pytest.raises(LedgerError, match="no trial of the experiment 'nothing'"):
        claim_of(ledger, ClaimOptions(scope=Scope("nothing")))


def test_a_superseded_trial_is_told_of_and_not_counted(ledger: OpenLedger) -> None:
    seal_marked(ledger, {"b__3": 1.0})
    supersede(ledger, "b__2", by="b__3")
    claim = claim_of(ledger)
    assert (claim.counts.superseded, claim.counts.counted, claim.counts.entries) == (1, 4, 5)
    assert claim.certificate.outcome.score == (0.75).hex()
    assert any("the machine went down" in (packed.line or "") for packed in claim.entries)
    assert differences(claim) == []


def test_a_superseded_trial_cannot_be_counted(ledger: OpenLedger) -> None:
    honest = claim_of(ledger)
    supersede(ledger, "a__2", by="a__1")
    later = claim_of(ledger)
    lie = msgspec.structs.replace(later, certificate=honest.certificate, counts=honest.counts)
    assert any("operands; the entries give 3" in found for found in differences(lie))


def test_a_trial_counts_where_what_should_stand_in_for_it_never_was(ledger: OpenLedger) -> None:
    honest = claim_of(ledger)
    supersede(ledger, "a__2", by="a__1")
    supersede(ledger, "a__1", by="a__2")
    with ledger.writing():
        ledger.append([stands_in(ledger, "b__1", "0" * 64)])
    claim = claim_of(ledger)
    assert claim.counts.superseded == 0
    assert claim.certificate.outcome == honest.certificate.outcome


def stands_in(ledger: OpenLedger, trial: str, record: str) -> SupersedeEntry:
    found = ledger.find_sealed(EXPERIMENT, trial)
    assert found is not None
    former = Subject(experiment_id=EXPERIMENT, trial_id=trial, record=found.record)
    by = Subject(experiment_id=EXPERIMENT, trial_id="none", record=record)
    return SupersedeEntry(
        at="", seq=0, subject=former, by=by, cause="other", reason="to be rid of it", author="me"
    )


def test_an_earlier_attempt_is_told_of_and_not_counted(ledger: OpenLedger) -> None:
    seal_marked(ledger, {"a__1.attempt-1": None, "stray.attempt-1": 1.0})
    counts = claim_of(ledger).counts
    assert (counts.attempts, counts.counted, counts.entries) == (1, 5, 6)


def test_an_attempt_whose_machine_died_is_no_0_of_a_trial_that_is_not_there(
    ledger: OpenLedger,
) -> None:
    certificate = certificate_of("gone__1.attempt-1", None) | {"exception": "WorkerLostError"}
    score = TrialScore(profile=PROFILE, certificate=certificate)
    seal(ledger, [replace(marked("gone__1.attempt-1", None), score=score)])
    claim = claim_of(ledger)
    assert (claim.counts.attempts, claim.counts.counted) == (1, len(MARKS))
    assert differences(claim) == []


def test_diagnostic_trials_count_unless_they_are_left_out(ledger: OpenLedger) -> None:
    seal_marked(ledger, {"c__1": 1.0}, completeness="partial")
    counted = claim_of(ledger).counts
    assert (counted.counted, counted.counted_diagnostic, counted.diagnostic) == (5, 1, 0)
    claim = claim_of(ledger, ClaimOptions(scope=Scope(EXPERIMENT, sealed_only=True)))
    assert (claim.counts.counted, claim.counts.diagnostic, claim.counts.planned) == (4, 1, 5)
    assert differences(claim) == []


def test_trials_of_another_dataset_are_counted_as_such(ledger: OpenLedger) -> None:
    seal_marked(ledger, {"d__1": 1.0, "d__2": 1.0}, dataset_id="other")
    claim = claim_of(ledger, ClaimOptions(scope=Scope(EXPERIMENT, "other")))
    assert (claim.counts.counted, claim.counts.other_datasets) == (2, 4)
    assert differences(claim) == []


def test_a_trial_that_was_marked_again_is_told_of(ledger: OpenLedger) -> None:
    again = RescoreEntry(
        at="",
        seq=0,
        subject=subject(ledger, "a__2"),
        score=TrialScore(profile=PROFILE, certificate=certificate_of("a__2", {"reward": 1.0})),
        reason="the marks were wrong",
        author="me",
    )
    with ledger.writing():
        ledger.append([again])
    claim = claim_of(ledger)
    assert claim.counts.rescored == 1
    assert claim.certificate.outcome.score == (0.5).hex()


def test_trials_that_were_sealed_without_a_certificate_count_as_their_records_say(
    tmp_path: Path,
) -> None:
    made = make_ledger(tmp_path)
    several: dict[str, object] = {
        "evaluation.breakdown": {"reward": 1, "speed": 0.5},
        "evaluation.reward": 1.0,
    }
    plain: dict[str, object] = {"evaluation.breakdown": None, "evaluation.reward": 0.25}
    words: dict[str, object] = {
        "evaluation.breakdown": {"verdict": "good"},
        "evaluation.reward": 0.75,
    }
    none: dict[str, object] = {"evaluation.breakdown": None, "evaluation.reward": None}
    for number, changes in enumerate((several, plain, words, none)):
        record = record_bytes(f"t{number}", **changes)
        seal(made, [Submission(record=record, where=f"t{number}")])
    claim = claim_of(made)
    (group,) = claim.certificate.groups
    assert [trial.rewards for trial in group.trials] == [
        {"reward": 1, "speed": (0.5).hex()},
        {"reward": (0.25).hex()},
        {"reward": (0.75).hex()},
        None,
    ]
    found = check_claim_file(str(write_claim(tmp_path / "claim.json", claim)))
    assert any("4 trials sealed without a certificate" in str(each) for each in found.diagnostics)


def test_trials_marked_by_different_rules_make_no_claim(ledger: OpenLedger) -> None:
    submission = marked("e__1", {"reward": 1.0})
    other = msgspec.structs.replace(submission.score, profile="other") if submission.score else None
    seal(ledger, [Submission(record=submission.record, where="e", score=other)])
    with pytest.raises(LedgerError, match="expected one profile"):
        claim_of(ledger)


def test_a_claim_holds_under_an_older_checkpoint(ledger: OpenLedger) -> None:
    older = claim_of(ledger)
    seal_marked(ledger, {"z__1": 1.0})
    checkpoint = prove_claim(older, "claim").checkpoint
    ledger.refresh()
    again = make_claim(ledger, WHOLE, checkpoint)
    assert again.counts == older.counts
    assert again.nodes == older.nodes


def test_a_claim_of_445_trials_is_reasonable(tmp_path: Path) -> None:
    made = make_ledger(tmp_path, [f"other{number}" for number in range(300)])
    seal_marked(made, {f"task{n % 89}__{n}": float(n % 2) for n in range(445)}, experiment_id="big")
    data = render_document(claim_of(made, ClaimOptions(scope=Scope("big"))))
    lines = sum(len(made.line(seq)) for seq in range(301, 746))
    assert len(data) < 1.5 * lines
    assert len(pack(data)) < lines / 4
    assert len(parse_claim(data, "claim").nodes) < 30


LIES = [
    (("certificate", "groups", 0, "trials", 1, "rewards", "reward"), (1.0).hex(), "operand"),
    (("certificate", "groups", 0, "trials", 1, "trial"), "b__9", "operand"),
    (("certificate", "groups", 0, "trials", 3, "exception"), None, "operand"),
    (("certificate", "groups", 0, "key"), "other", "groups"),
    (("certificate", "groups", 0, "metrics", 0, "result", "mean"), (1.0).hex(), "stated"),
    (("certificate", "groups", 0, "pass_at_k", "2"), (0.5).hex(), "pass_at_k"),
    (("certificate", "outcome", "score"), (1.0).hex(), "outcome.score"),
    (("certificate", "outcome", "status"), "completed", "outcome.status"),
    (("certificate", "jobs", 0, "name"), "other", "other jobs"),
    (("certificate", "profile"), "other", "scored by other"),
    (("certificate", "planned"), 9, "certificate has 9"),
    (("counts", "planned"), 3, "do not add up"),
    (("counts", "counted"), 3, "counts.counted is 3; the entries give 4"),
    (("counts", "zero_by_missing"), 0, "counts.zero_by_missing"),
    (("counts", "other_datasets"), -1, "do not add up"),
    (("experiment",), "another", "outside of the claim"),
    (("dataset",), "other", "outside of the claim"),
]


@pytest.mark.parametrize(("place", "value", "message"), LIES)
def test_a_claim_that_lies_is_caught(
    ledger: OpenLedger,
    tmp_path: Path,
    place: tuple[str | int, ...],
    value: object,
    message: str,
) -> None:
    path = write_claim(tmp_path / "claim.json", claim_of(ledger))
    found = check_claim_file(str(edit(path, *place, value=value)))
    assert not found.is_sound
    assert any(message in str(each) for each in found.diagnostics), found.diagnostics


def test_an_entry_that_was_edited_is_caught(ledger: OpenLedger, tmp_path: Path) -> None:
    claim = claim_of(ledger)
    entries = [
        msgspec.structs.replace(packed, line=(packed.line or "").replace("a__2", "a__9"))
        for packed in claim.entries
    ]
    path = write_claim(tmp_path / "c.json", msgspec.structs.replace(claim, entries=entries))
    found = check_claim_file(str(path))
    assert found.summary == "it proves nothing"
    assert "are not in the ledger" in str(found.diagnostics[0])


@pytest.mark.parametrize("cut", ["entry", "node", "line"])
def test_a_claim_with_a_part_missing_is_caught(ledger: OpenLedger, cut: str) -> None:
    claim = claim_of(ledger)
    if cut == "entry":
        claim = msgspec.structs.replace(claim, entries=claim.entries[:-1])
    elif cut == "node":
        claim = msgspec.structs.replace(claim, nodes=claim.nodes[:-1])
    else:
        proof = ledger.index.hashes(0, 0, 10)[claim.entries[-1].seq].hex()
        last = msgspec.structs.replace(claim.entries[-1], line=None, leaf=proof)
        claim = msgspec.structs.replace(claim, entries=[*claim.entries[:-1], last])
    with pytest.raises(DamageError, match=r"hashes|not in the ledger|has no line"):
        prove_claim(claim, "claim")


def test_a_claim_that_leaves_the_first_entry_out_says_nothing_of_its_origin(
    tmp_path: Path,
) -> None:
    claim = claim_of(make_marked(tmp_path))
    other = claim.checkpoint.replace("example.org/ledger", "example.org/other", 1)
    with pytest.raises(DamageError, match=r"names a key of 'example.org/ledger', not"):
        prove_claim(msgspec.structs.replace(claim, checkpoint=other), "claim")


def make_marked(directory: Path) -> OpenLedger:
    made = make_ledger(directory)
    seal_marked(made, MARKS)
    return made


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b'{"format": "proctor-claim-1", "certificate": {', "torn or not JSON"),
        (b'{"format": "proctor-claim-1", "certificate": {}}', "missing required field"),
        (b"[" * 100_000, "torn or not JSON"),
        (b'{"a": 1, "a": 2}', "'a' occurs twice"),
        (b"\xff", "torn or not JSON"),
    ],
)
def test_what_is_no_claim_is_refused_with_a_sentence(data: bytes, message: str) -> None:
    with pytest.raises(ProofFileError, match=message):
        parse_claim(data, "claim")


def test_entries_out_of_order_or_twice_are_refused(ledger: OpenLedger) -> None:
    claim = claim_of(ledger)
    for entries in (claim.entries[::-1], [claim.entries[0], *claim.entries]):
        data = render_document(msgspec.structs.replace(claim, entries=entries))
        with pytest.raises(ProofFileError, match="in the order of the log, each once"):
            parse_claim(data, "claim")


def test_a_stranger_needs_only_the_claim_and_the_public_key(
    ledger: OpenLedger, tmp_path: Path
) -> None:
    room = tmp_path / "room"
    room.mkdir()
    (room / "claim.json.zst").write_bytes(pack(render_document(claim_of(ledger))))
    (room / "pub").write_text(f"{find_key(tmp_path).verifier}\n")
    Path(ledger.where).rename(tmp_path / "gone")
    path = os.pathsep.join([str(ROOT / "src"), *filter(None, sys.path)])
    ran = subprocess.run(
        command_line("check", "claim.json.zst", "--key", "pub", "--json"),
        cwd=room,
        env={"PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    (checked,) = json.loads(ran.stdout)["checked"]
    assert checked["sound"]
    assert checked["thing"] == "claim"
    assert "scored 0.5 over 4 trials" in checked["summary"]
    assert sorted(path.name for path in room.iterdir()) == ["claim.json.zst", "pub"]


def test_the_walk_that_the_page_prints_gives_the_root(ledger: OpenLedger) -> None:
    page = (ROOT / "docs" / "reference" / "formats" / "claims.md").read_text(encoding="utf-8")
    (source,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    names: dict[str, Any] = {"hashlib": hashlib}
    exec(source, names)  # noqa: S102 - our own page
    claim = claim_of(ledger)
    leaves = {
        packed.seq: hashlib.sha256(b"\0" + (packed.line or "").encode()).digest()
        for packed in claim.entries
    }
    size, root = claim.checkpoint.split("\n")[1:3]
    nodes = iter([bytes.fromhex(node) for node in claim.nodes])
    found = names["root"](leaves, nodes, 0, int(size))
    assert (base64.b64encode(found).decode(), list(nodes)) == (root, [])


def test_a_claim_of_a_real_job_has_the_numbers_that_score_gives(tmp_path: Path) -> None:
    job = load_job(str(ROOT / "tests/data/harbor/jobs/04-binary-scripted-k5"), DEFAULT_PROFILE)
    made = make_ledger(tmp_path)
    asked = SealOptions(experiment="nightly")
    for found in job.trials:
        seal(made, list(find_submissions(Path(found.directory), asked)))
    claimed = claim_of(made, ClaimOptions(scope=Scope("nightly"))).certificate
    scored = make_certificate(score_jobs([job], DEFAULT_PROFILE))
    assert claimed.outcome == scored.outcome
    assert claimed.groups == scored.groups
