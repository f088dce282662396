"""The same job twice: by proctor in its sandbox, by the real harbor in an environment like it."""

import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.cli.programs import Ran, run_captured
from tests.parity.theirs import BUILDING, Harbor, HarborRan, variables

AS_LISTED = "proctor: {task_order: directory}\n"
"""In a job file: tasks in harbor's order."""


def run_ours(
    *arguments: object, jobs: Path | str, code: int | None = None, cwd: Path | None = None
) -> Ran:
    """Run a job named `job` with proctor; unless told otherwise it must not fail as a whole."""
    where = ("-o", jobs, "--job-name", "job", "-q", "-y")
    ran = proctor("run", *arguments, *where, cwd=cwd)
    assert ran.code in ((0, 3) if code is None else (code,)), ran.err
    return ran


def proctor(
    *arguments: object, cwd: Path | None = None, env: Mapping[str, str] | None = None
) -> Ran:
    """Run a command of proctor in this process; it finds what harbor finds, and more variables."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in (variables() | dict(env or {})).items():
            patch.setenv(name, value)
        if cwd is not None:
            patch.chdir(cwd)
        return run_captured(*arguments)


def run_theirs(
    harbor: Harbor, *arguments: object, jobs: Path, environment: str = BUILDING, code: int = 0
) -> HarborRan:
    """Run a job named `job` with harbor."""
    if environment == BUILDING and os.geteuid() != 0:
        pytest.skip("harbor's side needs root for its namespaces")
    where = ("-o", jobs, "--job-name", "job", "-y", "-q", "--environment-import-path", environment)
    ran = harbor("run", *arguments, *where)
    assert ran.code == code, ran.said
    return ran
