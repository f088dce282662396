"""Ledgers that earlier versions wrote stay readable and verifiable."""

import json
import shutil
from pathlib import Path

import pytest

from tests.cli.programs import Proctor

GENERATIONS = sorted((Path(__file__).parent.parent / "data" / "ledgers").glob("generation-*"))


@pytest.fixture(params=GENERATIONS, ids=lambda path: path.name)
def kept(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A copy of what one version left: a ledger, and what was made from it."""
    place = tmp_path / "kept"
    shutil.copytree(request.param, place)
    return place


def test_the_ledger_is_sound(kept: Path, proctor: Proctor) -> None:
    ran = proctor(
        "ledger", "verify", "--ledger", kept / "ledger", "--key", kept / "first-key.pub",
        "--since", kept / "older-checkpoint", "--since", kept / "cosigned-checkpoint", "--json",
    )  # fmt: skip
    assert ran.code == 0, ran.out + ran.err
    assert json.loads(ran.out)["damage"] == []


def test_its_trials_are_listed(kept: Path, proctor: Proctor) -> None:
    ran = proctor("ledger", "list", "--ledger", kept / "ledger", "--json")
    assert ran.code == 0, ran.err
    statuses = [row["status"] for row in json.loads(ran.out)]
    # 80 trials, and a row for the note that was withheld: it names no trial, so it may be one.
    assert len(statuses) == 81
    assert statuses.count("superseded") == 1
    assert statuses.count("withheld") == 2


@pytest.mark.parametrize(
    ("document", "key"),
    [
        ("older-checkpoint", "first-key.pub"),
        ("cosigned-checkpoint", "witness.pub"),
        ("inclusion.proof.json", "key.pub"),
        ("growth.proof.json", None),
        ("claim.json.zst", "first-key.pub"),
        ("bundle.tar.zst", "first-key.pub"),
    ],
)
def test_what_was_made_from_it_is_checked(
    kept: Path, proctor: Proctor, document: str, key: str | None
) -> None:
    shutil.rmtree(kept / "ledger")
    ran = proctor("check", kept / document, *(["--key", kept / key] if key else []))
    assert ran.code == 0, ran.out + ran.err


def test_its_bundle_is_imported(kept: Path, proctor: Proctor) -> None:
    ran = proctor("import", "bundle", kept / "bundle.tar.zst", "--ledger", kept / "new")
    assert ran.code == 0, ran.err
    assert proctor("ledger", "verify", "--ledger", kept / "new").code == 0
