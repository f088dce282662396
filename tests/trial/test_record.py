"""The record of a trial: there from the first moment, true at the end."""

import asyncio
import json
import os
import shlex
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from proctor.exchange.harbor_trial import RecordRequest, make_record
from proctor.harbor.trial_result import TrialResult
from proctor.ledger.submission import submit_trial
from proctor.record.read import parse_record, render_record
from proctor.trial.agent import AgentContext
from proctor.trial.environment import Environment
from proctor.trial.spec import RecordFields
from tests.trial.rooms import PlainEnvironment, WatchedEnvironment
from tests.trial.stage import Deed, Stage, do_nothing, make_spec, paths_of, run_inside, write_task


def run(stage: Stage) -> TrialResult:
    return asyncio.run(stage.run())


def record_of(stage: Stage) -> dict[str, Any]:
    record: dict[str, Any] = json.loads(paths_of(stage.spec).record_path.read_text())
    return record


async def spend(environment: Environment, context: AgentContext) -> None:
    context.n_input_tokens, context.n_output_tokens, context.cost_usd = 100, 20, 0.25
    context.metadata = {"turns": 3, "nan": float("nan"), "odd": {1, 2}}
    line = {"step": 0, "role": "system", "content": "You are brief."}
    await environment.exec(f"echo '{json.dumps(line)}' > /logs/agent/trajectory.jsonl")


def test_each_phase_leaves_a_partial_record_that_says_where_it_is(tmp_path: Path) -> None:
    stage = Stage(make_spec(write_task(tmp_path / "task"), tmp_path / "jobs"))
    seen: dict[str, dict[str, Any]] = {}

    def look(phase: str) -> None:
        path = paths_of(stage.spec).record_path
        parsed = parse_record(path.read_bytes(), str(path)).record
        assert path.read_bytes() == render_record(parsed)
        seen[phase] = json.loads(path.read_text())

    stage.phases = type("Looking", (list,), {"append": lambda self, phase: look(phase)})()
    run(stage)
    assert list(seen) == ["setup", "agent-setup", "agent", "collect", "verify", "record"]
    for phase in ("setup", "agent-setup", "agent", "collect", "verify"):
        assert seen[phase]["completeness"] == "partial"
        assert seen[phase]["evaluation"]["reward"] is None
        (error,) = seen[phase]["evaluation"]["validity"]["errors"]
        assert error == f"the trial did not end: it was in its {phase} phase"
    assert seen["setup"]["agent"]["adapter_revision"] is None
    assert seen["agent"]["agent"]["adapter_revision"] == "1.2.3"
    assert seen["setup"]["environment"]["runtime_image"].startswith("harbor-dockerfile:")
    assert seen["agent-setup"]["environment"]["runtime_image"].startswith("host:test@sha256:")


@pytest.mark.parametrize("deed", [do_nothing, spend])
@pytest.mark.parametrize("outcome", ["passes", "has no reward", "several", "nan"])
def test_the_record_is_what_an_importer_makes_of_the_trial(
    tmp_path: Path, deed: Any, outcome: str
) -> None:
    reward = {
        "passes": "echo 1 > /logs/verifier/reward.txt",
        "has no reward": ":",
        "several": 'echo \'{"a": 1, "b": 0}\' > /logs/verifier/reward.json',
        "nan": "echo nan > /logs/verifier/reward.txt",
    }[outcome]
    task = write_task(tmp_path / "task", {"tests/test.sh": f"#!/bin/bash\n{reward}\n"})
    stage = Stage(make_spec(task, tmp_path / "jobs"), deed, PlainEnvironment)
    run(stage)
    trial = str(paths_of(stage.spec).trial_dir)
    made = make_record(RecordRequest(trial=trial, experiment="exp", task=str(task)))[0]
    theirs, ours = json.loads(render_record(made)), record_of(stage)
    # The importer knows no runner but harbor, and none is recorded here.
    assert theirs["environment"].pop("tool_versions") is None
    assert ours["environment"].pop("tool_versions") == {"proctor": "0.1.0"}
    assert (theirs.pop("completeness"), ours.pop("completeness")) == ("partial", "complete")
    assert ours == theirs


PRICED = "anthropic/claude-sonnet-4-5"
ANSWER = {"role": "assistant", "content": "Done.", "model": PRICED}
SPENT = {"usage": {"input_tokens": 1000, "output_tokens": 10, "cache_read_input_tokens": 500}}
ENTRY = {"step": 1, "role": "assistant", "content": "Done."}


def leave(files: dict[str, object], **said: object) -> Deed:
    """An agent that leaves files in /logs/agent and reports what is `said`."""

    async def deed(environment: Environment, context: AgentContext) -> None:
        for name, value in said.items():
            setattr(context, name, value)
        for name, line in files.items():
            text = shlex.quote(json.dumps(line))
            await environment.exec(f"printf '%s\\n' {text} > /logs/agent/{name}")

    return deed


@pytest.mark.parametrize(
    ("files", "said", "tokens", "basis"),
    [
        pytest.param(
            {"conversation.jsonl": ANSWER | SPENT}, {}, (1500, 10, 500, None), "estimated",
            id="conversation",
        ),
        pytest.param(
            {"trajectory.jsonl": ENTRY | {"metadata": {"model": PRICED} | SPENT}}, {},
            (1500, 10, 500, None), "estimated", id="trajectory",
        ),
        pytest.param(
            {"conversation.jsonl": ANSWER | SPENT}, {"n_input_tokens": 7, "n_output_tokens": 2},
            (7, 2, None, None), "estimated", id="the agent's own report goes first",
        ),
        pytest.param(
            {"conversation.jsonl": ANSWER | SPENT}, {"cost_usd": 0.5}, (1500, 10, 500, None),
            "reported", id="an amount without tokens",
        ),
        pytest.param(
            {}, {"n_input_tokens": 7, "metadata": {"cache_write_tokens": 3}}, (7, None, None, 3),
            "unknown", id="cache writes",
        ),
        pytest.param(
            {}, {"n_input_tokens": 7, "metadata": {"cache_write_tokens": 8}},
            (7, None, None, None), "unknown", id="impossible cache writes",
        ),
        pytest.param({}, {}, None, "unknown", id="nothing"),
    ],
)  # fmt: skip
def test_tokens_and_model_of_the_trace_reach_the_record_and_the_ledger(
    tmp_path: Path,
    files: dict[str, object],
    said: dict[str, object],
    tokens: tuple[int | None, ...] | None,
    basis: str,
) -> None:
    """A trace may be the only place where an agent says what it used."""
    spec = make_spec(write_task(tmp_path / "task"), tmp_path / "jobs")
    stage = Stage(spec, deed=leave(files, **said))
    run(stage)
    record = record_of(stage)
    cost = record["cost"]
    names = ("tokens_in", "tokens_out", "cache_read_tokens", "cache_write_tokens")
    assert (tuple(cost[name] for name in names) if cost else None) == tokens
    assert record["agent"]["model"] == (PRICED if files else "none")
    assert ((cost or {}).get("estimated_cost_usd") is None) == (basis == "unknown")
    assert submit_trial(paths_of(stage.spec).trial_dir).cost_basis == basis


@pytest.mark.parametrize(("second", "tokens"), [(SPENT, 3000), ({}, None)])
def test_tokens_of_the_steps_are_added_up(
    tmp_path: Path, second: dict[str, object], tokens: int | None
) -> None:
    """Each step has a trace; a count that one of them lacks is unknown for the trial."""
    files = {f"steps/{step}/instruction.md": f"{step}\n" for step in ("one", "two")}
    toml = '[[steps]]\nname = "one"\n[[steps]]\nname = "two"\n'
    task = write_task(tmp_path / "task", files, toml=toml)
    answers = iter([ANSWER | SPENT, ANSWER | second])

    async def deed(environment: Environment, context: AgentContext) -> None:
        await leave({"conversation.jsonl": next(answers)})(environment, context)

    stage = Stage(make_spec(task, tmp_path / "jobs"), deed=deed)
    run(stage)
    record = record_of(stage)
    assert record["agent"]["model"] == PRICED
    assert (record["cost"] or {}).get("tokens_in") == tokens


def test_outputs_name_the_files_that_are_there(tmp_path: Path) -> None:
    """What the agent printed, and a conversation beside the trajectory, can be found."""
    spec = make_spec(write_task(tmp_path / "task"), tmp_path / "jobs")
    files: dict[str, object] = {
        "trajectory.jsonl": ENTRY,
        "conversation.jsonl": ANSWER,
        "command.txt": "printed",
    }
    stage = Stage(spec, deed=leave(files))
    run(stage)
    outputs = record_of(stage)["outputs"]
    assert outputs["raw_output_path"] == "agent/command.txt"
    assert outputs["trajectory_path"] == "agent/trajectory.jsonl"
    assert outputs["conversation_path"] == "agent/conversation.jsonl"
    assert outputs["agent_output"]["status"] == "completed"


def test_an_errored_trial_has_a_reason_code_of_the_set(tmp_path: Path) -> None:
    task = write_task(tmp_path / "task", toml="[agent]\ntimeout_sec = 0.2\n")
    stage = Stage(make_spec(task, tmp_path / "jobs"), run_inside("sleep 300"))
    run(stage)
    evaluation = record_of(stage)["evaluation"]
    (tag,) = evaluation["error_taxonomy"]
    assert tag["category"] == "harbor_agent_timeout_error"
    assert evaluation["reward"] == 1.0


def test_what_the_caller_wishes_stands_in_the_record(tmp_path: Path) -> None:
    spec = make_spec(write_task(tmp_path / "task"), tmp_path / "jobs")
    wish = RecordFields(
        experiment="night",
        dataset_id="set@2",
        system_prompt="Be brief.",
        adapter_revision="git:abc",
    )
    stage = Stage(replace(spec, record=wish), environment_class=WatchedEnvironment)
    run(stage)
    record = record_of(stage)
    assert (record["experiment_id"], record["dataset_id"]) == ("night", "set@2")
    assert record["agent"]["adapter_revision"] == "git:abc"
    assert record["inputs"]["system_prompt"] == "Be brief."
    assert record["environment"] == {
        "runtime_image": "host:test@sha256:" + "0" * 64,
        "compute_backend": "rooms",
        "tool_versions": {"proctor": "0.1.0", "kernel": "6.1"},
    }
    assert record["completeness"] == "complete"


async def test_a_cancelled_trial_has_a_finished_record(tmp_path: Path) -> None:
    stage = Stage(
        make_spec(write_task(tmp_path / "task"), tmp_path / "jobs"), run_inside("sleep 300")
    )
    task = asyncio.create_task(stage.run())
    while "agent" not in stage.phases:
        await asyncio.sleep(0.01)
    task.cancel()
    await task
    record = record_of(stage)
    assert record["outputs"]["agent_output"]["status"] == "partial"
    assert record["evaluation"]["error_taxonomy"][0]["category"] == "harbor_cancelled_error"


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 256 KiB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", disk], check=True)
    yield disk
    subprocess.run(["umount", "-l", disk], check=True)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts a small disk")
@pytest.mark.parametrize("when", ["before", "while the agent runs"])
def test_a_full_disk_is_an_errored_trial_with_a_sentence(small_disk: Path, when: str) -> None:
    def fill() -> None:
        with (small_disk / "rubbish").open("wb", buffering=0) as file:
            while True:
                try:
                    file.write(b"x" * 4096)
                except OSError:
                    return

    async def deed(environment: Environment, context: AgentContext) -> None:
        fill()

    task = write_task(small_disk.parent / "task")
    stage = Stage(make_spec(task, small_disk / "jobs"), deed)
    if when == "before":
        fill()
    result = run(stage)
    assert result.exception_info is not None
    expected = {"before": "OSError", "while the agent runs": "DownloadVerifierDirError"}
    assert result.exception_info.exception_type == expected[when]
    assert "No space left on device" in result.exception_info.exception_traceback
    assert all(made.stops == 1 for made in stage.environments)
    assert not paths_of(stage.spec).result_path.exists()
