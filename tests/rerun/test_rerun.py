"""`proctor audit --rerun`: real trials of the sandbox, run again."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from proctor.harbor.configs import AgentConfig
from tests.cli.programs import Proctor, Ran
from tests.rerun.jobs import (
    HONEST,
    TEST,
    Again,
    digest_tree,
    edit_json,
    edit_lines,
    load,
    only_trial,
    run_trial,
    scripted,
    trace_of,
    write_task,
)


def test_an_honest_trial_is_reproduced(again: Again, job: Path, tmp_path: Path) -> None:
    found = again(job)
    assert (found["verdict"], found["code"], found["same_rewards"]) == ("reproduced", 0, True)
    assert found["reason"] == "reward 1.0 again; 3 observations equal"
    new = Path(found["directory"])
    assert new.parent.parent.parent == tmp_path / "new"
    kept = load(new.parent.parent / "reruns.json")
    assert (kept["interrupted"], kept["reruns"][0]["verdict"]) == (False, "reproduced")
    assert load(only_trial(new) / "result.json")["verifier_result"]["rewards"] == {"reward": 1.0}


def test_what_is_printed_says_where_the_new_jobs_are(
    proctor: Proctor, job: Path, tmp_path: Path
) -> None:
    ran = proctor("audit", job, "--rerun", 9, "--seed", "x", "-o", tmp_path / "new")
    assert ran.code == 0
    first, second, last = ran.out.splitlines()
    assert first == f"{job}: 1 of 1 trial chosen to run again, seed x"
    assert second.startswith(f"  reproduced      {only_trial(job).name}: reward 1.0 again")
    assert last.startswith(f"kept in {tmp_path / 'new'}/copy.")
    assert ran.err == f"[1/1] {only_trial(job).name}\n"


def test_trials_that_harbor_recorded_come_out_again(
    proctor: Proctor, root: Path, tmp_path: Path
) -> None:
    data = root / "tests" / "data" / "harbor"
    words = ("audit", data / "jobs" / "04-binary-scripted-k5", "--rerun", 3, "--seed", "a")
    ran = proctor(*words, "-o", tmp_path / "new")
    assert ran.code == 3
    assert (
        ran.out.count("it ran in hb2_env:ChrootEnvironment, which is missing here; pass -e sandbox")
        == 3
    )
    assert ran.out.endswith("nothing was run\n")
    assert list((tmp_path / "new").iterdir()) == []
    ran = proctor(
        *words, "-o", tmp_path / "new", "-e", "sandbox", "--tasks", data / "tasks" / "binary"
    )
    assert ran.code == 0, ran.out
    assert [line.split()[1] for line in ran.out.splitlines() if " reproduced " in line] == [
        "pass-two__TArvzTK:",
        "oracle-wrong__h6qrKRC:",
        "pass-two__eUewozM:",
    ]
    assert "reward 0.0 again; 1 observation equal" in ran.out


def test_chance_in_an_output_differs_and_the_reward_stands(again: Again, tmp_path: Path) -> None:
    script = f"{HONEST}echo $RANDOM$RANDOM$RANDOM $(date +%N)\n"
    found = again(run_trial(tmp_path, scripted(tmp_path, script)))
    assert (found["verdict"], found["code"], found["same_rewards"]) == ("differs", 3, True)
    assert found["reason"] == "same reward (reward 1.0), observations differ at step 4"
    assert found["compared"]["first"]["command"].startswith("echo $RANDOM")


def test_times_and_temporary_names_are_no_difference(again: Again, tmp_path: Path) -> None:
    found = again(run_trial(tmp_path, scripted(tmp_path, f"{HONEST}date; mktemp; date -Ins\n")))
    assert (found["verdict"], found["compared"]["equal_after"]) == ("reproduced", 1)
    assert found["reason"].endswith("4 observations equal, 1 of them once normalised")


def test_a_doctored_observation_is_found_at_its_step(again: Again, job: Path) -> None:
    def doctor(line: dict[str, Any]) -> None:
        if line.get("stdout") == "42\n":
            line["stdout"] = "all 128 tests passed\n"

    edit_lines(trace_of(job), doctor)
    found = again(job)
    assert (found["verdict"], found["code"]) == ("differs", 3)
    assert found["compared"]["first"] == {
        "step": 3,
        "command": "cat /app/answer; exit 3",
        "what": "output",
        "then": "all 128 tests passed",
        "now": "42",
    }


def test_a_doctored_exit_code_is_found(again: Again, job: Path) -> None:
    edit_lines(trace_of(job), lambda line: "exit_code" in line and line.update(exit_code=0))
    first = again(job)["compared"]["first"]
    assert (first["step"], first["what"], first["then"], first["now"]) == (3, "exit code", "0", "3")


def test_a_doctored_command_changes_the_reward(again: Again, job: Path) -> None:
    def doctor(line: dict[str, Any]) -> None:
        if "echo 42" in line.get("command", ""):
            line["command"] = "echo 41 > /app/answer"

    edit_lines(trace_of(job), doctor)
    found = again(job)
    assert (found["verdict"], found["code"], found["same_rewards"]) == ("differs", 1, False)
    assert found["reason"] == "then reward 1.0, now reward 0.0"


def test_a_doctored_reward_is_found(again: Again, job: Path) -> None:
    def doctor(result: Any) -> None:
        result["verifier_result"]["rewards"]["reward"] = 0.5

    edit_json(only_trial(job) / "result.json", doctor)
    found = again(job)
    assert (found["verdict"], found["code"]) == ("differs", 1)
    assert found["reason"] == "then reward 0.5, now reward 1.0"
    assert found["compared"]["first"] is None


@pytest.mark.parametrize("agent", ["oracle", "nop"])
def test_oracle_and_nop_are_run_again_as_they_are(again: Again, tmp_path: Path, agent: str) -> None:
    found = again(run_trial(tmp_path, AgentConfig(name=agent)))
    assert (found["verdict"], found["code"]) == ("reproduced", 0)
    reward = "1.0" if agent == "oracle" else "0.0"
    assert found["reason"] == f"reward {reward} again; there were no observations to compare"


def test_a_command_that_leaves_a_trajectory_is_replayed(again: Again, tmp_path: Path) -> None:
    lines = [
        {"role": "tool_call", "step": 1, "tool_name": "bash", "command": "mkdir -p /app"},
        {"role": "tool_result", "step": 1, "tool_name": "bash", "stdout": "", "exit_code": 0},
        {"role": "tool_call", "step": 2, "tool_name": "bash", "command": "echo 42 >/app/answer"},
    ]
    told = "".join(f"{json.dumps(line)}\n" for line in lines)
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree" / "told.jsonl").write_text(told)
    command = "cp /installed-agent/told.jsonl /logs/agent/trajectory.jsonl; mkdir /app; "
    kwargs = {"command": f"{command} echo 42 > /app/answer", "tree": str(tmp_path / "tree")}
    job = run_trial(tmp_path, AgentConfig(name="command", kwargs=kwargs))
    found = again(job)
    assert found["verdict"] == "reproduced", found
    trace_of(job).unlink()
    found = again(job)
    assert (found["verdict"], found["code"]) == ("not replayable", 3)
    assert (
        found["reason"]
        == "its agent wrote no trace with steps, and recorded output cannot be run again; to make "
        "such trials replayable, run them with a model through the gateway (-m MODEL), or let the "
        "agent write a trace to $PROCTOR_TRAJECTORY"
    )


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        (
            "trajectory.json",
            '{"schema_version": "ATIF-v1.7", "session_id": "s", "agent": {"name": "terminus-2", '
            '"version": "2"}, "steps": [{"step_id": 1, "source": "agent", "message": "m", '
            '"tool_calls": [{"tool_call_id": "c", "function_name": "bash_command", '
            '"arguments": {"keystrokes": "ls\\n", "duration": 0.1}}]}]}',
            "step 1: tool 'bash_command' sent keystrokes to a terminal, not a command",
        ),
        (
            "trajectory.jsonl",
            '{"role": "tool_call", "step": 4, "tool_name": "edit_file"}\n',
            "step 4: tool 'edit_file' is not known to run shell commands",
        ),
        ("trajectory.jsonl", '{"role": "tool_call", "st', "its trace is damaged: trajectory.jsonl"),
        ("trajectory.jsonl", None, "not a regular file"),
    ],
)
def test_a_trace_that_cannot_be_replayed_says_why(
    again: Again, job: Path, name: str, text: str | None, reason: str
) -> None:
    trace_of(job).unlink()
    path = only_trial(job) / "agent" / name
    if text is None:
        path.symlink_to("/etc/passwd")
    else:
        path.write_text(text)
    found = again(job)
    assert (found["verdict"], found["code"], found["directory"]) == ("not replayable", 3, None)
    assert reason in found["reason"]


def test_a_task_that_changed_or_is_gone_is_not_run(
    again: Again, job: Path, honest: Path, tmp_path: Path
) -> None:
    shutil.copytree(honest / "task", tmp_path / "tasks" / "task")
    trial = only_trial(job)
    edit_json(
        trial / "config.json", lambda config: config["task"].update(path=str(tmp_path / "task"))
    )
    gone = f"its task is missing: it was {tmp_path / 'task'}"
    assert again(job)["reason"] == f"{gone}; pass its directory with --tasks DIR"
    found = again(job, "--tasks", tmp_path)
    assert found["reason"].startswith(f"{gone}, and not below {tmp_path}; pass its ")
    assert again(job, "--tasks", tmp_path / "tasks")["verdict"] == "reproduced"
    write_task(tmp_path / "tasks" / "task", f"# easier\n{TEST}")
    found = again(job, "--tasks", tmp_path / "tasks")
    assert (found["verdict"], found["code"]) == ("not replayable", 3)
    assert found["reason"].startswith("its task has changed: the trial ran checksum ")


def test_a_renamed_directory_holds_the_same_task(
    again: Again, job: Path, honest: Path, tmp_path: Path
) -> None:
    shutil.copytree(honest / "task", tmp_path / "elsewhere")
    assert again(job, "--tasks", tmp_path / "elsewhere")["verdict"] == "reproduced"


def test_a_new_trial_that_breaks_says_nothing_of_the_recorded_one(again: Again, job: Path) -> None:
    edit_json(only_trial(job) / "config.json", lambda config: config.update(timeout_multiplier=0))
    found = again(job)
    assert (found["verdict"], found["same_rewards"], found["code"]) == ("not replayable", None, 3)
    assert found["reason"].startswith("the new trial ended in EnvironmentStartTimeoutError: ")
    assert found["directory"] is not None


def test_a_verifier_that_found_things_as_harbor_leaves_them_does_so_again(
    again: Again, job: Path
) -> None:
    compat = "harbor-0.13.1"
    edit_json(job / "proctor.json", lambda state: state["settings"].update(verifier_compat=compat))
    found = again(job)
    assert found["verdict"] == "reproduced"
    assert found["notes"] == [
        f"with --verifier-compat {compat}, a reward written by the agent counts"
    ]
    new = load(Path(found["directory"]) / "proctor.json")
    assert new["settings"]["verifier_compat"] == compat


def test_another_image_and_hosts_of_the_job_are_noted(again: Again, job: Path) -> None:
    def widen(config: Any) -> None:
        config["environment"]["extra_allowed_hosts"] = ["example.org"]

    trial = only_trial(job)
    edit_json(trial / "config.json", widen)
    edit_json(
        trial / "record.json", lambda record: record["environment"].update(runtime_image="other")
    )
    hosts, image = again(job)["notes"]
    assert hosts == "extra hosts that the job allowed cannot be reached"
    assert image.startswith("it ran on other; now host:")


def test_a_trial_without_a_reward_has_nothing_to_compare(again: Again, job: Path) -> None:
    def doctor(result: Any) -> None:
        result["verifier_result"] = None
        result["exception_info"] = {
            "exception_type": "SandboxError",
            "exception_message": "gone",
            "exception_traceback": "",
            "occurred_at": "2026-01-01T00:00:00",
        }

    edit_json(only_trial(job) / "result.json", doctor)
    assert again(job)["reason"] == "it ended in SandboxError, without a reward"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--seed", "1"), "--seed requires --rerun"),
        (("--rerun", "0"), "'--rerun': 0 is not in the range"),
        (("--rerun", "1", "-e", "null"), "--env is 'null'; expected one of sandbox"),
        (("--rerun", "1", "--profile", "harbor-0.25"), "--rerun cannot be combined with --profile"),
        (("--rerun", "1", "--ledger", "x"), "--ledger requires a claim"),
        (("--rerun", "1", "-o", "{job}/new"), "the audited job is never written to"),
        (("--rerun", "1", "{job}"), "--rerun takes one job or one claim; 2 were given"),
        (
            ("--rerun", "1", "--tasks", "{job}/gone"),
            "/gone: no such directory; expected a directory",
        ),
        (("--rerun", "1", "-o", "{job}/result.json/new"), "the audited job is never"),
    ],
)
def test_wrong_use_is_refused_before_anything_is_written(
    proctor: Proctor, job: Path, tmp_path: Path, words: tuple[str, ...], said: str
) -> None:
    before = digest_tree(tmp_path)
    ran: Ran = proctor("audit", job, *(word.format(job=job) for word in words))
    assert ran.code == 2
    assert said in ran.err
    assert digest_tree(tmp_path) == before
