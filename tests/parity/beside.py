"""The same job twice: by proctor in its sandbox, by the real harbor in an environment like it."""

import contextlib
import io
import os
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from proctor.cli.main import main
from tests.cli.programs import Ran
from tests.parity.theirs import BUILDING, Harbor, HarborRan, variables


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
    # Files, not only text: some commands write bytes.
    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True) for _ in range(2))
    with (
        pytest.MonkeyPatch.context() as patch,
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        for name, value in (variables() | dict(env or {})).items():
            patch.setenv(name, value)
        patch.setattr(sys, "argv", ["proctor", *map(str, arguments)])
        if cwd is not None:
            patch.chdir(cwd)
        with pytest.raises(SystemExit) as left:
            main()
    assert isinstance(left.value.code, int)
    return Ran(left.value.code, *(stream.buffer.getvalue().decode() for stream in (out, err)))


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
