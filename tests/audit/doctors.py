"""Ways to falsify a job directory. Each doctor takes the copy of a real job.

The more careful ones cover their tracks: they `publish`, so that the job result fits the trials.
"""

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from proctor.audit.findings import Kind
from tests.audit.directories import (
    COPIED,
    Document,
    edit_config,
    edit_json,
    find_trial,
    publish,
    read_json,
    set_reward,
    write_json,
    write_record,
)

type Doctor = Callable[[Path], None]
type Change = Callable[[Document], object]


@dataclass(frozen=True)
class Doctoring:
    """A falsification, and every difference an audit must name for it."""

    name: str
    job: str
    doctor: Doctor
    findings: dict[str, set[Kind]]
    """Kinds by file, relative to the job; trials without their suffix."""


def in_stats(change: Change) -> Doctor:
    """A doctor that changes `stats` of the job result."""
    return lambda job: edit_json(job / "result.json", lambda result: change(result["stats"]))


def in_group(key: str, change: Change) -> Doctor:
    """A doctor that changes one group of the job result."""
    return in_stats(lambda stats: change(stats["evals"][key]))


def in_trial(task: str, change: Change) -> Doctor:
    """A doctor that changes a trial result and makes the job result fit."""

    def doctor(job: Path) -> None:
        edit_json(find_trial(job, task) / "result.json", change)
        publish(job)

    return doctor


def raise_reward_text(job: Path) -> None:
    (find_trial(job, "oracle-wrong") / "verifier" / "reward.txt").write_text("1\n")


def edit_reward_json(job: Path) -> None:
    path = find_trial(job, "multi-metric") / "verifier" / "reward.json"
    write_json(path, {"correctness": 1, "speed": 1.0})


def turn_int_to_float(job: Path) -> None:
    path = find_trial(job, "multi-metric") / "verifier" / "reward.json"
    write_json(path, {"correctness": 1.0, "speed": 0.5})


def raise_claim(job: Path) -> None:
    set_reward(find_trial(job, "oracle-wrong"), 1.0)


def raise_claim_by_one_bit(job: Path) -> None:
    set_reward(find_trial(job, "oracle-wrong"), 5e-324)


def raise_file_and_claim(job: Path) -> None:
    raise_reward_text(job)
    raise_claim(job)


def raise_everything_but_the_record(job: Path) -> None:
    write_record(find_trial(job, "oracle-wrong"))
    raise_file_and_claim(job)
    publish(job)


def raise_claim_and_numbers(job: Path) -> None:
    """What a forger does who knows of every file but the verifier's."""
    raise_file_and_claim(job)
    publish(job)
    (find_trial(job, "oracle-wrong") / "verifier" / "reward.txt").write_text("0\n")


def drop_claim(job: Path) -> None:
    in_trial("oracle-wrong", lambda trial: trial.update(verifier_result=None))(job)


def drop_claim_and_trial(job: Path) -> None:
    """A failure made to look as if it had never been verified, and taken out of the mean."""
    drop_claim(job)
    group = {"n_trials": 2, "metrics": [{"mean": 1.0}]}
    in_group("oracle__binary", lambda found: found.update(group))(job)
    in_group("oracle__binary", lambda found: found["reward_stats"]["reward"].pop("0.0"))(job)


def move_in_reward_stats(group: Document) -> None:
    rewards = group["reward_stats"]["reward"]
    rewards["1.0"].extend(rewards.pop("0.0"))


def delete_trial(job: Path) -> None:
    shutil.rmtree(find_trial(job, "oracle-wrong"))


def delete_trial_and_publish(job: Path) -> None:
    delete_trial(job)
    edit_json(job / "result.json", lambda result: result.update(n_total_trials=2))
    publish(job)


def delete_trial_and_confess(job: Path) -> None:
    """The plan is left as it was: the job says that it finished without one of its trials."""
    delete_trial(job)
    publish(job)


def copy_trial(job: Path) -> None:
    source = find_trial(job, "pass-simple")
    shutil.copytree(source, job / "pass-simple__AAAAAAA")


def copy_trial_as_its_own(job: Path) -> None:
    """A pass copied over a failed task's attempt, with an id, a name and a day of its own."""
    source, target = find_trial(job, "pass-simple"), job / "pass-simple__AAAAAAA"
    shutil.copytree(source, target)
    text = (target / "result.json").read_text().replace(source.name, target.name)
    (target / "result.json").write_text(text.replace("2026-11-15T18", "2026-11-15T17"))
    edit_json(target / "result.json", lambda trial: trial.update(id="0" * 32))
    edit_json(target / "config.json", lambda config: config.update(trial_name=target.name))
    edit_json(job / "result.json", lambda result: result.update(n_total_trials=4))
    publish(job)


def replace_attempt_by_copy(job: Path) -> None:
    """A failed attempt replaced by a copy of a good one, in the very slot of the plan."""
    trials = {path: read_json(path / "result.json") for path in sorted(job.glob("pass-two__*"))}
    rewards = {path: trial["verifier_result"]["rewards"] for path, trial in trials.items()}
    good = next(path for path in trials if rewards[path]["reward"] == 1.0)
    bad = next(path for path in trials if rewards[path]["reward"] == 0.0)
    shutil.rmtree(bad)
    shutil.copytree(good, bad)
    text = (bad / "result.json").read_text().replace(good.name, bad.name)
    (bad / "result.json").write_text(text.replace("2026-11-15T18", "2026-11-15T17"))
    edit_json(bad / "result.json", lambda trial: trial.update(id="0" * 32))
    edit_json(bad / "config.json", lambda config: config.update(trial_name=bad.name))
    publish(job)


def take_trial_of_other_job(job: Path) -> None:
    """The failure is replaced by a pass of another run of the same task."""
    delete_trial(job)
    other = COPIED / "16-agent-nonzero"
    source = find_trial(other, "oracle-wrong")
    target = job / source.name
    shutil.copytree(source, target)
    (target / "exception.txt").unlink()
    agent = read_json(find_trial(job, "pass-two") / "config.json")["agent"]
    edit_config(target, lambda config: config.update(agent=agent))
    ours = {"agent_info": {"name": "oracle", "version": "1.0.0", "model_info": None}}
    edit_json(target / "result.json", lambda trial: trial.update(ours, exception_info=None))
    publish(job)


def rename_directory(job: Path) -> None:
    find_trial(job, "oracle-wrong").rename(job / "oracle-right__2j385Vz")


def remove_exception(job: Path) -> None:
    in_trial("agent-timeout", lambda trial: trial.update(exception_info=None))(job)


def invent_exception(job: Path) -> None:
    """A failure explained away: errored trials are often left out of a comparison."""
    told = {"exception_type": "EnvironmentStartTimeoutError", "exception_message": "docker"}
    in_trial("oracle-wrong", lambda trial: trial.update(exception_info=told))(job)


def delete_reward_file(job: Path) -> None:
    (find_trial(job, "pass-two") / "verifier" / "reward.txt").unlink()


def pass_a_stopped_verifier(job: Path) -> None:
    """The file that a verifier left when it was stopped for time is made to count."""
    passed = {"exception_info": None, "verifier_result": {"rewards": {"reward": 1.0}}}
    in_trial("verifier-timeout", lambda trial: trial.update(passed))(job)


def replace_error(task: str, error: str) -> Doctor:
    """A doctor that gives a trial's exception another name."""
    return in_trial(task, lambda trial: trial["exception_info"].update(exception_type=error))


def edit_step_claim(job: Path) -> None:
    def change(trial: Document) -> None:
        trial["step_results"][1]["verifier_result"]["rewards"]["reward"] = 1

    in_trial("ms-mean", change)(job)


def edit_step_file(job: Path) -> None:
    path = find_trial(job, "ms-mean") / "steps" / "two" / "verifier" / "reward.json"
    write_json(path, {"reward": 1})


def delete_step_file(job: Path) -> None:
    (find_trial(job, "ms-final") / "steps" / "one" / "verifier" / "reward.json").unlink()


def edit_step_total(job: Path) -> None:
    def change(trial: Document) -> None:
        trial["verifier_result"]["rewards"]["reward"] = 1.0

    edit_json(find_trial(job, "ms-mean") / "result.json", change)


def hide_step_behind_error(job: Path) -> None:
    """A step that scored 0 is said to have left no reward: the mean is over the others."""

    def change(trial: Document) -> None:
        step = trial["step_results"][1]
        step.update(verifier_result=None)
        step.update(exception_info={"exception_type": "RewardFileNotFoundError"})
        trial["verifier_result"]["rewards"] = {"part3": 0.25, "reward": 1.0, "part1": 0.25}

    in_trial("ms-mean", change)(job)


def raise_timeout_in_config(job: Path) -> None:
    path = find_trial(job, "oracle-wrong") / "config.json"
    edit_json(path, lambda config: config.update(timeout_multiplier=10.0))


def raise_timeout_in_both(job: Path) -> None:
    change: Change = lambda config: config.update(timeout_multiplier=10.0)  # noqa: E731
    edit_config(find_trial(job, "oracle-wrong"), change)


def disable_verifier_and_claim(job: Path) -> None:
    """Nobody looks at a reward file when verification was disabled."""
    trial = find_trial(job, "oracle-wrong")
    edit_config(trial, lambda config: config["verifier"].update(disable=True))
    set_reward(trial, 1.0)
    publish(job)


def claim_without_verification(job: Path) -> None:
    set_reward(find_trial(job, "oracle-wrong"), 1.0)
    publish(job)


def claim_own_verifier(job: Path) -> None:
    """A custom verifier leaves no reward file that could contradict."""
    trial = find_trial(job, "oracle-wrong")
    edit_config(trial, lambda config: config["verifier"].update(import_path="mine:Verifier"))
    (trial / "verifier" / "reward.txt").unlink()
    set_reward(trial, 1.0)
    publish(job)


def change_checksum(job: Path) -> None:
    trial = find_trial(job, "oracle-wrong")
    edit_json(trial / "result.json", lambda found: found.update(task_checksum="0" * 64))


def change_dataset(job: Path) -> None:
    """Failures are moved out of the dataset that is published."""
    in_trial("oracle-wrong", lambda trial: trial.update(source="practice"))(job)


def change_dataset_everywhere(job: Path) -> None:
    trial = find_trial(job, "oracle-wrong")
    edit_config(trial, lambda config: config["task"].update(source="practice"))
    change_dataset(job)


def change_model(job: Path) -> None:
    """The failures are another model's."""

    def change(trial: Document) -> None:
        trial["agent_info"]["model_info"]["name"] = "model-y"

    in_trial("oracle-wrong", change)(job)


def change_agent(job: Path) -> None:
    in_trial("oracle-wrong", lambda trial: trial["agent_info"].update(name="nop"))(job)


def rename_group(stats: Document) -> None:
    stats["evals"]["oracle__terminal-bench"] = stats["evals"].pop("oracle__binary")


def tear(path: str) -> Doctor:
    """A doctor that cuts a file in half; `TASK/…` as in Doctoring."""

    def doctor(job: Path) -> None:
        file = resolve(job, path)
        data = file.read_bytes()
        file.write_bytes(data[: len(data) // 2])

    return doctor


def empty_result(job: Path) -> None:
    (job / "result.json").write_bytes(b"")


def delete_result(job: Path) -> None:
    (job / "result.json").unlink()


def finish_killed_job(job: Path) -> None:
    finished = {"finished_at": "2026-11-15T19:10:00.000000"}
    edit_json(job / "result.json", lambda result: result.update(finished))


def raise_mean_of_killed_job(job: Path) -> None:
    """A killed job may be a step behind its trials: that must excuse nothing else."""
    edit_json(find_trial(job, "slow-0") / "result.json", lambda trial: trial.update(id="x"))
    in_stats(lambda stats: stats.update(n_completed_trials=1))(job)
    in_group("oracle__slow", lambda group: group.update(metrics=[{"mean": 2.0}]))(job)


def claim_pass_at_k_of_stopped_job(job: Path) -> None:
    in_group("oracle__slow", lambda group: group.update(pass_at_k={"2": 1.0}))(job)


def reverse_times(trial: Document) -> None:
    trial["started_at"], trial["finished_at"] = trial["finished_at"], trial["started_at"]


def shorten_trial(trial: Document) -> None:
    """A trial made to look quick; its phases say otherwise."""
    trial["finished_at"] = trial["agent_setup"]["started_at"]


def reorder_contradictorily(job: Path) -> None:
    """Two lists of the same trials in opposite orders: no order of adding up gives both."""

    def change(group: Document) -> None:
        trials = group["reward_stats"]["correctness"]["1"]
        group["reward_stats"]["speed"]["0.5"] = trials[::-1]

    in_group("oracle__rewards", change)(job)


def duplicate_metric(group: Document) -> None:
    group["metrics"].append(group["metrics"][0])


def resolve(job: Path, path: str) -> Path:
    """The file that a doctoring means."""
    task, _, rest = path.partition("/")
    found = sorted(job.glob(f"{task}__*"))
    return found[0] / rest if found else job / path
