"""How a trial on record is run again, or why it is not."""

import json
from pathlib import Path

import pytest

from proctor.errors import NotReplayableError
from proctor.harbor.configs import AgentConfig, TaskConfig, TrialConfig
from proctor.harbor.documents import AgentInfo, StepDocument, TrialDocument
from proctor.rerun.plan import load_commands, make_job, plan_rerun
from proctor.rerun.recorded import RecordedTrial, TraceFile, parse_config
from proctor.traces.entry import TraceKind


def trace_of(*calls: tuple[str, str]) -> TraceFile:
    lines = [
        {"role": "tool_call", "step": at, "tool_name": tool, "command": command}
        for at, (tool, command) in enumerate(calls, 1)
    ]
    said = json.dumps({"role": "user", "step": 0, "content": "Do."})
    data = "".join(f"{line}\n" for line in [said, *map(json.dumps, lines)])
    return TraceFile(TraceKind.TRAJECTORY, "trajectory.jsonl", data.encode())


def recorded(
    agent: AgentConfig, trace: TraceFile | None = None, steps: list[StepDocument] | None = None
) -> RecordedTrial:
    config = TrialConfig(
        task=TaskConfig(path=Path("tasks/a")),
        trial_name="a__1",
        trials_dir=Path("jobs/j"),
        agent=agent,
        timeout_multiplier=2.0,
    )
    return RecordedTrial(
        name="a/1",
        config=config,
        result=TrialDocument("a", "a__1", AgentInfo(agent.name or "x"), step_results=steps),
        rewards={"reward": 1.0},
        trace=trace,
    )


FOREIGN = AgentConfig(import_path="a.b:C", override_timeout_sec=7.0, env={"A": "1"})


def test_limits_and_plain_variables_stay_and_the_class_does_not() -> None:
    trial = recorded(FOREIGN, trace_of(("bash", "ls")))
    plan = plan_rerun(trial, None)
    job = make_job(trial, plan, Path("/t/a"), Path("/new"), Path("/new/trace"))
    (agent,) = job.agents
    assert (agent.name, agent.import_path, agent.env) == ("replay", None, {"A": "1"})
    assert (agent.override_timeout_sec, job.timeout_multiplier) == (7.0, 2.0)
    assert agent.kwargs == {"trajectory": "/new/trace"}
    assert job.job_name.startswith("a-1-")
    assert [task.path for task in job.tasks] == [Path("/t/a")]


def test_an_agent_that_gave_no_command_is_one_that_does_nothing() -> None:
    assert plan_rerun(recorded(FOREIGN, trace_of()), None).agent.name == "nop"


def test_a_class_that_calls_itself_oracle_is_not_the_oracle() -> None:
    liar = AgentConfig(name="oracle", import_path="a.b:C")
    with pytest.raises(NotReplayableError, match="no trace with steps"):
        plan_rerun(recorded(liar), None)


def test_several_steps_are_for_the_oracle_alone() -> None:
    steps = [StepDocument("one")]
    assert (
        plan_rerun(recorded(AgentConfig(name="oracle"), None, steps), None).agent.name == "oracle"
    )
    with pytest.raises(NotReplayableError, match="several steps"):
        plan_rerun(recorded(FOREIGN, trace_of(("bash", "ls")), steps), None)


def test_a_shell_that_lasted_and_another_environment_are_noted() -> None:
    docker = recorded(FOREIGN, trace_of(("Bash", "ls")))
    config = docker.config.model_copy(deep=True)
    config.environment.import_path = "their.module:Room"
    trial = RecordedTrial(
        name="a", config=config, result=docker.result, rewards=None, trace=docker.trace
    )
    plan = plan_rerun(trial, "sandbox")
    assert plan.notes == [
        "it ran in their.module:Room; this is sandbox",
        "the shell of Bash was persistent; here it is not",
    ]
    assert plan.environment.import_path != "their.module:Room"


def test_the_first_call_that_cannot_be_replayed_is_named() -> None:
    with pytest.raises(NotReplayableError) as caught:
        load_commands(trace_of(("bash", "ls"), ("edit", ""), ("view", "")))
    assert str(caught.value) == (
        "step 2: tool 'edit' is not known to run shell commands (and 1 more)"
    )


def test_of_an_environments_settings_its_base_alone_is_taken_over() -> None:
    trial = recorded(AgentConfig(name="nop"))
    trial.config.environment.kwargs = {"base": "small", "network": "host"}
    plan = plan_rerun(trial, None)
    assert plan.environment.kwargs == {"base": "small"}
    assert plan.notes == ["the environment's settings network are not used"]
    trial.config.environment.import_path = "their.module:Room"
    assert plan_rerun(trial, "sandbox").environment.kwargs == {}


@pytest.mark.parametrize("key", ["user_agent", "source_trial"])
def test_trials_of_kinds_that_only_a_later_harbor_runs_are_not_run_again(key: str) -> None:
    config = {"task": {"path": "a"}, "trial_name": "a__1", "trials_dir": "jobs", key: None}
    assert parse_config(json.dumps(config).encode(), "config.json").trial_name == "a__1"
    config[key] = {"name": "nop"}
    with pytest.raises(NotReplayableError, match=f"{key} is a key of harbor 0.25"):
        parse_config(json.dumps(config).encode(), "config.json")
