"""Sealed trials as ATIF: originals as they are, everything else converted, and what is lost."""

import json
from pathlib import Path

import pytest

from tests.cli.programs import Proctor
from tests.exchange.sealed import (
    ATIF,
    CONVERSATION,
    CONVERSED,
    EXPERIMENT,
    TRAJECTORY,
    atif,
    lost_of,
    seal_job,
    small_ledger,
    trajectory,
    tree_of,
)
from tests.ledger.trials import open_ledger

PICTURE = b"\x89PNG\r\n\x1a\nx"


def test_real_documents_come_back_byte_for_byte(proctor: Proctor, tmp_path: Path) -> None:
    with open_ledger(tmp_path) as ledger:
        trials = seal_job(ledger, "14-two-models")
    target = tmp_path / "out"
    ran = proctor("export", "--ledger", tmp_path / "ledger", "--format", "atif", "-o", target)
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.startswith(f"{target}: 12 trials; ")
    for trial in trials:
        original = (trial / ATIF).read_bytes()
        assert (target / "job-14" / trial.name / "trajectory.json").read_bytes() == original


def test_the_original_goes_before_our_own_trajectory(proctor: Proctor, tmp_path: Path) -> None:
    files = {TRAJECTORY: trajectory(), ATIF: atif()}
    ledger = small_ledger(tmp_path, {"both": files})
    proctor("export", "--ledger", ledger, "--format", "atif", "-o", tmp_path / "out")
    made = tmp_path / "out" / EXPERIMENT / "both" / "trajectory.json"
    assert made.read_bytes() == atif()


def test_other_traces_become_documents_with_agent_and_sums(
    proctor: Proctor, tmp_path: Path
) -> None:
    spoken = (CONVERSED / "openai.jsonl").read_bytes()
    ledger = small_ledger(tmp_path, {"a": {TRAJECTORY: trajectory()}, "b": {CONVERSATION: spoken}})
    ran = proctor("export", "--ledger", ledger, "--format", "atif", "-o", tmp_path / "out")
    assert ran.code == 0
    made = json.loads((tmp_path / "out" / EXPERIMENT / "a" / "trajectory.json").read_text())
    assert made["schema_version"] == "ATIF-v1.7"
    assert made["session_id"] == "a"
    assert made["steps"][1]["tool_calls"][0]["arguments"] == {"command": "ls /nowhere"}
    said = json.loads((tmp_path / "out" / EXPERIMENT / "b" / "trajectory.json").read_text())
    assert [step["source"] for step in said["steps"]] == ["system", "user", "agent", "agent"]
    lost = lost_of(tmp_path / "out" / "losses.jsonl", f"{EXPERIMENT}/a")
    assert lost["record.evaluation"] == "there is no place for it"
    assert "record.agent.adapter" not in lost
    assert not [path for path in lost if path.startswith("entries")], "all of the trace came back"


def test_each_step_has_its_own_document(proctor: Proctor, tmp_path: Path) -> None:
    files = {f"steps/{step}/{TRAJECTORY}": trajectory() for step in ("one", "two words")}
    ledger = small_ledger(tmp_path, {"several": files})
    proctor("export", "--ledger", ledger, "--format", "atif", "-o", tmp_path / "out")
    names = sorted(tree_of(tmp_path / "out" / EXPERIMENT / "several"))
    assert names[0] == "one/trajectory.json"
    assert names[1].startswith("two-words-")


def test_what_a_document_shows_lies_beside_it(proctor: Proctor, tmp_path: Path) -> None:
    document = json.loads(atif())
    parts = [
        {"type": "image", "source": {"media_type": "image/png", "path": path}}
        for path in ("images/a.png", "../../../escape.png", "images/gone.png")
    ]
    document["steps"][0]["message"] = parts
    files = {ATIF: json.dumps(document).encode(), "agent/images/a.png": PICTURE}
    ledger = small_ledger(tmp_path, {"seen": files})
    ran = proctor("export", "--ledger", ledger, "--format", "atif", "-o", tmp_path / "out")
    assert ran.code == 0
    home = f"{EXPERIMENT}/seen"
    there = tree_of(tmp_path / "out")
    assert set(there) == {
        "losses.jsonl",
        f"{home}/trajectory.json",
        f"{home}/images/a.png",
    }
    assert there[f"{home}/images/a.png"] == PICTURE
    assert lost_of(tmp_path / "out" / "losses.jsonl", home)["media"].endswith("the evidence")


def test_a_torn_trace_is_salvaged_and_the_rest_is_lost(proctor: Proctor, tmp_path: Path) -> None:
    ledger = small_ledger(tmp_path, {"torn": {TRAJECTORY: trajectory() + b'{"role": "assis'}})
    ran = proctor("export", "--ledger", ledger, "--format", "atif", "-o", tmp_path / "out")
    assert ran.code == 0
    lost = lost_of(tmp_path / "out" / "losses.jsonl", f"{EXPERIMENT}/torn")
    assert "line 6" in lost


def test_a_document_that_breaks_the_rules_is_written_anew(proctor: Proctor, tmp_path: Path) -> None:
    document = json.loads(atif())
    document["steps"][0] |= {"step_id": 7, "mood": "good"}
    ledger = small_ledger(tmp_path, {"bad": {ATIF: json.dumps(document).encode()}})
    ran = proctor("export", "--ledger", ledger, "--format", "atif", "-o", tmp_path / "out")
    assert ran.code == 0
    made = json.loads((tmp_path / "out" / EXPERIMENT / "bad" / "trajectory.json").read_text())
    assert [step["step_id"] for step in made["steps"]] == [1, 2, 3]
    lost = lost_of(tmp_path / "out" / "losses.jsonl", f"{EXPERIMENT}/bad")
    assert [path for path in lost if path.endswith("mood")]


def test_a_trial_without_a_trace_is_left_out_and_said(proctor: Proctor, tmp_path: Path) -> None:
    files = {"a": {TRAJECTORY: trajectory()}, "b": {"log.txt": b"x"}}
    ledger = small_ledger(tmp_path, files)
    ran = proctor("export", "--ledger", ledger, "--format", "atif", "-o", tmp_path / "out")
    assert ran.code == 3
    assert f"left out: {EXPERIMENT}/b: it left no trace" in ran.out
    alone = proctor(
        "export",
        "--ledger",
        ledger,
        "--format",
        "atif",
        "-o",
        tmp_path / "none",
        "--where",
        "trial=b",
    )
    assert alone.code == 2
    assert "none of these trials can be exported in this format" in alone.err
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize("form", ["atif", "inspect", "parquet"])
def test_the_same_ledger_gives_the_same_bytes(proctor: Proctor, tmp_path: Path, form: str) -> None:
    with open_ledger(tmp_path) as ledger:
        seal_job(ledger, "16-agent-nonzero")
    made = []
    for name in ("one", "two"):
        target = tmp_path / name / "out"
        target.parent.mkdir()
        ran = proctor("export", "--ledger", tmp_path / "ledger", "--format", form, "-o", target)
        assert ran.code == 0
        made.append(tree_of(tmp_path / name))
    assert made[0] == made[1]
    assert not [name for name in made[0] if name.endswith(".tmp")]
