"""Attestations: what they count, what contradicts them, and what a claim cannot leave out."""

import hashlib
import json
import sys
import warnings
from pathlib import Path

import msgspec
import pytest

from proctor.errors import DamageError, LedgerError, ProofFileError
from proctor.ledger.attestation import append_attestation, survey_log
from proctor.ledger.claims.checks import check_claim_file
from proctor.ledger.claims.claim import Claim, Packed, parse_claim
from proctor.ledger.claims.claiming import ClaimOptions
from proctor.ledger.claims.document import render_document
from proctor.ledger.claims.multiproof import prove_entries
from proctor.ledger.claims.trials import Scope
from proctor.ledger.entry import AttestEntry, PlanEntry, WithholdEntry
from proctor.ledger.ledger import OpenLedger
from proctor.ledger.query import find_trial
from proctor.ledger.review import append_review
from proctor.ledger.tree import leaf_hash, subtree_of
from proctor.ledger.verification.verify import verify_ledger
from proctor.ledger.withhold import Why, withhold_entry, withhold_trial
from tests.cli.programs import Proctor
from tests.ledger.claims import claim_of, seal_marked, supersede, write_claim
from tests.ledger.ledgers import EXPERIMENT, find_key, make_ledger
from tests.ledger.test_independent_checker import CHECKER

WHY = Why("a key leaked", "ana")


@pytest.fixture
def ledger(tmp_path: Path) -> OpenLedger:
    """An experiment of four trials, one superseded, one reviewed; another experiment; a plan."""
    made = make_ledger(tmp_path)
    plan = PlanEntry(at="", seq=0, experiment_id=EXPERIMENT, plan=msgspec.Raw(b"{}"), author="ana")
    with made.writing():
        made.append([plan])
    seal_marked(made, {"elsewhere": 1.0}, experiment_id="another")
    seal_marked(made, {"a__1": 1.0, "a__2": 0.0, "b__1": 1.0, "b__2": None})
    supersede(made, "b__2", "b__1")
    append_review(made, find_trial(made, "a__1"), "pass", reviewer="ana")
    return made


def attest(ledger: OpenLedger) -> AttestEntry:
    return append_attestation(ledger, EXPERIMENT, "ana")


def damage(ledger: OpenLedger) -> list[str]:
    return [f"{each.kind} {each.seq}" for each in verify_ledger(Path(ledger.where)).damage]


def independent(ledger: OpenLedger) -> bool:
    """Whether the program on the page accepts it."""
    with pytest.MonkeyPatch.context() as patched, warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # it is short, and closes no file
        patched.setattr(sys, "argv", ["checker.py", ledger.where])
        try:
            exec(compile(CHECKER.read_text(), "checker.py", "exec"), {})  # noqa: S102 - our own file
        except AssertionError:
            return False
    return True


def lie(ledger: OpenLedger, entry: AttestEntry, **changes: object) -> int:
    """Append a statement by hand, with the key."""
    with ledger.writing():
        (seq,) = ledger.append([msgspec.structs.replace(entry, **changes)])
    return seq


def problems(claim: Claim, path: Path) -> list[str]:
    found = check_claim_file(str(write_claim(path, claim)))
    return [each.message for each in found.diagnostics if each.is_problem]


def told(claim: Claim, path: Path) -> str:
    found = check_claim_file(str(write_claim(path, claim)))
    assert found.is_sound, found.diagnostics
    return "\n".join([*(each.message for each in found.diagnostics), *found.unchecked])


def packed_without(ledger: OpenLedger, claim: Claim, gone: int, **changes: object) -> Claim:
    """The claim as its owner would make it without an entry: everything else is right."""
    leaves = ledger.index.hashes(0, 0, ledger.refresh().tree.size)
    entries = [each for each in claim.entries if each.seq != gone]
    hashed = changes.pop("hashed", claim.hashed)
    assert isinstance(hashed, list)
    places = sorted(each.seq for each in (*entries, *hashed))
    nodes = [node.hex() for node in prove_entries(subtree_of(leaves), len(leaves), places)]
    return msgspec.structs.replace(claim, entries=entries, nodes=nodes, hashed=hashed, **changes)


def test_an_attestation_counts_every_entry_of_its_experiment(ledger: OpenLedger) -> None:
    entry = attest(ledger)
    lines = ((Path(ledger.where) / "entries") / "000000.jsonl").read_bytes().splitlines()
    members = [1, 3, 4, 5, 6, 7, 8]
    text = "".join(f"{seq} {leaf_hash(lines[seq]).hex()}\n" for seq in members)
    assert (entry.size, entry.plan, entry.entries, entry.unnamed) == (9, 1, 7, 0)
    assert entry.digest == hashlib.sha256(text.encode()).hexdigest()
    assert damage(ledger) == []
    assert independent(ledger)


def test_an_experiment_without_an_entry_is_not_attested(ledger: OpenLedger) -> None:
    with pytest.raises(LedgerError, match="no entry of the experiment 'absent'"):
        append_attestation(ledger, "absent", "ana")
    with pytest.raises(LedgerError, match="the author"):
        append_attestation(ledger, EXPERIMENT, " ")


def test_more_entries_leave_an_attestation_as_it_is(ledger: OpenLedger) -> None:
    attest(ledger)
    seal_marked(ledger, {"c__1": 1.0})
    supersede(ledger, "a__2", "c__1")
    assert damage(ledger) == []
    assert attest(ledger).entries == 9


@pytest.mark.parametrize(
    "changes",
    [
        {"entries": 6},
        {"entries": 8},
        {"digest": "0" * 64},
        {"plan": None},
        {"plan": 3},
        {"unnamed": 1},
        {"size": 8},
        {"size": 1000},
        {"experiment_id": "another"},
    ],
    ids=str,
)
def test_a_statement_that_the_log_contradicts_is_damage_by_name(
    ledger: OpenLedger, changes: dict[str, object]
) -> None:
    entry = attest(ledger)
    seq = lie(ledger, entry, **changes)
    assert damage(ledger) == [f"false-attestation {seq}"]
    assert not independent(ledger)


def test_withholding_a_trial_after_attesting_is_legal_and_the_statement_holds(
    ledger: OpenLedger, tmp_path: Path
) -> None:
    entry = attest(ledger)
    withhold_trial(ledger, find_trial(ledger, "a__2"), WHY)
    assert damage(ledger) == []
    assert independent(ledger)
    claim = claim_of(ledger)
    assert (claim.attestation, claim.hashed, claim.counts.withheld) == (entry.seq, [], 1)
    assert "entry 9 attests that 7 entries" in told(claim, tmp_path / "claim")


def test_withholding_without_a_subject_does_not_take_a_trial_out_of_the_statement(
    ledger: OpenLedger, tmp_path: Path
) -> None:
    entry = attest(ledger)
    # An owner with the key, by hand: the trial's line goes, and no entry says whose it was.
    withhold_trial(ledger, find_trial(ledger, "elsewhere"), WHY)
    with pytest.raises(LedgerError):
        withhold_entry(ledger, entry.seq, WHY)
    path = (Path(ledger.where) / "entries") / "000000.jsonl"
    lines = path.read_bytes().splitlines()
    leaf = leaf_hash(lines[4]).hex()
    word = WithholdEntry(
        at="", seq=0, subject=None, entry=4, leaf=leaf, artifacts=(), reason="x", author="ana"
    )
    with ledger.writing():
        ledger.append([word])
    lines = path.read_bytes().splitlines()
    left = json.dumps({"withheld": leaf, "seq": 4}, separators=(",", ":")).encode()
    lines[4] = left.ljust(len(lines[4]))
    path.write_bytes(b"\n".join(lines) + b"\n")
    assert damage(ledger) == []
    assert independent(ledger)
    survey = survey_log(ledger.log, len(lines))
    assert (survey.find_counted(entry) or {}).keys() == {1, 3, 4, 5, 6, 7, 8}
    assert survey.state(EXPERIMENT, len(lines)).unnamed == 1
    ledger.refresh()
    claim = claim_of(ledger)
    assert [each.seq for each in claim.hashed] == [4]
    told(claim, tmp_path / "claim")
    forged = packed_without(ledger, claim, 11, hashed=claim.hashed)
    assert "entry 4 has no line" in problems(forged, tmp_path / "forged")[0]


def test_a_plan_that_was_withheld_later_is_still_the_plan(ledger: OpenLedger) -> None:
    attest(ledger)
    withhold_entry(ledger, 1, WHY)
    assert damage(ledger) == []
    assert independent(ledger)
    again = attest(ledger)
    assert (again.plan, again.entries, again.unnamed) == (None, 6, 1)


def test_a_claim_shows_that_nothing_was_left_out(ledger: OpenLedger, tmp_path: Path) -> None:
    before = claim_of(ledger)
    assert "this is the claimant's statement; `proctor ledger attest`" in told(
        before, tmp_path / "before"
    )
    attest(ledger)
    claim = claim_of(ledger)
    said = told(claim, tmp_path / "claim")
    assert "among the first 9 of the ledger belong to experiment-001: all of them are here" in said
    assert "trials sealed after the first 9 entries" in said
    assert "never sealed" in said


@pytest.mark.parametrize("gone", [4, 6, 7, 8, 1])
def test_a_claim_that_leaves_an_attested_entry_out_contradicts_the_statement(
    ledger: OpenLedger, tmp_path: Path, gone: int
) -> None:
    attest(ledger)
    forged = packed_without(ledger, claim_of(ledger), gone)
    found = problems(forged, tmp_path / "claim")
    assert any("something was omitted or added" in each for each in found), found


def test_a_trial_cannot_hide_behind_its_hash(ledger: OpenLedger, tmp_path: Path) -> None:
    attest(ledger)
    claim = claim_of(ledger)
    leaves = ledger.index.hashes(0, 0, 10)
    hidden = [Packed(seq=4, leaf=leaves[4].hex())]
    forged = packed_without(ledger, claim, 4, hashed=hidden)
    found = problems(forged, tmp_path / "claim")
    assert any("entry 4 of the experiment is included as a hash only" in each for each in found)
    bare = packed_without(ledger, forged, 9, attestation=None)
    found = problems(bare, tmp_path / "bare")
    assert any("no attestation counts them" in each for each in found)


def test_a_claim_names_an_attestation_of_its_own_experiment(
    ledger: OpenLedger, tmp_path: Path
) -> None:
    attest(ledger)
    other = append_attestation(ledger, "another", "ana")
    claim = msgspec.structs.replace(claim_of(ledger), attestation=other.seq)
    assert any("is not an attestation of" in each for each in problems(claim, tmp_path / "claim"))
    claim = msgspec.structs.replace(claim, attestation=4)
    assert any("is not an attestation of" in each for each in problems(claim, tmp_path / "again"))


def test_a_claim_of_one_dataset_says_what_is_the_claimants_word(
    ledger: OpenLedger, tmp_path: Path
) -> None:
    seal_marked(ledger, {"x__1": 1.0}, dataset_id="other-set")
    attest(ledger)
    dataset = json.loads(ledger.line(3))["record"]["dataset_id"]
    claim = claim_of(ledger, ClaimOptions(scope=Scope(EXPERIMENT, dataset)))
    assert (claim.counts.other_datasets, [each.seq for each in claim.hashed]) == (1, [9])
    said = told(claim, tmp_path / "claim")
    assert "that 1 entry with only a hash are trials of other datasets" in said
    counts = msgspec.structs.replace(claim.counts, other_datasets=0)
    forged = msgspec.structs.replace(claim, counts=counts)
    found = problems(forged, tmp_path / "forged")
    assert any("counts.other_datasets is 0" in each for each in found)


def test_a_claim_over_a_contradicted_statement_is_not_made(ledger: OpenLedger) -> None:
    lie(ledger, attest(ledger), entries=5)
    ledger.refresh()
    with pytest.raises(DamageError, match="contradicts the attestation of entry 10"):
        claim_of(ledger)


def test_claims_of_the_first_format_are_read_and_carry_no_attestation(
    ledger: OpenLedger, tmp_path: Path
) -> None:
    document = json.loads(render_document(claim_of(ledger)))
    del document["attestation"], document["hashed"]
    document["format"] = "proctor-claim-1"
    path = tmp_path / "claim"
    path.write_text(json.dumps(document))
    assert check_claim_file(str(path)).is_sound
    document["attestation"] = 9
    with pytest.raises(ProofFileError, match="proctor-claim-1 has no attestation"):
        parse_claim(json.dumps(document).encode(), "claim")


def test_the_command_attests_and_says_what(ledger: OpenLedger, proctor: Proctor) -> None:
    key = ("--ledger", Path(ledger.where), "--key", Path(ledger.where).parent / "key")
    assert find_key(Path(ledger.where).parent).name in str(ledger.refresh())
    ran = proctor("ledger", "attest", EXPERIMENT, *key)
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.startswith("experiment-001: 7 entries attested, entry 9\n")
    facts = json.loads(proctor("ledger", "attest", EXPERIMENT, *key, "--json").out)
    assert (facts["seq"], facts["size"], facts["entries"], facts["plan"]) == (10, 10, 7, 1)
    absent = proctor("ledger", "attest", "absent", *key)
    assert (absent.code, absent.out) == (2, "")
    assert proctor("ledger", "verify", *key[:2]).code == 0
