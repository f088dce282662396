"""A ledger and jobs of one commit, frozen: what they gave then, they give for ever.

`every-kind` is the ledger, with an entry of every kind that existed then, and its jobs. `frozen`
has claims and proofs made from it, a cosigned copy of its checkpoint, a small ledger in which
withheld bytes were restored, and `expected.json`: the numbers, as that commit gave them. Only
numbers and digests are compared, so that texts and JSON keys can change; this module then
changes, and never `expected.json`.
"""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.cli.programs import Proctor

DATA = Path(__file__).resolve().parent.parent / "data"
LEDGERS = DATA / "ledgers"
FROZEN = LEDGERS / "frozen"
EXPECTED = json.loads((FROZEN / "expected.json").read_text("utf-8"))
OUR_JOBS = ("candidate", "nightly")
CLAIMS = ("06-errors-oracle-k1", "candidate", "nightly")


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A copy of everything: commands write an index and locks."""
    shutil.copytree(LEDGERS / "every-kind", tmp_path / "kept")
    shutil.copytree(FROZEN, tmp_path / "kept", dirs_exist_ok=True)
    return tmp_path / "kept"


@pytest.mark.parametrize("name", ["ledger", "restored"])
def test_the_ledger_verifies_and_has_its_root(name: str, place: Path, proctor: Proctor) -> None:
    older = "older-checkpoint" if name == "ledger" else "restored-older-checkpoint"
    since = [word for path in (older, "cosigned-checkpoint") for word in ("--since", place / path)]
    ran = proctor(
        "ledger", "verify", "--ledger", place / name, "--key", place / "key.pub", "--json",
        *(since if name == "ledger" else since[:2]),
    )  # fmt: skip
    assert ran.code == 0, ran.out + ran.err
    found = json.loads(ran.out)
    facts = {key: found[key] for key in ("is_sound", "origin", "size", "root", "withheld")}
    assert facts == EXPECTED[name]["verify"]


@pytest.mark.parametrize("name", ["ledger", "restored"])
def test_the_trials_are_listed_with_their_rewards(name: str, place: Path, proctor: Proctor) -> None:
    rows = json.loads(proctor("ledger", "list", "--ledger", place / name, "--json").out)
    keys = ("experiment_id", "trial_id", "record", "status", "reward", "model", "review")
    # An entry that was withheld without naming a trial has a row too, which is no trial of anyone.
    found = {str(row["seq"]): _pick(row, *keys) for row in rows if row["experiment_id"]}
    assert found == EXPECTED[name]["trials"]


@pytest.mark.parametrize("dataset", EXPECTED["ledger"]["boards"])
def test_the_boards_have_their_numbers(dataset: str, place: Path, proctor: Proctor) -> None:
    ran = proctor("board", "--ledger", place / "ledger", "--dataset", dataset, "--json")
    board = json.loads(ran.out)
    found = {row["row"]: _board_facts(row) for each in board["sections"] for row in each["rows"]}
    assert found == EXPECTED["ledger"]["boards"][dataset]


def _board_facts(row: dict[str, Any]) -> list[Any]:
    counts = _pick(row["denominators"], "listed", "counted", "superseded", "scored", "errored")
    return [
        *_pick(row, "agent", "model", "experiments", "score", "passed", "pass_rate", "n_tasks"),
        *counts,
        row["cost_usd"]["known"],
    ]


@pytest.mark.parametrize("experiment", EXPECTED["ledger"]["gates"])
def test_the_gate_counts_the_same(experiment: str, place: Path, proctor: Proctor) -> None:
    ran = proctor(
        "gate", experiment, "--ledger", place / "ledger", "--min-mean", "0.5", "--json"
    )  # fmt: skip
    groups = json.loads(ran.out)["runs"][0]["groups"]
    found = [
        _pick(each, "key", "run", "scored", "mean", "mean_scored", "passed") for each in groups
    ]
    assert [ran.code, found] == EXPECTED["ledger"]["gates"][experiment]


@pytest.mark.parametrize("experiment", EXPECTED["ledger"]["reports"])
def test_the_report_counts_the_same(experiment: str, place: Path, proctor: Proctor) -> None:
    ran = proctor("report", experiment, "--ledger", place / "ledger", "--json")
    keys = ("listed", "superseded", "counted", "sealed", "diagnostic", "scored")
    means = ("mean_errors_as_zero", "mean_errors_excluded")
    found = [
        [each["agent"], each["model"], *_pick(each["scores"]["account"], *keys, *means)]
        for each in json.loads(ran.out)["groups"]
    ]
    assert found == EXPECTED["ledger"]["reports"][experiment]


@pytest.mark.parametrize(
    ("document", "key"),
    [
        *((f"{name}.claim.json.zst", "key.pub") for name in CLAIMS),
        ("inclusion.proof.json", "key.pub"),
        ("growth.proof.json", None),
        ("older-checkpoint", "first-key.pub"),
        ("cosigned-checkpoint", "key.pub"),
    ],
)
def test_what_was_made_from_it_checks(
    document: str, key: str | None, place: Path, proctor: Proctor
) -> None:
    shutil.rmtree(place / "ledger")
    ran = proctor("check", place / document, *(["--key", place / key] if key else []))
    assert ran.code == 0, ran.out + ran.err


@pytest.mark.parametrize("job", EXPECTED["jobs"])
def test_a_job_scores_and_audits_the_same(job: str, place: Path, proctor: Proctor) -> None:
    parent = place if job in OUR_JOBS else DATA / "harbor"
    score = json.loads(proctor("score", parent / "jobs" / job, "--json").out)
    found = {
        "counts": _pick(score["denominators"], "planned", "run", "scored", "errored"),
        "metrics": {
            key: [each["value"] for each in group["metrics"]]
            for key, group in score["groups"].items()
        },
        "outcome": _pick(score["outcome"], "status", "score", "resolved", "total"),
        "rewards": {each["trial"]: each["rewards"] for each in score["trials"]},
        "exceptions": {each["trial"]: each["exception"] for each in score["trials"]},
        "audit": proctor("audit", parent / "jobs" / job, "--json").code,
    }
    assert found == EXPECTED["jobs"][job]


def _pick(values: dict[str, Any], *keys: str) -> list[Any]:
    return [values[key] for key in keys]
