"""`proctor check`: certificates, by themselves."""

import json
from pathlib import Path

import pytest

from tests.audit.directories import COPIED, Document, copy_job, edit_json
from tests.cli.programs import Proctor


@pytest.fixture
def certificate(proctor: Proctor, tmp_path: Path) -> Path:
    path = tmp_path / "certificate.json"
    proctor("score", COPIED / "01-binary-oracle-k1", "--certificate", path)
    return path


def test_what_follows_is_said_to_follow(proctor: Proctor, certificate: Path) -> None:
    ran = proctor("check", certificate)
    assert ran.code == 0
    assert ran.out.splitlines() == [
        f"{certificate}: certificate: every number follows from its operands: no problem",
    ]


def test_a_changed_number_is_named_to_the_bit(proctor: Proctor, certificate: Path) -> None:
    def change(document: Document) -> None:
        document["groups"][0]["metrics"][0]["result"]["mean"] = "0x1.5555555555556p-1"

    edit_json(certificate, change)
    ran = proctor("check", certificate)
    assert ran.code == 1
    assert ran.out == (
        f"{certificate}: certificate: a number does not follow from its operands: 1 problem\n"
        "  groups[0] oracle__binary.metrics[0].mean.mean: stated "
        "0x1.5555555555556p-1, the operands give 0x1.5555555555555p-1; first differing bit: "
        "fraction bit 1 (bit 1 of 64)\n"
    )


def test_a_script_gets_the_same_answer(proctor: Proctor, certificate: Path) -> None:
    edit_json(certificate, lambda document: document["outcome"].update(total=9))
    ran = proctor("check", certificate, "--json")
    assert ran.code == 1
    problem = "outcome.total: stated 9, the operands give 3"
    document = json.loads(ran.out)
    assert document["sound"] is False
    (first,) = document["checked"]
    assert first["path"] == str(certificate)
    assert (first["thing"], first["sound"], first["unchecked"]) == ("certificate", False, [])
    assert [each["message"] for each in first["diagnostics"]] == [problem]


def test_a_certificate_of_a_metric_that_cannot_be_recomputed_is_not_sound(
    proctor: Proctor, tmp_path: Path
) -> None:
    job = copy_job("01-binary-oracle-k1", tmp_path)
    edit_json(job / "config.json", lambda config: config.update(metrics=[{"type": "uv-script"}]))
    path = tmp_path / "certificate.json"
    proctor("score", job, "--certificate", path)
    ran = proctor("check", path)
    assert ran.code == 1
    assert "  metric uv-script of oracle__binary (carried over) cannot be recomputed" in ran.out


def test_an_operand_that_is_no_number_is_named_with_its_file(
    proctor: Proctor, certificate: Path
) -> None:
    edit_json(certificate, lambda document: document["outcome"].update(score="much"))
    ran = proctor("check", certificate)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith(f"proctor: {certificate}: outcome.score: 'much' is not a number")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "an empty file"),
        ('{"format', "torn or not JSON"),
        ("{}", "a JSON document with unknown keys"),
        ('{"format": "x", "profile": "y"}', "not a score certificate"),
        ("[" * 100_000, "torn or not JSON"),
    ],
)
def test_what_is_neither_is_refused_by_name(
    proctor: Proctor, tmp_path: Path, text: str, message: str
) -> None:
    path = tmp_path / "thing.json"
    path.write_text(text)
    ran = proctor("check", path)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith(f"proctor: {path}: ")
    assert message in ran.err


def test_a_certificate_that_mentions_a_record_is_still_one(
    proctor: Proctor, certificate: Path
) -> None:
    edit_json(certificate, lambda document: document.update(later={"trial_id": "trial_id"}))
    assert proctor("check", certificate).code == 0


def test_a_job_is_not_for_check(proctor: Proctor) -> None:
    ran = proctor("check", COPIED / "01-binary-oracle-k1")
    assert ran.code == 2
    assert "a job; `proctor audit` checks a job with its trials" in ran.err


def test_a_file_that_is_not_there_is_refused(proctor: Proctor) -> None:
    ran = proctor("check", "absent.json")
    assert (ran.code, ran.err) == (
        2,
        "proctor: absent.json: cannot be read: No such file or directory\n",
    )


def test_a_policy_is_not_for_files(proctor: Proctor, certificate: Path) -> None:
    ran = proctor("check", certificate, "--policy", "leaderboard")
    assert (ran.code, ran.out) == (2, "")
    assert f"--policy takes jobs and experiments; {certificate} is a file" in ran.err
