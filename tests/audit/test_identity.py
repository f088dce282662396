"""A trial is what it says it is: in name, config, plan and time."""

from collections.abc import Callable
from pathlib import Path

import pytest

from proctor.audit.findings import Finding, Kind
from proctor.audit.identity import audit_identity
from proctor.harbor.job import load_job
from tests.audit.directories import Document, copy_job, edit_config, edit_json, find_trial, make_job


def audit(job: Path) -> list[Finding]:
    return list(audit_identity(load_job(str(job))))


@pytest.fixture
def job(tmp_path: Path) -> Path:
    return copy_job("04-binary-scripted-k5", tmp_path)


@pytest.fixture
def trial(job: Path) -> Path:
    return find_trial(job, "oracle-wrong")


def test_differing_config_keys_are_named(job: Path, trial: Path) -> None:
    edit_json(trial / "config.json", lambda config: config.update(artifacts=["x"], job_id="y"))
    (finding,) = audit(job)
    assert finding.message.endswith("in result.json: artifacts, job_id")


def test_a_config_that_is_no_object_is_found(job: Path, trial: Path) -> None:
    (trial / "config.json").write_text("[]")
    (finding,) = audit(job)
    assert (finding.kind, finding.path) == (Kind.EDITED_CONFIG, f"{trial}/config.json")
    assert "the documents" in finding.message


def test_a_config_that_cannot_be_read_is_a_torn_file(job: Path, trial: Path) -> None:
    (trial / "config.json").unlink()
    (trial / "config.json").mkdir()
    (finding,) = audit(job)
    assert finding.kind is Kind.TORN_FILE
    assert finding.message == f"{trial}/config.json: cannot be read: Is a directory"


def test_a_trial_without_config_file_is_a_note(job: Path, trial: Path) -> None:
    (trial / "config.json").unlink()
    assert [finding.kind for finding in audit(job)] == [Kind.NO_PLAN]


def test_phases_of_another_shape_are_a_torn_file(job: Path, trial: Path) -> None:
    edit_json(trial / "result.json", lambda found: found.update(agent_setup="quick"))
    (finding,) = audit(job)
    assert finding.kind is Kind.TORN_FILE
    assert "not as harbor writes it" in finding.message


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda config: config["verifier"].update(max_timeout_sec=1.0), "verifier.max_timeout_sec"),
        (lambda config: config["agent"].update(override_timeout_sec=9), "override_timeout_sec"),
        (lambda config: config["environment"].update(override_cpus=64), "override_cpus"),
        (lambda config: config["task"].update(source="other"), "source"),
    ],
)
def test_a_config_beyond_the_plan_is_found(
    job: Path, trial: Path, change: Callable[[Document], object], message: str
) -> None:
    edit_config(trial, change)
    (finding,) = audit(job)
    assert (finding.kind, finding.path) == (Kind.EDITED_CONFIG, f"{trial}/result.json")
    assert message in finding.message
    assert message in finding.found
    assert message in finding.expected


def test_a_plan_of_another_schema_is_not_held_against_a_trial(job: Path, trial: Path) -> None:
    edit_config(trial, lambda config: config["task"].update(source="other"))
    edit_json(job / "lock.json", lambda lock: lock.update(schema_version=2))
    (note,) = audit(job)
    assert (note.kind, note.path) == (Kind.NO_PLAN, f"{job}/lock.json")
    assert note.message == "schema_version is 2; expected 1 or 3 to compare configs with it"


def test_a_plan_of_another_shape_is_not_held_against_a_trial(job: Path, trial: Path) -> None:
    edit_config(trial, lambda config: config["task"].update(source="other"))
    edit_json(job / "lock.json", lambda lock: lock.update(schema_version="one"))
    assert audit(job) == []


def test_a_trial_that_is_not_in_the_plan_is_not_judged_here(job: Path, trial: Path) -> None:
    edit_config(trial, lambda config: config["task"].update(path="tasks/elsewhere"))
    assert audit(job) == []


def test_a_custom_agent_may_call_itself_anything(tmp_path: Path) -> None:
    job = make_job(tmp_path / "job", {"a": ["1"]})
    change: Callable[[Document], object] = lambda config: config.update(  # noqa: E731
        agent={"name": "x", "import_path": "mine:Agent", "model_name": "model"}
    )
    edit_config(find_trial(job, "a"), change)
    assert audit(job) == []


@pytest.mark.parametrize("model", ["model-x", "acme/model-x"])
def test_a_model_counts_with_or_without_its_provider(job: Path, model: str) -> None:
    for path in job.glob("*/result.json"):
        edit_json(path, lambda found: found["agent_info"]["model_info"].update(name=model))
    assert audit(job) == []


@pytest.mark.parametrize("change", [{"name": "other"}, {"model_info": None}])
def test_an_agent_is_one_and_the_same_in_all_its_trials(
    job: Path, trial: Path, change: Document
) -> None:
    edit_json(trial / "result.json", lambda found: found["agent_info"].update(change))
    (finding,) = audit(job)
    assert (finding.kind, finding.path) == (Kind.EDITED_CONFIG, f"{trial}/result.json")
    assert finding.expected == "scripted with model-x"


@pytest.mark.parametrize(
    ("started", "finished", "kinds"),
    [
        ("2026-11-15T18:00:00.1Z", "2026-11-15T18:00:00Z", [Kind.IMPOSSIBLE_TIME]),
        ("2026-11-15T18:00:00Z", "2026-11-15T18:00:00.1Z", []),
        ("2026-11-15T18:00:00.1Z", "2026-11-15T17:00:00.1", []),
        ("2026-11-15T18:00:00.2Z", "2026-11-15T18:00:00.1Z", [Kind.IMPOSSIBLE_TIME]),
        (None, "2026-11-15T18:00:00.1Z", []),
    ],
)
def test_times_are_compared_where_they_can_be(
    tmp_path: Path, started: str | None, finished: str, kinds: list[Kind]
) -> None:
    job = make_job(tmp_path / "job", {"a": ["1"]})
    times = {"started_at": started, "finished_at": finished}
    edit_json(find_trial(job, "a") / "result.json", lambda found: found.update(times))
    assert [finding.kind for finding in audit(job)] == kinds


def test_a_phase_that_ends_before_it_begins_is_found(job: Path, trial: Path) -> None:
    def change(found: Document) -> None:
        phase = found["agent_execution"]
        phase["started_at"], phase["finished_at"] = phase["finished_at"], phase["started_at"]

    edit_json(trial / "result.json", change)
    (finding,) = audit(job)
    assert finding.kind is Kind.IMPOSSIBLE_TIME
    assert finding.message.startswith("agent_execution lasted from 2026-11-15T18:56:35.606360Z to ")
