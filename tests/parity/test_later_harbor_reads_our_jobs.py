"""A job directory of proctor in the hands of harbor 0.25: it is in the form of 0.13.1."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.later import run_with
from tests.parity.beside import proctor, run_ours
from tests.parity.facts import TASKS
from tests.parity.shared import made_once
from tests.parity.theirs import NULL, variables
from tests.parity.trees import load_tree
from tests.parity.viewer import viewing

pytestmark = pytest.mark.soak

CONFIG = f"""
n_attempts: 2
agents: [{{name: oracle}}, {{name: nop}}]
datasets:
  - path: {TASKS / "binary"}
    task_names: [oracle-wrong, pass-simple]
  - path: {TASKS / "multistep"}
    task_names: [ms-mean]
  - path: {TASKS / "errors"}
    task_names: [no-solution]
"""
N_TRIALS = 16
READ = """
import json, sys
from pathlib import Path
from harbor.models.job.config import JobConfig
from harbor.models.job.lock import JobLock
from harbor.models.job.result import JobResult
from harbor.models.trial.config import TrialConfig
from harbor.models.trial.result import TrialResult

job = Path(sys.argv[1])
models = {"config.json": JobConfig, "lock.json": JobLock, "result.json": JobResult}
models |= {f"{p.parent.name}/config.json": TrialConfig for p in job.glob("*/config.json")}
models |= {f"{p.parent.name}/result.json": TrialResult for p in job.glob("*/result.json")}
read = {name: model.model_validate_json((job / name).read_text()) for name, model in models.items()}
print(json.dumps({name: json.loads(value.model_dump_json()) for name, value in read.items()}))
"""
RESUME = "import sys; from harbor.cli.main import app; sys.exit(app())"


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished job of proctor, in the sandbox; not to be changed."""

    def make(place: Path) -> None:
        config = place / "job.yaml"
        config.write_text(CONFIG, encoding="utf-8")
        run_ours("-c", config, jobs=place, code=3)

    return made_once(tmp_path_factory, "read-later", make) / "job"


def find_lost(ours: Any, theirs: Any, place: str = "") -> set[str]:
    """The keys of ours that theirs lacks or has with another value."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        return {
            lost
            for key, value in ours.items()
            for lost in (
                find_lost(value, theirs[key], f"{place}.{key}")
                if key in theirs
                # harbor 0.25 leaves out tables of variables that are empty.
                else {f"{place}.{key}"} - ({f"{place}.env"} if value == {} else set())
            )
        }
    if isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        pairs = zip(ours, theirs, strict=True)
        return {lost for pair in pairs for lost in find_lost(*pair, f"{place}[]")}
    return set() if ours == theirs else {place}


def test_the_later_harbor_reads_every_file_and_loses_nothing_that_counts(
    wheel: Path, job: Path
) -> None:
    read = json.loads(run_with(wheel, "-c", READ, str(job)))
    assert len(read) == 3 + 2 * N_TRIALS
    for name, theirs in read.items():
        ours = json.loads((job / name).read_text())
        if "retry" in ours:
            theirs["retry"]["exclude_exceptions"].sort()
        lost = {"config.json": {".plugins"}, "lock.json": {".invocation"}}.get(name, set())
        assert find_lost(ours, theirs) == lost, name


def test_the_viewer_of_the_later_harbor_shows_the_same_rewards(
    wheel: Path, job: Path, tmp_path: Path
) -> None:
    with viewing(job.parent, tmp_path / "viewer.txt", first=wheel) as viewer:
        listed = viewer("jobs/job/trials", page_size=100)["items"]
    assert len(listed) == N_TRIALS
    for each in listed:
        result = json.loads((job / each["name"] / "result.json").read_text())
        rewards = (result["verifier_result"] or {}).get("rewards") or {}
        assert each["reward"] == rewards.get("reward"), each["name"]


def resume_later(wheel: Path, job: Path) -> str:
    """What `harbor job resume` of the later harbor says; it must fail."""
    words = [sys.executable, "-c", RESUME, "job", "resume", "-p", str(job)]
    ran = subprocess.run(words, env=variables(wheel), capture_output=True, text=True, check=False)
    assert ran.returncode != 0
    return " ".join((ran.stdout + ran.stderr).split())


def test_the_later_harbor_cannot_resume_our_job_and_loses_no_result(
    wheel: Path, tmp_path: Path
) -> None:
    tasks = ("-p", TASKS / "binary", "-i", "pass-*", "-a", "oracle")
    run_ours(*tasks, "--environment-import-path", NULL, "--no-ledger", jobs=tmp_path, code=0)
    job = tmp_path / "job"
    (unfinished,) = job.glob("pass-two__*")
    (unfinished / "result.json").unlink()
    copy = Path(shutil.copytree(job, tmp_path / "copy"))
    assert "does not match the resolved job lock" in resume_later(wheel, job)
    before, after = load_tree(copy), load_tree(job)
    changed = {name for name in before | after if before.get(name) != after.get(name)}
    # As harbor 0.13.1 does, it deletes what has no result.
    assert {name for name in changed if unfinished.name not in name} == {"config.json"}
    assert not unfinished.exists()
    for words in (("resume", job, "--no-ledger", "-q"), ("audit", job), ("score", job)):
        assert proctor(*words).code == 0, words


def test_the_later_harbor_ends_at_our_sandbox_and_changes_nothing(
    wheel: Path, job: Path, tmp_path: Path
) -> None:
    copy = Path(shutil.copytree(job, tmp_path / "job"))
    assert "'SandboxEnvironment' has no attribute" in resume_later(wheel, copy)
    assert load_tree(copy) == load_tree(job)
