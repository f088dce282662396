"""What comes from inside takes no place of what the agent wrote on the host."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from proctor.exchange.harbor_trial import RecordRequest, make_record
from proctor.harbor.trial_result import TrialResult
from proctor.trial.agent import AgentContext, AgentOrder
from proctor.trial.collect import merge_tree
from proctor.trial.environment import Environment
from proctor.trial.finding import Finding, FindingCode
from tests.trial.rooms import PlainEnvironment, WatchedEnvironment
from tests.trial.stage import (
    Deed,
    Stage,
    StageAgent,
    load_findings,
    make_spec,
    paths_of,
    run_inside,
    write_task,
)

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
    return load_findings(stage.spec)


@pytest.mark.parametrize("kind", [PlainEnvironment, WatchedEnvironment])
def test_a_trace_forged_inside_does_not_take_the_place_of_the_hosts(
    tmp_path: Path, kind: type[PlainEnvironment]
) -> None:
    inside = f"echo '{FORGED}' > /logs/agent/trajectory.jsonl; mkdir /logs/agent/deep; "
    inside += "echo other > /logs/agent/deep/own.txt; echo new > /logs/agent/deep/new.txt"
    spec = make_spec(write_task(tmp_path / "task"), tmp_path / "jobs")
    stage = Stage(spec, write_outside(HONEST, inside), kind)
    run(stage)
    agent = paths_of(spec).agent_dir
    assert (agent / "trajectory.jsonl").read_text() == f"{HONEST}\n"
    assert (agent / "trajectory.jsonl.inside").read_text() == f"{FORGED}\n"
    assert (agent / "deep/own.txt").read_text() == "own\n"
    assert (agent / "deep/own.txt.inside").read_text() == "other\n"
    assert (agent / "deep/new.txt").read_text() == "new\n"
    (finding,) = found_by(stage)
    assert finding["code"] == "logs-differ"
    assert finding["detail"]["files"] == ["deep/own.txt", "trajectory.jsonl"]
    assert not list(paths_of(spec).trial_dir.glob(".*"))


class Watchful(StageAgent):
    """Says what it found, once."""

    def take_findings(self) -> list[Finding]:
        message = "it printed a lot"
        detail: dict[str, object] = {"bytes_cut": 7}
        return [Finding(code=FindingCode.OUTPUT_CUT, phase="agent", message=message, detail=detail)]


class WatchfulStage(Stage):
    def make_agent(self, order: AgentOrder) -> Watchful:
        return Watchful(order, self.deed)


@pytest.mark.sandbox
def test_what_an_agent_found_is_a_finding_of_its_trial(tmp_path: Path) -> None:
    stage = WatchfulStage(make_spec(write_task(tmp_path / "task"), tmp_path / "jobs"))
    run(stage)
    (finding,) = found_by(stage)
    assert (finding["code"], finding["detail"]) == ("output-cut", {"bytes_cut": 7})


def test_the_same_file_inside_and_outside_is_one(tmp_path: Path) -> None:
    spec = make_spec(write_task(tmp_path / "task"), tmp_path / "jobs")
    inside = f"echo '{HONEST}' > /logs/agent/trajectory.jsonl; touch /logs/agent/log.txt"
    stage = Stage(spec, write_outside(HONEST, inside))
    run(stage)
    names = sorted(path.name for path in paths_of(spec).agent_dir.iterdir())
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
    stage = Stage(make_spec(task, tmp_path / "jobs"), run_inside(command))
    run(stage)
    trial = str(paths_of(stage.spec).trial_dir)
    made, _ = make_record(RecordRequest(trial=trial, experiment="exp", task=str(task)))
    assert made.outputs.trajectory_path == "agent/trajectory.jsonl"
    assert (Path(trial) / "agent" / "artifacts" / "a.png").is_file()


class Noting(PlainEnvironment):
    """Notes where directories are put."""

    async def upload_dir(self, source_dir: Path | str, target_dir: str) -> None:
        self.commands.append(f"upload {target_dir}")
        await super().upload_dir(source_dir, target_dir)


class Backfilling(StageAgent):
    """Writes into its logs once they are on the host."""

    def populate_context_post_run(self, context: AgentContext) -> None:
        (self.order.logs_dir / "log.txt").write_text("new\n")


@pytest.mark.parametrize(
    ("is_on_host", "agent", "n_uploads"),
    [(False, StageAgent, 0), (True, StageAgent, 1), (False, Backfilling, 1)],
)
def test_logs_that_came_from_inside_are_put_back_only_where_the_host_has_more(
    tmp_path: Path, is_on_host: bool, agent: type[StageAgent], n_uploads: int
) -> None:
    class OwnStage(Stage):
        def make_agent(self, order: AgentOrder) -> StageAgent:
            return agent(order, self.deed)

    inside = "echo old > /logs/agent/log.txt"
    deed = write_outside(HONEST, inside) if is_on_host else run_inside(inside)
    spec = make_spec(write_task(tmp_path / "task"), tmp_path / "jobs")
    stage = OwnStage(spec, deed, Noting)
    run(stage)
    assert stage.environments[0].commands.count("upload /logs/agent") == n_uploads
    assert (paths_of(spec).agent_dir / "log.txt").exists()
