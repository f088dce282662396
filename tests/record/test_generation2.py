"""A trial of the second generation and its manifest, as one record."""

import json
import shutil
from datetime import UTC, datetime
from pathlib import Path

import pytest

from proctor.errors import RecordError
from proctor.record.generation2 import parse_g2
from proctor.record.read import load_record
from tests.record.samples import DATA, Json, spelled, tree

FOLDER = DATA / "g2" / "experiment-001"
TRIAL = "g2/experiment-001/trial-004.json"
TRIAL_BYTES = (FOLDER / "trial-004.json").read_bytes()
(MANIFEST,) = (FOLDER / "_runs").iterdir()
MANIFEST_BYTES = MANIFEST.read_bytes()


def test_both_documents_become_one_record() -> None:
    loaded = load_record(FOLDER / "trial-004.json")
    record = loaded.record
    assert loaded.generation == "G2"
    assert (record.trial_id, record.experiment_id) == ("trial-004", "experiment-001")
    assert record.dataset_id == f"repository:aec-core@{'b' * 40}:datasets/aec-core.toml"
    assert record.timestamp == datetime(2026, 8, 20, 9, tzinfo=UTC)
    assert record.agent.adapter_revision == "git-sha-adapter"
    assert record.environment.tool_versions == {"codes_search": "abc123"}
    assert record.inputs.input_files is not None
    assert record.inputs.input_files[0].path.endswith(record.inputs.input_files[0].hash)
    assert (record.outputs.trajectory_path or "").startswith("artifacts/sha256/")
    assert record.evaluation.reward == 0.75
    assert record.cost is not None
    assert record.cost.tokens_in == 1200
    assert record.completeness == "partial"


def test_what_has_no_place_is_listed_and_the_bytes_stay() -> None:
    loaded = load_record(FOLDER / "trial-004.json")
    assert loaded.without_place == (
        "run_id",
        "attempt",
        "execution_status",
        "evaluation_status",
        "evidence_status",
        "completed_at",
        "input.task_kind",
        "input.visibility",
        "output.artifacts",
        "output.terminated",
        "output.final_reason",
        "manifest.source",
        "manifest.provider_route",
        "manifest.expected_authorities",
        "evaluation.stewardship",
        "cost.model_calls",
    )
    assert (loaded.original, loaded.manifest) == (TRIAL_BYTES, MANIFEST_BYTES)
    assert loaded.diagnostics == ()


def test_a_trial_without_its_manifest(tmp_path: Path) -> None:
    alone = tmp_path / "trial-004.json"
    shutil.copy(FOLDER / "trial-004.json", alone)
    with pytest.raises(RecordError, match="has no manifest of its run 'experiment-001:tool_loop"):
        load_record(alone)
    loaded = load_record(alone, salvage=True)
    assert [note.code for note in loaded.diagnostics] == ["no-manifest"]
    assert loaded.record.agent.model == loaded.record.experiment_id == "unknown"
    assert loaded.record.evaluation.reward == 0.75


def test_another_runs_manifest_is_refused() -> None:
    other = MANIFEST_BYTES.replace(b'claude-sonnet-4"', b'gpt"')
    assert other != MANIFEST_BYTES
    with pytest.raises(RecordError, match="the manifest belongs to 'experiment-001:tool_loop:gpt'"):
        parse_g2(TRIAL_BYTES, other, "t", salvage=True)


def test_a_trial_that_was_not_scored_has_no_reward() -> None:
    document = tree(TRIAL, evaluation=None, evaluation_status="pending")
    loaded = parse_g2(spelled(document), MANIFEST_BYTES, "t")
    assert loaded.record.evaluation.reward is None
    assert loaded.record.evaluation.validity.errors == ("not scored: evaluation_status is pending",)


def test_a_trial_that_still_runs_is_read() -> None:
    changes = {"evaluation": None, "output": None, "completed_at": None}
    statuses = {"execution_status": "running", "evaluation_status": "pending"}
    document = tree(TRIAL, **changes, **statuses)
    record = parse_g2(spelled(document), MANIFEST_BYTES, "t").record
    assert record.outputs.trajectory_path is None


_DIGEST = "e" * 64
ARTIFACT = {
    "artifact_id": f"artifacts/sha256/ee/{_DIGEST}",
    "sha256": _DIGEST,
    "size_bytes": 1,
    "media_type": "application/zstd",
}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"execution_status": "running"}, "is running; expected no completed_at"),
        ({"completed_at": None}, "is completed; expected completed_at"),
        ({"output": None}, "is completed; expected an output"),
        ({"evaluation": None}, "is completed; expected an evaluation"),
        ({"evaluation_status": "pending"}, "is pending; expected no evaluation"),
        ({"started_at": "2026-08-20T09:00:00"}, "has no offset from UTC; expected one"),
        ({"timing.total_seconds": 12.6}, "is 12.6; expected 12.5, from started_at to completed_at"),
        ({"attempt": 0}, "attempt is 0; expected greater than or equal to 1"),
        ({"output.trajectory.sha256": "x"}, "expected 64 lower-case hex digits"),
        ({"output.trajectory.artifact_id": "x"}, "artifact_id is 'x'; expected 'artifacts/sha256/"),
        ({"output.trajectory.size_bytes": 0}, "size_bytes is 0; expected greater than 0"),
    ],
)
def test_the_generations_own_rules_hold(changes: Json, message: str) -> None:
    with pytest.raises(RecordError) as caught:
        parse_g2(spelled(tree(TRIAL, **changes)), MANIFEST_BYTES, "t", salvage=True)
    assert message in str(caught.value)


def test_unknown_keys_are_problems_that_salvage_lists() -> None:
    trial = spelled(tree(TRIAL, colour=1))
    manifest = spelled({**json.loads(MANIFEST_BYTES), "shape": 2})
    with pytest.raises(RecordError, match="t: colour is not a key of the format"):
        parse_g2(trial, manifest, "t")
    loaded = parse_g2(trial, manifest, "t", salvage=True)
    assert {"colour", "manifest.shape"} <= set(loaded.without_place)
    assert [note.code for note in loaded.diagnostics] == ["unknown-key", "unknown-key"]


@pytest.mark.parametrize(
    ("dataset", "name"),
    [
        (None, None),
        (
            {"kind": "bundle", "dataset_id": "d", "artifact": ARTIFACT},
            f"bundle:d@{ARTIFACT['sha256']}",
        ),
    ],
)
def test_a_dataset_is_named_in_one_text(dataset: Json | None, name: str | None) -> None:
    manifest = spelled({**json.loads(MANIFEST_BYTES), "dataset": dataset})
    assert parse_g2(TRIAL_BYTES, manifest, "t").record.dataset_id == name


@pytest.mark.parametrize("dataset", [{"kind": "other"}, {"kind": "repository"}, {"kind": "bundle"}])
def test_a_dataset_that_says_nothing_gets_no_name(dataset: Json) -> None:
    manifest = spelled({**json.loads(MANIFEST_BYTES), "dataset": dataset})
    with pytest.raises(RecordError, match="dataset"):
        parse_g2(TRIAL_BYTES, manifest, "t", salvage=True)


def test_a_run_id_that_is_no_text_is_refused_and_no_file_is_looked_for(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_bytes(spelled(tree(TRIAL, run_id=["../../x"])))
    with pytest.raises(RecordError, match="run_id is an array; expected a valid string"):
        load_record(path, salvage=True)
