"""What `proctor check` says of case files, honest and edited."""

import random
from pathlib import Path

import pytest

from proctor.audit.file_kind import FileKind, find_file_kind
from proctor.errors import InputError, LedgerError, MissingArtifactError
from proctor.ledger.keys import cosign, make_key
from proctor.report.case.checking import check_case_file
from proctor.report.case.making import make_case
from tests.ledger.ledgers import EXPERIMENT, artifact_path, find_key
from tests.ledger.trials import seal_files
from tests.report.cases import (
    FILES,
    LARGEST,
    TRIAL,
    drop_file,
    edit,
    make_page,
    page_of,
    read_data,
    redo,
    seal_case,
)
from tests.report.forgeries import FORGERIES, Forgery
from tests.report.owned import OWNED, Owned, make_owned


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return make_page(tmp_path_factory.mktemp("case"))


@pytest.fixture(scope="module")
def owned_pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    return make_owned(tmp_path_factory.mktemp("owned"))


def codes_of(path: Path, *keys: str) -> set[str]:
    checked = check_case_file(str(path), keys)
    return {found.code for found in checked.diagnostics if found.is_problem}


def test_an_honest_case_file_is_sound(page: bytes, tmp_path: Path) -> None:
    path = tmp_path / "case.html"
    path.write_bytes(page)
    assert find_file_kind(str(path)) is FileKind.CASE
    checked = check_case_file(str(path))
    assert checked.is_sound
    assert "reward 1.0, entry 3 of 5" in checked.summary
    assert "own-page" in {found.code for found in checked.diagnostics}


@pytest.mark.parametrize("forgery", FORGERIES, ids=lambda forgery: forgery.name)
def test_a_forgery_is_seen(page: bytes, forgery: Forgery, tmp_path: Path) -> None:
    path = tmp_path / "case.html"
    forged = forgery.forge(page)
    assert forged != page
    path.write_bytes(forged)
    assert forgery.code in codes_of(path)


def test_a_page_that_was_cut_anywhere_is_never_sound(page: bytes, tmp_path: Path) -> None:
    path = tmp_path / "case.html"
    for end in range(1000, len(page) - 1, len(page) // 40):
        path.write_bytes(page[:end])
        assert codes_of(path) & {"damaged", "page-differs"}


def test_the_same_position_gives_the_same_bytes(tmp_path: Path) -> None:
    with seal_case(tmp_path) as ledger:
        first = page_of(ledger)
        assert page_of(ledger) == first
        ledger.note("something else", author="ana")
        assert page_of(ledger) != first


def test_a_ledger_made_anew_with_another_key_is_seen_by_the_key_alone(tmp_path: Path) -> None:
    (tmp_path / "forger").mkdir()
    path = tmp_path / "case.html"
    path.write_bytes(make_page(tmp_path / "forger"))
    (tmp_path / "owner").mkdir()
    true_key = find_key(tmp_path / "owner").verifier
    assert codes_of(path) == set()
    assert codes_of(path, str(true_key)) == {"bad-signature"}
    assert codes_of(path, str(find_key(tmp_path / "forger").verifier)) == set()


def test_a_cosigned_checkpoint_is_proven_under_and_checked(tmp_path: Path) -> None:
    witness = make_key(tmp_path / "witness", "example.org/witness")
    with seal_case(tmp_path) as ledger:
        checkpoint = cosign(ledger.refresh(), witness, 1_700_000_000)
        made = make_case(ledger, ledger.find(TRIAL), checkpoint, largest=2_000_000)
    path = tmp_path / "case.html"
    path.write_bytes(made.page)
    assert codes_of(path, str(witness.cosigner)) == set()
    checked = check_case_file(str(path), [str(witness.cosigner)])
    assert any("cosigned by" in str(found) for found in checked.diagnostics)


def test_a_trial_that_is_not_under_the_checkpoint_is_refused(tmp_path: Path) -> None:
    with seal_case(tmp_path) as ledger:
        older = ledger.refresh()
        seal_files(ledger, "later", {})
        ledger.refresh()
        assert make_case(ledger, ledger.find(TRIAL), older, largest=LARGEST).opened.record
        with pytest.raises(LedgerError, match="entry 5; the checkpoint has 5"):
            make_case(ledger, ledger.find("later"), older, largest=LARGEST)


def test_a_checkpoint_from_before_evidence_was_withheld_is_refused(tmp_path: Path) -> None:
    with seal_case(tmp_path) as ledger:
        older = ledger.refresh()
        ledger.withhold(ledger.find(TRIAL), reason="a key", author="ana", evidence=["result.json"])
        ledger.refresh()
        with pytest.raises(LedgerError, match="use a newer one"):
            make_case(ledger, ledger.find(TRIAL), older, largest=LARGEST)


def test_what_is_too_large_is_named_and_not_embedded(tmp_path: Path) -> None:
    noise = random.Random(8).randbytes(200_000)
    with seal_case(tmp_path, {**FILES, "artifacts/big.bin": noise}) as ledger:
        size = len(page_of(ledger))
        smaller = page_of(ledger, largest=size - 1)
    assert len(smaller) < size
    left_out = read_data(smaller)["left_out"]
    assert [each["why"] for each in left_out] == ["size"]
    path = tmp_path / "case.html"
    path.write_bytes(smaller)
    checked = check_case_file(str(path))
    assert checked.is_sound
    assert any("artifacts/big.bin: not in the page" in each for each in checked.unchecked)


def test_a_page_that_cannot_be_small_enough_is_refused(tmp_path: Path) -> None:
    with seal_case(tmp_path) as ledger, pytest.raises(InputError, match="larger --max-size"):
        page_of(ledger, largest=10_000)


def test_withheld_evidence_is_said_to_be_withheld(tmp_path: Path) -> None:
    with seal_case(tmp_path) as ledger:
        row = ledger.find(TRIAL)
        ledger.withhold(row, reason="a key", author="ana", evidence=["result.json"])
        path = tmp_path / "case.html"
        path.write_bytes(page_of(ledger))
    checked = check_case_file(str(path))
    assert checked.is_sound
    assert any("result.json: not in the page (withheld)" in each for each in checked.unchecked)


def test_a_withheld_trial_is_refused(tmp_path: Path) -> None:
    with seal_case(tmp_path) as ledger:
        ledger.withhold(ledger.find(TRIAL), reason="a key", author="ana")
        with pytest.raises(LedgerError, match="withheld"):
            page_of(ledger)


def test_missing_evidence_is_damage(tmp_path: Path) -> None:
    with seal_case(tmp_path) as ledger:
        digest = next(file.sha256 for file in ledger.entry(3).evidence)  # type: ignore[union-attr]
        artifact_path(ledger, digest).unlink()
        with pytest.raises(MissingArtifactError):
            page_of(ledger)


@pytest.mark.parametrize("owned", OWNED, ids=lambda owned: owned.name)
def test_a_sealed_reward_must_follow_from_its_files(
    owned: Owned, owned_pages: dict[str, bytes], tmp_path: Path
) -> None:
    path = tmp_path / "case.html"
    path.write_bytes(owned_pages[owned.name])
    assert codes_of(path) == ({owned.code} if owned.code else set())


def test_a_reward_whose_file_was_left_out_cannot_be_shown(page: bytes, tmp_path: Path) -> None:
    path = tmp_path / "case.html"
    path.write_bytes(redo(page, drop_file("verifier/reward.txt", "size")))
    assert codes_of(path) == {"reward-not-shown"}


def test_a_page_of_another_version_is_unknown(page: bytes, tmp_path: Path) -> None:
    path = tmp_path / "case.html"

    def change(data: dict[str, object]) -> None:
        data["proctor"], data["script"] = "99.0", "0" * 64

    path.write_bytes(edit(page, change))
    checked = check_case_file(str(path))
    assert checked.is_sound
    assert "is unknown to" in checked.unchecked[0]


def test_a_remark_on_another_trial_is_seen(tmp_path: Path) -> None:
    with seal_case(tmp_path) as ledger:
        ledger.review(ledger.find("trial-001"), "fail", reviewer="ana")
        page, other = page_of(ledger), page_of(ledger, "trial-001")
    assert EXPERIMENT.encode() in other
    strange = read_data(other)["entries"][-1]
    path = tmp_path / "case.html"
    path.write_bytes(redo(page, lambda data: data["entries"].append(strange)))
    assert codes_of(path) == {"foreign-entry"}
