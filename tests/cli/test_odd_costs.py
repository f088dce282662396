"""Costs and tokens that cannot be: not known, said so, and no reason for any command to fail."""

import json
import re
from pathlib import Path

import pytest

from tests.audit.directories import copy_job
from tests.cli.programs import Proctor

ODD = ["1e308", "1e999", "-1", "NaN", "Infinity", "1" + "0" * 400, '"cheap"', "[1]", "true"]


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Each trial has another odd cost, or another odd count of tokens."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("PROCTOR_LEDGER", str(tmp_path / "ledger"))
    copied = copy_job("04-binary-scripted-k5", tmp_path)
    values = [("cost_usd", value) for value in ODD]
    values += [("n_input_tokens", value) for value in ODD[5:]]
    for trial, (key, value) in zip(sorted(copied.glob("*__*")), values, strict=False):
        path = trial / "result.json"
        path.write_text(re.sub(rf'(?<="{key}": )[^,\n]+', value, path.read_text(), count=1))
    return copied


def test_no_command_fails_on_a_cost_that_cannot_be(
    proctor: Proctor, job: Path, tmp_path: Path
) -> None:
    assert proctor("import", "harbor", job).code == 0
    trials = sorted(job.glob("*__*"))
    asked: list[tuple[object, ...]] = [
        ("report", job),
        ("report", job.name),
        ("compare", job, job.name),
        ("board",),
        ("score", job),
        *(("show", trial) for trial in trials[:2]),
    ]
    for words in asked:
        ran = proctor(*words)
        assert (ran.code, ran.err) == (0, ""), (words, ran.err)
    for thing in (job, job.name):
        ran = proctor("gate", thing, "--max-cost-usd", "1", "--json")
        (run,) = json.loads(ran.out)["runs"]
        assert (ran.code, run["cost_usd"]["total"]) == (6, None)
        assert run["cost_usd"]["n_unknown"] >= len(ODD)


def test_an_audit_names_every_one_of_them(proctor: Proctor, job: Path) -> None:
    ran = proctor("audit", job, "--json")
    (document,) = json.loads(ran.out)["jobs"]
    odd = [note for note in document["notes"] if note["kind"] == "odd-usage"]
    assert len(odd) == len(ODD) + len(ODD[5:])
    assert "which is impossible; it is treated as unknown" in odd[0]["message"]
