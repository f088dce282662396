"""A job that was run, and the command that runs it again."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.cli.programs import Proctor, run_here
from tests.rerun.jobs import HONEST, Again, digest_tree, run_trial, scripted


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a task and a job of one honest trial."""
    place = tmp_path_factory.mktemp("honest")
    run_trial(place, scripted(place, HONEST))
    return place


@pytest.fixture
def job(honest: Path, tmp_path: Path) -> Path:
    """A copy of the honest job, to be doctored."""
    return Path(shutil.copytree(honest / "jobs" / "job", tmp_path / "copy"))


@pytest.fixture
def proctor(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Proctor:
    return run_here(monkeypatch, capsys)


@pytest.fixture
def again(proctor: Proctor, tmp_path: Path) -> Again:
    """Run one trial of a job again: what was said of it, and the exit code."""

    def run(audited: Path, *words: object) -> dict[str, Any]:
        before = digest_tree(audited)
        ran = proctor("audit", audited, "--rerun", 1, "-o", tmp_path / "new", "--json", *words)
        assert digest_tree(audited) == before
        (found,) = json.loads(ran.out)["reruns"]
        return {**found, "code": ran.code}

    return run
