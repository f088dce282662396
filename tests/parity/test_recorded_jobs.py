"""The tasks of real harbor jobs, run again by proctor: every trial and every figure as recorded."""

import json
from pathlib import Path

import pytest

from tests.parity.beside import run_ours
from tests.parity.facts import JOBS, TASKS, load_facts, load_groups

OF_ALL_TASKS = [
    "01-binary-oracle-k1",
    "02-binary-nop-k1",
    "05-rewards-oracle-k1",
    "06-errors-oracle-k1",
    "10-multistep-oracle-mounted",
    "12-nan-oracle",
    "13-single-task-adhoc",
    "40-dataset-name-dunder",
]
"""Groups of one large job: a group's figures do not depend on the groups beside it."""

SCRIPTED = ("--agent-import-path", "tests.parity.their_agents:Scripted")

ALONE: dict[str, tuple[object, ...]] = {
    "03-binary-oracle-k5": ("binary", "-a", "oracle", "-k", 5),
    "04-binary-scripted-k5": (
        "binary", *SCRIPTED, "-m", "acme/model-x", "--ak", "pattern=10110", "-k", 5,
    ),
    "14-two-models": ("binary", *SCRIPTED, "-m", "acme/model-x", "-m", "model-y", "-k", 2),
    "16-agent-nonzero": ("binary", "--agent-import-path", "tests.parity.their_agents:Failing"),
    "17-agent-hang": (
        "binary", "--agent-import-path", "tests.parity.their_agents:Hanging",
        "--agent-timeout-multiplier", 0.05,
    ),
    "20-flaky-retry3": (
        "binary", "--agent-import-path", "tests.parity.their_agents:Flaky", "-r", 3,
    ),
    "22-disable-verification": ("binary", "-a", "oracle", "--disable-verification"),
    "29-passk-20": (
        "binary", *SCRIPTED, "--ak", "pattern=00100000000000010000", "-k", 20, "-i", "pass-*",
    ),
    "51-tamper-mounted-true": (
        "tamper", "-a", "oracle", "--verifier-compat", "harbor-0.13.1",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", OF_ALL_TASKS)
def test_a_recorded_job_is_a_part_of_the_job_over_all_tasks(name: str, our_job: Path) -> None:
    recorded, made = load_facts(JOBS / name), load_facts(our_job)
    assert recorded == {key: made[key] for key in recorded}
    groups, ours = load_groups(JOBS / name)["evals"], load_groups(our_job)["evals"]
    assert groups == {key: ours[key] for key in groups}


@pytest.mark.parametrize(
    "name",
    # Twenty attempts take long, and their figures are recomputed by the conformance suite.
    [pytest.param(name, marks=pytest.mark.soak if "passk" in name else ()) for name in ALONE],
)
def test_a_recorded_job_comes_out_the_same(name: str, tmp_path: Path) -> None:
    tasks, *options = ALONE[name]
    jobs = tmp_path / "0"
    run_ours("-p", TASKS / str(tasks), *options, jobs=jobs)
    while has_empty_reward(jobs / "job") and jobs.name < "2":
        jobs = tmp_path / str(int(jobs.name) + 1)
        run_ours("-p", TASKS / str(tasks), *options, jobs=jobs)
    assert load_facts(JOBS / name) == load_facts(jobs / "job")
    assert load_groups(JOBS / name) == load_groups(jobs / "job")


def has_empty_reward(job: Path) -> bool:
    """Whether a reward file was read in the moment between its opening and its writing.

    A process of the task `tamper/background-writer` writes it again and again; on a busy machine
    the moment is long.
    """
    trials = (json.loads(path.read_text()) for path in job.glob("*/result.json"))
    errors = [trial["exception_info"] for trial in trials if trial["exception_info"]]
    return any(error["exception_type"] == "RewardFileEmptyError" for error in errors)
