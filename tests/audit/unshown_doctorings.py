"""Jobs that contradict nothing and whose numbers nobody can recompute."""

import shutil
from functools import partial
from pathlib import Path

from proctor.audit.findings import Kind
from tests.audit.directories import (
    Document,
    edit_config,
    edit_json,
    find_trial,
    publish,
    set_reward,
    write_json,
)
from tests.audit.doctors import Change, Doctoring, in_group

BINARY, REWARDS = "01-binary-oracle-k1", "05-rewards-oracle-k1"


def declare_script(job: Path) -> None:
    """A metric of a script that is nowhere, with the value that the forger likes."""
    metric = {"type": "uv-script", "kwargs": {"script_path": "metric.py"}}
    edit_json(job / "config.json", lambda config: config.update(metrics=[metric]))
    in_group("oracle__binary", lambda group: group.update(metrics=[{"best": 1.0}]))(job)


def name_registry_dataset(job: Path, dataset: str = "binary") -> None:
    """The dataset is told to be of a registry, which alone knows its metrics."""
    edit_json(
        job / "config.json", lambda config: config.update(datasets=[{"name": dataset}], metrics=[])
    )


def invent_registry_metric(job: Path) -> None:
    name_registry_dataset(job)
    in_group("oracle__binary", lambda group: group.update(metrics=[{"score": 1.0}]))(job)


def publish_maximum(job: Path) -> None:
    name_registry_dataset(job)
    in_group("oracle__binary", lambda group: group.update(metrics=[{"max": 1.0}]))(job)


def publish_maximum_of_several_keys(job: Path) -> None:
    """With several reward keys an entry has their names, and not that of its metric."""
    for trial in job.glob("*__*"):
        rewards = {"reward": 0.0 if "wrong" in trial.name else 1.0, "speed": 0.5}
        write_json(trial / "verifier" / "reward.json", rewards)
        set_rewards = partial(dict.update, verifier_result={"rewards": rewards})
        edit_json(trial / "result.json", set_rewards)
    publish(job)
    name_registry_dataset(job)
    largest = {"reward": 1.0, "speed": 0.5}
    in_group("oracle__binary", lambda group: group.update(metrics=[largest]))(job)


def delete_declaration(job: Path) -> None:
    """Without config.json, a maximum may be what was asked for."""
    (job / "config.json").unlink()
    in_group("oracle__binary", lambda group: group.update(metrics=[{"max": 1.0}]))(job)


def claim_own_verifier_everywhere(job: Path) -> None:
    """A verifier of the forger's own, which leaves no reward file, in every plan."""
    trial = find_trial(job, "oracle-wrong")
    change: Change = lambda config: config["verifier"].update(import_path="mine:Verifier")  # noqa: E731
    edit_config(trial, change)
    set_reward(trial, 1.0)
    (trial / "verifier" / "reward.txt").unlink()

    def plan(lock: Document) -> None:
        for slot in lock["trials"]:
            if slot["task"]["name"] == "oracle-wrong":
                change(slot)

    edit_json(job / "lock.json", plan)
    publish(job)


def remove_every_trial(job: Path) -> None:
    for trial in job.glob("*__*"):
        shutil.rmtree(trial)
    edit_json(job / "lock.json", lambda lock: lock.update(trials=[]))
    edit_json(job / "result.json", lambda result: result.update(n_total_trials=0))
    publish(job)


UNSHOWN = {"result.json": {Kind.NOT_RECOMPUTED}}
UNSHOWN_DOCTORINGS = [
    Doctoring("a script that is not there", BINARY, declare_script, UNSHOWN),
    Doctoring("a metric that only a registry knows", BINARY, invent_registry_metric, UNSHOWN),
    Doctoring("a maximum that nothing declares", BINARY, publish_maximum, UNSHOWN),
    Doctoring("a maximum under several keys", BINARY, publish_maximum_of_several_keys, UNSHOWN),
    Doctoring("a maximum without config.json", BINARY, delete_declaration, UNSHOWN),
    Doctoring(
        "a verifier that leaves no file",
        BINARY,
        claim_own_verifier_everywhere,
        {"oracle-wrong": {Kind.NO_REWARD_FILES}},
    ),
    Doctoring("no trial at all", BINARY, remove_every_trial, {".": {Kind.NO_TRIALS}}),
]
