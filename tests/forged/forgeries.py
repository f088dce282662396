"""The pack: ways to forge a submission. Each takes a copy of the honest one.

A forger who edits a directory knows every file in it, and makes the job's published numbers fit
unless his forgery is that they do not.
"""

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta

from proctor.ledger.query import find_trial
from tests.audit.directories import Document, edit_json, publish, read_json, set_reward
from tests.forged.clock import shift_times, shift_trace
from tests.forged.forger import (
    copy_over,
    edit_configs,
    edit_lines,
    opened_by_owner,
    remove_trials,
    replace_text,
    seal_anew,
    set_reward_everywhere,
    write_trace,
)
from tests.forged.honest import MODEL, NAME, HandedIn, keep_checkpoint

ANOTHER = "acme/model-y"
_SOLVING = [
    ("printf proof | sha256sum | cut -d ' ' -f 1 > /app/proof.txt", ""),
    ("cat /app/proof.txt", "0a9b\n"),
]
_POINTLESS = [("python3 prove.py > /app/proof.out", ""), ("cat /app/proof.out", "proved\n")]


@dataclass(frozen=True)
class Forgery:
    """One way to forge."""

    name: str
    does: str
    """For the page."""
    forge: Callable[[HandedIn], object]


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


def remove_finding(handed: HandedIn) -> None:
    for trial in handed.job.glob("*__*"):
        (trial / "findings.json").unlink()


def edit_entry(handed: HandedIn) -> None:
    edit_lines(
        handed.ledger,
        lambda lines: [line.replace(b'"reward":0.0', b'"reward":1.0') for line in lines],
    )


def cut_ledger(handed: HandedIn) -> None:
    remove_trials(handed, handed.trials("proof")[:1])
    edit_lines(handed.ledger, lambda lines: lines[:-1])


def withhold_failure(handed: HandedIn) -> None:
    trial = handed.trials("proof")[0]
    with opened_by_owner(handed) as ledger:
        row = find_trial(ledger, f"{NAME}/{trial.name}")
        ledger.withhold(row, reason="a key was in it", author="me")
    remove_trials(handed, [trial])


def forge_and_seal_anew(handed: HandedIn) -> None:
    edit_reward_everywhere(handed)
    seal_anew(handed)


def forge_and_seal_by_another_key(handed: HandedIn) -> None:
    edit_reward_everywhere(handed)
    seal_anew(handed, keys=handed.place / "other-keys")


def drop_and_seal_anew(handed: HandedIn) -> None:
    drop_attempts_and_plan(handed)
    seal_anew(handed)


def forge_before_sealing(handed: HandedIn) -> None:
    edit_reward_everywhere(handed)
    seal_anew(handed)
    keep_checkpoint(handed)


def pass_off_as_own(handed: HandedIn) -> None:
    """Trials that another runner ran, with records that say proctor did."""

    def change(record: Document) -> None:
        record["environment"]["tool_versions"] = {"proctor": "0.1.0", "kernel": "6.1.0"}
        record["timing"]["total_seconds"] = 1.0

    for trial in handed.job.glob("*__*"):
        edit_json(trial / "record.json", change)
    seal_anew(handed)
    keep_checkpoint(handed)


def type_it_in(handed: HandedIn) -> None:
    """A person's commands under a model's name, relabelled before anything was sealed."""
    relabel_model(handed)
    seal_anew(handed)
    keep_checkpoint(handed)


def hand_in_the_better_run(handed: HandedIn) -> None:
    """The job was run twice, and this is the better one; nothing tells of the other."""


FORGERIES = [
    Forgery("edited-trial-reward", "a failed trial's result claims 1", edit_trial_reward),
    Forgery("edited-mean", "the job's published mean is 1", edit_mean),
    Forgery(
        "edited-reward-file",
        "reward.txt, the trial's result and the job's result say 1; the record was forgotten",
        edit_reward_file_and_result,
    ),
    Forgery(
        "edited-everywhere",
        "the same, and the record too: the directory is consistent",
        edit_reward_everywhere,
    ),
    Forgery("dropped-trials", "failed trials are deleted, the numbers made to fit", drop_failures),
    Forgery(
        "dropped-task",
        "the failed task is gone from plan, disk and numbers",
        drop_failures_and_plan,
    ),
    Forgery(
        "picked-attempts",
        "an attempt at each task is gone from plan, disk, settings and numbers",
        drop_attempts_and_plan,
    ),
    Forgery(
        "relabelled-results", "results name another model than settings", relabel_model_in_results
    ),
    Forgery("relabelled-model", "every file names another model", relabel_model),
    Forgery("relabelled-agent", "results name another agent", relabel_agent_in_results),
    Forgery(
        "invented-trace",
        "edited everywhere, with a trace written by hand that does not solve the task",
        invent_trace,
    ),
    Forgery(
        "invented-solution",
        "edited everywhere, with a trace written by hand whose commands solve the task",
        invent_trace_that_solves,
    ),
    Forgery("empty-trace", "edited everywhere, with a trace in which nothing is done", empty_trace),
    Forgery("copied-trace", "a trial has the trace of another attempt", copy_trace),
    Forgery(
        "copied-trace-reset",
        "the same with its clock set seven milliseconds on",
        copy_trace_and_set_clock,
    ),
    Forgery(
        "reward-alone",
        "edited everywhere, in a trial whose verifier left no output",
        write_reward_alone,
    ),
    Forgery("more-time", "every trial had four times the time", multiply_timeouts),
    Forgery(
        "more-time-hidden",
        "the same; settings of trials were put back, the plan was forgotten",
        multiply_timeouts_and_hide,
    ),
    Forgery("more-resources", "every trial had 16 processors and 64 GB", override_resources),
    Forgery(
        "duplicated-best",
        "a copy of a pass stands in for another attempt, an hour later",
        duplicate_best,
    ),
    Forgery("easier-task", "a task was sat in an easier version", swap_task),
    Forgery(
        "easier-task-hidden",
        "the same; digests of the task were put back, those of its tests forgotten",
        swap_task_and_hide,
    ),
    Forgery("unpinned-image", "records name the image by a tag", unpin_image),
    Forgery("moved-image", "records name another image than was used", move_image),
    Forgery("backdated", "the times of trials are a month earlier", backdate),
    Forgery("removed-finding", "integrity findings are deleted", remove_finding),
    Forgery("edited-entry", "rewards are edited in the ledger's log", edit_entry),
    Forgery(
        "cut-ledger",
        "a failed trial is gone from plan, disk and numbers, and the log is cut before it",
        cut_ledger,
    ),
    Forgery(
        "withheld-failure",
        "a failed trial is withheld from the ledger, and gone from plan, disk and numbers",
        withhold_failure,
    ),
    Forgery(
        "sealed-anew",
        "edited everywhere, and all sealed anew with the same key",
        forge_and_seal_anew,
    ),
    Forgery(
        "sealed-by-another",
        "the same with another key",
        forge_and_seal_by_another_key,
    ),
    Forgery(
        "picked-and-sealed-anew",
        "attempts picked, and all sealed anew with the same key",
        drop_and_seal_anew,
    ),
    Forgery(
        "forged-before-sealing",
        "edited everywhere before it was sealed: the kept checkpoint is of the forgery",
        forge_before_sealing,
    ),
    Forgery(
        "passed-off",
        "trials of another runner, with records as if proctor had run them, sealed so",
        pass_off_as_own,
    ),
    Forgery(
        "typed-in",
        "commands of a person under a model's name, sealed so from the beginning",
        type_it_in,
    ),
    Forgery(
        "better-of-two",
        "the job was run twice, and the better run handed in",
        hand_in_the_better_run,
    ),
]
