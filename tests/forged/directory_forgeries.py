"""Forgeries in a job directory. Each takes a copy of the honest submission.

A forger who edits a directory knows every file in it, and makes the job's published numbers fit
unless his forgery is that they do not.
"""

import shutil
from datetime import timedelta

from tests.audit.directories import Document, edit_json, publish, read_json, set_reward
from tests.forged.clock import shift_times, shift_trace
from tests.forged.forger import (
    copy_over,
    edit_configs,
    remove_trials,
    replace_text,
    set_reward_everywhere,
    write_trace,
)
from tests.forged.honest import MODEL, HandedIn

ANOTHER = "acme/model-y"
_SOLVING = [
    ("printf proof | sha256sum | cut -d ' ' -f 1 > /app/proof.txt", ""),
    ("cat /app/proof.txt", "0a9b\n"),
]
_POINTLESS = [("python3 prove.py > /app/proof.out", ""), ("cat /app/proof.out", "proved\n")]


def edit_trial_reward(handed: HandedIn) -> None:
    set_reward(handed.trials("proof")[0], 1.0)


def edit_mean(handed: HandedIn) -> None:
    def change(result: Document) -> None:
        for group in result["stats"]["evals"].values():
            group["metrics"] = [{"mean": 1.0}]

    edit_json(handed.job / "result.json", change)


def edit_reward_file_and_result(handed: HandedIn) -> None:
    set_reward_everywhere(handed.trials("proof")[0], 1.0, in_record=False)
    publish(handed.job)


def edit_reward_everywhere(handed: HandedIn) -> None:
    set_reward_everywhere(handed.trials("proof")[0], 1.0)
    publish(handed.job)


def drop_failures(handed: HandedIn) -> None:
    for trial in handed.trials("proof"):
        shutil.rmtree(trial)
    publish(handed.job)


def drop_failures_and_plan(handed: HandedIn) -> None:
    remove_trials(handed, handed.trials("proof"))


def drop_attempts_and_plan(handed: HandedIn) -> None:
    remove_trials(handed, [handed.trials(task)[-1] for task in ("answer", "proof")])
    edit_json(handed.job / "config.json", lambda config: config.update(n_attempts=1))


def relabel_model_in_results(handed: HandedIn) -> None:
    for trial in handed.job.glob("*__*"):
        replace_text(trial / "result.json", ('"name": "model-x"', '"name": "model-y"'))
    publish(handed.job)


def relabel_model(handed: HandedIn) -> None:
    pairs = ((MODEL, ANOTHER), ('"name": "model-x"', '"name": "model-y"'))
    for path in handed.job.rglob("*.json"):
        replace_text(path, *pairs)
    publish(handed.job)


def relabel_agent_in_results(handed: HandedIn) -> None:
    for trial in handed.job.glob("*__*"):
        edit_json(
            trial / "result.json", lambda result: result["agent_info"].update(name="terminus-2")
        )
    publish(handed.job)


def invent_trace(handed: HandedIn) -> None:
    trial = handed.trials("proof")[0]
    set_reward_everywhere(trial, 1.0)
    write_trace(trial, _POINTLESS)
    publish(handed.job)


def invent_trace_that_solves(handed: HandedIn) -> None:
    trial = handed.trials("proof")[0]
    set_reward_everywhere(trial, 1.0)
    write_trace(trial, _SOLVING)
    publish(handed.job)


def empty_trace(handed: HandedIn) -> None:
    trial = handed.trials("proof")[0]
    set_reward_everywhere(trial, 1.0)
    write_trace(trial, [])
    publish(handed.job)


def copy_trace(handed: HandedIn) -> None:
    source, target = handed.trials("answer")
    data = (source / "agent" / "trajectory.jsonl").read_bytes()
    (target / "agent" / "trajectory.jsonl").write_bytes(data)


def copy_trace_and_set_clock(handed: HandedIn) -> None:
    copy_trace(handed)
    shift_trace(handed.trials("answer")[1], timedelta(milliseconds=7))


def write_reward_alone(handed: HandedIn) -> None:
    edit_reward_everywhere(handed)
    (handed.trials("proof")[0] / "verifier" / "test-stdout.txt").unlink()


def multiply_timeouts(handed: HandedIn) -> None:
    edit_configs(handed, lambda config: config.update(timeout_multiplier=4.0))
    edit_json(handed.job / "config.json", lambda config: config.update(timeout_multiplier=4.0))


def multiply_timeouts_and_hide(handed: HandedIn) -> None:
    """The trials are told to have had the usual time; the plan still has the other."""

    def change(lock: Document) -> None:
        for slot in lock["trials"]:
            slot["timeout_multiplier"] = 4.0

    edit_json(handed.job / "lock.json", change)


def override_resources(handed: HandedIn) -> None:
    more = {"override_cpus": 16, "override_memory_mb": 65536}
    edit_configs(handed, lambda config: config["environment"].update(more))


def duplicate_best(handed: HandedIn) -> None:
    """A pass, copied into the place of another attempt as if it had ended an hour later."""
    good, bad = handed.trials("answer")
    copy_over(good, bad)
    shift_times(bad, timedelta(hours=1))
    publish(handed.job)


def swap_task(handed: HandedIn) -> None:
    """An easier task under the same name: its digests are those of what really ran."""
    old = read_json(handed.trials("proof")[0] / "result.json")["task_checksum"]
    locked = [
        slot["task"]["digest"]
        for slot in read_json(handed.job / "lock.json")["trials"]
        if slot["task"]["name"] == "proof"
    ]
    pairs = ((old, "e" * 64), (locked[0], "sha256:" + "e" * 64))
    for path in handed.job.rglob("*.json"):
        replace_text(path, *pairs)


def swap_task_and_hide(handed: HandedIn) -> None:
    """The files of the easier task stand in the record, under the digest of the real one."""

    def change(record: Document) -> None:
        for file in record["inputs"]["input_files"]:
            if file["source"] == "verifier":
                file["hash"] = "e" * 64

    for trial in handed.trials("proof"):
        edit_json(trial / "record.json", change)


def unpin_image(handed: HandedIn) -> None:
    for trial in handed.job.glob("*__*"):
        edit_json(
            trial / "record.json",
            lambda record: record["environment"].update(runtime_image="debian:latest"),
        )


def move_image(handed: HandedIn) -> None:
    image = "debian@sha256:" + "1" * 64
    for trial in handed.job.glob("*__*"):
        edit_json(
            trial / "record.json", lambda record: record["environment"].update(runtime_image=image)
        )


def backdate(handed: HandedIn) -> None:
    for trial in handed.job.glob("*__*"):
        shift_times(trial, timedelta(days=-30))


def link_reward(handed: HandedIn) -> None:
    """The reward file leads to one of the forger's, which is not handed in."""
    trial = handed.trials("proof")[0]
    set_reward_everywhere(trial, 1.0)
    publish(handed.job)
    kept = handed.place / "reward.txt"
    (trial / "verifier" / "reward.txt").rename(kept)
    (trial / "verifier" / "reward.txt").symlink_to(kept)


def hide_metric(handed: HandedIn) -> None:
    """The published number is that of a metric script which is not handed in."""
    metric = {"type": "uv-script", "kwargs": {"script_path": "metric.py"}}
    edit_json(handed.job / "config.json", lambda config: config.update(metrics=[metric]))
    edit_mean(handed)


def claim_twice(handed: HandedIn) -> None:
    """Two rewards under one key: a parser that takes the first sees a pass."""
    path = handed.trials("proof")[0] / "result.json"
    claim = '"verifier_result": {"rewards": {"reward": 1.0},'
    replace_text(path, ('"verifier_result": {', claim))


def age_by_a_year(handed: HandedIn) -> None:
    """A trial of another year in the place of one of this job."""
    shift_times(handed.trials("answer")[0], timedelta(days=-400))


def remove_finding(handed: HandedIn) -> None:
    for trial in handed.job.glob("*__*"):
        (trial / "findings.json").unlink()
