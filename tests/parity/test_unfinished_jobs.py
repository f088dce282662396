"""A job of proctor that was killed in the middle, gone on with by the real harbor, then by us."""

import json
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.parity.beside import proctor
from tests.parity.facts import TASKS, load_groups
from tests.parity.theirs import NULL, Harbor, variables
from tests.parity.trees import load_tree

N_TRIALS = 6
N_DONE = 3
"""Trials that have a result when the runner dies."""


def kill_in_the_middle(place: Path, *words: str) -> Path:
    """A job of six trials whose runner was killed as the third of them had ended."""
    shutil.copytree(TASKS / "binary", place / "tasks")
    line = [sys.executable, "-m", "tests.faults.mortal", "run", "-p", "tasks", "-k", "2"]
    line += ["-n", "3", "-o", "jobs", "--job-name", "job", *words]
    env = {**variables(), "DIE_AT": "ended", "DIE_NTH": str(N_DONE)}
    died = subprocess.run(line, cwd=place, env=env, capture_output=True, timeout=120, check=False)
    assert died.returncode == -signal.SIGKILL, died.stderr
    return place / "jobs" / "job"


def done_in(job: Path) -> dict[str, dict[str, bytes]]:
    """All files of every trial that has a result, by its name."""
    return {path.parent.name: load_tree(path.parent) for path in job.glob("*/result.json")}


def load(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def test_harbor_ends_a_killed_job_of_ours_and_we_take_what_it_added(
    harbor: Harbor, tmp_path: Path
) -> None:
    job = kill_in_the_middle(tmp_path, "-a", "oracle", "--environment-import-path", NULL)
    before = done_in(job)
    assert len(before) == N_DONE
    ran = harbor("job", "resume", "-p", "jobs/job", cwd=tmp_path)
    assert ran.code == 0, ran.said
    after = done_in(job)
    assert (len(after), {name: after[name] for name in before}) == (N_TRIALS, before)
    result = load(job / "result.json")
    assert result["finished_at"] is not None
    stats = result["stats"]
    assert (stats["n_completed_trials"], stats["n_pending_trials"]) == (N_TRIALS, 0)
    check_ours_agrees(tmp_path, job)
    (theirs, *_) = [job / name for name, tree in after.items() if "record.json" not in tree]
    words = ("--experiment", "night", "--task", f"tasks/{theirs.name.partition('__')[0]}")
    sealed = proctor("ledger", "seal", theirs, *words, cwd=tmp_path)
    assert sealed.code == 0, sealed.err


def check_ours_agrees(place: Path, job: Path) -> None:
    """Our commands keep every trial, find the same numbers, and have no complaint."""
    trials, groups = done_in(job), load_groups(job)
    resumed = proctor("resume", "jobs/job", cwd=place)
    assert resumed.code == 0, resumed.err
    assert f"kept from before: {N_TRIALS} trials" in resumed.out
    assert f"not sealed, no record.json: {N_TRIALS - N_DONE} trials" in resumed.out
    assert "is not a trial of this job" not in resumed.err
    assert (done_in(job), load_groups(job)) == (trials, groups)
    scored = proctor("score", "jobs/job", "--json", cwd=place)
    assert scored.code == 0, scored.err
    audited = proctor("audit", "jobs/job", cwd=place)
    assert audited.code == 0, audited.out
    assert "the published numbers follow" in audited.out


@pytest.mark.parametrize("name", ["null", "sandbox"])
def test_harbor_cannot_go_on_in_an_environment_of_ours_and_no_result_is_lost(
    harbor: Harbor, tmp_path: Path, name: str
) -> None:
    job = kill_in_the_middle(tmp_path, "-a", "oracle", "-e", name)
    before = done_in(job)
    assert len(before) == N_DONE
    ran = harbor("job", "resume", "-p", "jobs/job", cwd=tmp_path)
    assert ran.code == 1
    assert "unexpected keyword argument" in " ".join(ran.said.split())
    assert done_in(job) == before
    resumed = proctor("resume", "jobs/job", cwd=tmp_path)
    assert resumed.code == 0, resumed.err
    assert f"kept from before: {N_DONE} trials" in resumed.out
    # What harbor began and could not run is said, and left.
    assert "is not a trial of this job: it is left alone and not counted\n" in resumed.err
    after = done_in(job)
    assert (len(after), {name: after[name] for name in before}) == (N_TRIALS, before)
    audited = proctor("audit", "jobs/job", cwd=tmp_path)
    assert audited.code == 0, audited.out


def test_trials_that_harbor_has_retried_are_not_retried_again_by_us(
    harbor: Harbor, tmp_path: Path
) -> None:
    words = ("--environment-import-path", NULL, "-r", "1", "--agent-import-path")
    job = kill_in_the_middle(tmp_path, *words, "tests.parity.their_agents:Failing")
    assert harbor("job", "resume", "-p", "jobs/job", cwd=tmp_path).code == 0
    theirs = {name: tree for name, tree in done_in(job).items() if "record.json" not in tree}
    assert theirs
    for _ in range(2):
        # The second time harbor's trials are in our own books.
        resumed = proctor("resume", "jobs/job", cwd=tmp_path)
        assert resumed.code in (0, 3), resumed.err
    after = done_in(job)
    assert (len(after), {name: after[name] for name in theirs}) == (N_TRIALS, theirs)
