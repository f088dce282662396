"""What comes from inside takes no place of what the agent wrote on the host."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from proctor.harbor.trial_result import TrialResult
from proctor.importers.harbor_trial import Wish, make_record
from proctor.trial.agent import AgentContext
from proctor.trial.environment import Environment
from proctor.trial.merging import merge_tree
from tests.trial.rooms import PlainEnvironment, WatchedEnvironment
from tests.trial.sitters import Deed, Stage, make_plan, run_inside, write_task

HONEST = json.dumps({"step": 1, "role": "assistant", "content": "I tried."})
FORGED = json.dumps({"step": 1, "role": "assistant", "content": "I did it all."})


def run(stage: Stage) -> TrialResult:
    return asyncio.run(stage.run())


def write_outside(text: str, inside: str) -> Deed:
    """An agent that runs on the host and traces itself there, while a command runs inside."""

    async def deed(environment: Environment, context: AgentContext) -> None:
        trace = environment.trial_paths.agent_dir / "trajectory.jsonl"
        trace.write_text(f"{text}\n")
        (trace.parent / "deep").mkdir()
        (trace.parent / "deep/own.txt").write_text("own\n")
        await environment.exec(inside)

    return deed


def found_by(stage: Stage) -> list[dict[str, Any]]:
    path = stage.plan.paths.findings_path
    return json.loads(path.read_text()) if path.exists() else []


@pytest.mark.parametrize("kind", [PlainEnvironment, WatchedEnvironment])
def test_a_trace_forged_inside_does_not_take_the_place_of_the_hosts(
    tmp_path: Path, kind: type[PlainEnvironment]
) -> None:
    inside = f"echo '{FORGED}' > /logs/agent/trajectory.jsonl; mkdir /logs/agent/deep; "
    inside += "echo other > /logs/agent/deep/own.txt; echo new > /logs/agent/deep/new.txt"
    plan = make_plan(write_task(tmp_path / "task"), tmp_path / "jobs")
    stage = Stage(plan, write_outside(HONEST, inside), kind)
    run(stage)
    agent = plan.paths.agent_dir
    assert (agent / "trajectory.jsonl").read_text() == f"{HONEST}\n"
    assert (agent / "trajectory.jsonl.inside").read_text() == f"{FORGED}\n"
    assert (agent / "deep/own.txt").read_text() == "own\n"
    assert (agent / "deep/own.txt.inside").read_text() == "other\n"
    assert (agent / "deep/new.txt").read_text() == "new\n"
    (finding,) = found_by(stage)
    assert finding["code"] == "logs-differ"
    assert finding["detail"]["files"] == ["deep/own.txt", "trajectory.jsonl"]
    assert not list(plan.paths.trial_dir.glob(".*"))


def test_the_same_file_inside_and_outside_is_one(tmp_path: Path) -> None:
    plan = make_plan(write_task(tmp_path / "task"), tmp_path / "jobs")
    inside = f"echo '{HONEST}' > /logs/agent/trajectory.jsonl; touch /logs/agent/log.txt"
    stage = Stage(plan, write_outside(HONEST, inside))
    run(stage)
    names = sorted(path.name for path in plan.paths.agent_dir.iterdir())
    assert names == ["deep", "log.txt", "trajectory.jsonl"]
    assert found_by(stage) == []


def test_a_link_is_moved_and_never_followed(tmp_path: Path) -> None:
    source, target, secret = tmp_path / "source", tmp_path / "target", tmp_path / "secret"
    for directory in (source, target, secret):
        directory.mkdir()
    (source / "a").symlink_to(secret)
    (source / "b").write_text("b")
    (source / "d").mkdir()
    (source / "d/x").write_text("x")
    (target / "a").mkdir()
    (target / "b").symlink_to(secret / "b")
    (target / "d").symlink_to(secret)
    assert merge_tree(str(source), str(target)) == ["a", "b", "d"]
    assert (target / "a.inside").is_symlink()
    assert (target / "b.inside").read_text() == "b"
    assert (target / "d.inside/x").read_text() == "x"
    assert list(secret.iterdir()) == []


def test_every_differing_file_gets_a_name_of_its_own(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    source.mkdir()
    target.mkdir()
    for text in ("second", "third"):
        (source / "a").write_text(text)
        (target / "a").write_text("first")
        assert merge_tree(str(source), str(target)) == ["a"]
    texts = {path.name: path.read_text() for path in target.iterdir()}
    assert texts == {"a": "first", "a.inside": "second", "a.inside.2": "third"}


@pytest.mark.parametrize("name", ["a.png", "artifacts/a.png", "/workspace/artifacts/a.png"])
def test_media_of_a_trace_in_the_workspace_are_pinned(tmp_path: Path, name: str) -> None:
    task = write_task(tmp_path / "task")
    line = json.dumps({"step": 1, "role": "assistant", "content": "look", "media": [name]})
    command = f"echo '{line}' > /workspace/trajectory.jsonl; mkdir /workspace/artifacts; "
    command += "echo png > /workspace/artifacts/a.png"
    stage = Stage(make_plan(task, tmp_path / "jobs"), run_inside(command))
    run(stage)
    trial = str(stage.plan.paths.trial_dir)
    made = make_record(Wish(trial=trial, experiment="exp", task=str(task)))
    assert [file.path for file in made.pins.media] == ["agent/artifacts/a.png"]
    assert not [note for note in made.notes if "a.png" in note]
