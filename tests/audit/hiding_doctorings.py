"""Failures moved to where nobody counts them, each time with a job result that fits."""

import shutil
from pathlib import Path

from proctor.audit.findings import Kind
from tests.audit.directories import (
    Document,
    edit_json,
    find_trial,
    publish,
    read_json,
    set_reward,
    write_json,
)
from tests.audit.doctors import Change, Doctor, Doctoring, in_group, in_trial

BINARY, PASS_AT_K = "01-binary-oracle-k1", "04-binary-scripted-k5"
STEPS = "10-multistep-oracle-mounted"


def trials_rewarded(job: Path, reward: float) -> list[Path]:
    """Trial directories whose result claims this reward."""
    found = {path.parent: read_json(path) for path in sorted(job.glob("*/result.json"))}
    return [
        path
        for path, trial in found.items()
        if trial["verifier_result"]["rewards"]["reward"] == reward
    ]


def in_failures(change: Change) -> Doctor:
    """A doctor that changes the result of every failed trial and makes the job result fit."""

    def doctor(job: Path) -> None:
        for trial in trials_rewarded(job, 0.0):
            edit_json(trial / "result.json", change)
        publish(job)

    return doctor


def swap_tasks(job: Path) -> None:
    """A failure of one task is told to be of another, whose pass takes its place."""
    failed = next(path for path in trials_rewarded(job, 0.0) if "pass-two" in path.name)
    passed = next(path for path in trials_rewarded(job, 1.0) if "oracle-wrong" in path.name)
    failure, success = (read_json(path / "result.json") for path in (failed, passed))
    for name in ("task_name", "task_checksum"):
        failure[name], success[name] = success[name], failure[name]
    write_json(failed / "result.json", failure)
    write_json(passed / "result.json", success)
    publish(job)


def link_reward(job: Path) -> None:
    """A failure's reward file leads to a file beside the job, which holds 1."""
    trial = find_trial(job, "oracle-wrong")
    (job.parent / "reward.txt").write_text("1")
    (trial / "verifier" / "reward.txt").unlink()
    (trial / "verifier" / "reward.txt").symlink_to("../../../reward.txt")
    set_reward(trial, 1.0)
    publish(job)
    in_group("oracle__binary", lambda group: group.update(metrics=[{"mean": 1.0}]))(job)


def link_trial(job: Path) -> None:
    """A failure's directory is a link to a pass."""
    failed, passed = find_trial(job, "oracle-wrong"), find_trial(job, "pass-two")
    shutil.rmtree(failed)
    failed.symlink_to(passed.name)


def remove_failures_from_plan(job: Path) -> None:
    """Failures are gone from the disk, from the plan and from every count but config.json's."""
    failures = trials_rewarded(job, 0.0)
    tasks = [read_json(path / "result.json")["task_name"] for path in failures]

    def unplan(lock: Document) -> None:
        for task in tasks:
            slots = [slot["task"]["name"] for slot in lock["trials"]]
            del lock["trials"][slots.index(task)]

    edit_json(job / "lock.json", unplan)
    for path in failures:
        shutil.rmtree(path)
    left = len(read_json(job / "lock.json")["trials"])
    edit_json(job / "result.json", lambda result: result.update(n_total_trials=left))
    publish(job)


WITHOUT_STEP_TWO = {"part3": 0.25, "reward": 1.0, "part1": 0.25}


def drop_step(trial: Document) -> None:
    """A step that scored 0 is not listed; its directory is left."""
    del trial["step_results"][1]
    trial["verifier_result"]["rewards"] = WITHOUT_STEP_TWO


def keep_last_step(job: Path) -> None:
    """All steps but the last are taken out of a mean: the total is the last one's."""

    def change(trial: Document) -> None:
        trial["step_results"] = trial["step_results"][-1:]
        trial["verifier_result"] = trial["step_results"][0]["verifier_result"]

    in_trial("ms-mean", change)(job)


def hide_step_behind_timeout(trial: Document) -> None:
    """A step that scored 0 is said to have timed out, though others were run after it."""
    error = {"exception_type": "TimeoutError", "exception_message": ""}
    trial["step_results"][1].update(verifier_result=None, exception_info=error)
    trial["verifier_result"]["rewards"] = WITHOUT_STEP_TWO


def drop_step_claim_and_file(job: Path) -> None:
    """A step that scored 0 is made to look as if it had never been verified."""

    def change(trial: Document) -> None:
        trial["step_results"][1]["verifier_result"] = None
        trial["verifier_result"]["rewards"] = WITHOUT_STEP_TWO

    (find_trial(job, "ms-mean") / "steps" / "two" / "verifier" / "reward.json").unlink()
    in_trial("ms-mean", change)(job)


def make_single_step(job: Path) -> None:
    """The steps are forgotten; a reward file is put where a trial of one step has it."""
    verifier = find_trial(job, "ms-mean") / "verifier"
    verifier.mkdir(exist_ok=True)
    (verifier / "reward.txt").write_text("1.0")
    passed = {"step_results": None, "verifier_result": {"rewards": {"reward": 1.0}}}
    in_trial("ms-mean", lambda trial: trial.update(passed))(job)


def drop_claim_and_file(job: Path) -> None:
    """A failure made to look like an error, which no exception explains."""
    (find_trial(job, "oracle-wrong") / "verifier" / "reward.txt").unlink()
    in_trial("oracle-wrong", lambda trial: trial.update(verifier_result=None))(job)


EVERY_TASK = ("oracle-wrong", "pass-simple", "pass-two")

HIDING_DOCTORINGS = [
    Doctoring(
        "failures moved to a group without a model",
        PASS_AT_K,
        in_failures(lambda trial: trial["agent_info"].update(model_info=None)),
        {f"{task}/result.json": {Kind.EDITED_CONFIG} for task in EVERY_TASK},
    ),
    Doctoring(
        "failures of an agent by import path given another name",
        PASS_AT_K,
        in_failures(lambda trial: trial["agent_info"].update(name="practice")),
        {f"{task}/result.json": {Kind.EDITED_CONFIG} for task in EVERY_TASK},
    ),
    Doctoring(
        "tasks of a pass and a failure swapped",
        PASS_AT_K,
        swap_tasks,
        {"oracle-wrong": {Kind.MIXED_TASK}, "pass-two": {Kind.MIXED_TASK}},
    ),
    Doctoring(
        "failures removed from the plan as well",
        PASS_AT_K,
        remove_failures_from_plan,
        {"lock.json": {Kind.EDITED_COUNTER}},
    ),
    Doctoring(
        "a reward file that leads out of the trial",
        BINARY,
        link_reward,
        {"oracle-wrong/verifier": {Kind.LINKED_FILE}, "result.json": {Kind.EDITED_METRIC}},
    ),
    Doctoring(
        "a trial that is a link to another",
        BINARY,
        link_trial,
        {
            "oracle-wrong/result.json": {Kind.LINKED_FILE},
            "result.json": {Kind.EDITED_COUNTER, Kind.EDITED_METRIC, Kind.EDITED_REWARD_STATS},
        },
    ),
    Doctoring(
        "a failed step not listed",
        STEPS,
        in_trial("ms-mean", drop_step),
        {"ms-mean/result.json": {Kind.EDITED_STEP_TOTAL}},
    ),
    Doctoring(
        "only the last step listed",
        STEPS,
        keep_last_step,
        {"ms-mean/result.json": {Kind.EDITED_STEP_TOTAL}},
    ),
    Doctoring(
        "a failed step hidden behind a timeout",
        STEPS,
        in_trial("ms-mean", hide_step_behind_timeout),
        {"ms-mean/result.json": {Kind.EDITED_STEP_TOTAL}},
    ),
    Doctoring(
        "a failed step's reward dropped with its file",
        STEPS,
        drop_step_claim_and_file,
        {"ms-mean/result.json": {Kind.EDITED_EXCEPTION}},
    ),
    Doctoring(
        "steps replaced by one reward",
        STEPS,
        make_single_step,
        {"ms-mean/result.json": {Kind.EDITED_STEP_TOTAL}},
    ),
    Doctoring(
        "a failure's reward dropped with its file",
        BINARY,
        drop_claim_and_file,
        {"oracle-wrong/result.json": {Kind.EDITED_EXCEPTION}},
    ),
]
