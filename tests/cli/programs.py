"""proctor as a program: in this process where that is enough, else as a child."""

import contextlib
import io
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from proctor.audit.checks import records, scores, tasks, traces
from proctor.cli import (
    audit,
    check,
    outcome,
    score,
    show,
    task,
    trace,
)
from proctor.cli.main import main
from proctor.cli.showing import files, sealed
from proctor.cli.trace import writer
from tests.unprivileged import unprivileged

ROOT = Path(__file__).resolve().parent.parent.parent
LOADED = [
    *(audit, check, outcome, records, score, scores, show, files, sealed, task, tasks),
    *(trace, traces, writer),
]
"""What a command of `run_unprivileged` imports: this Python may lie where only root can read."""


@dataclass(frozen=True)
class Ran:
    """How a command ended."""

    code: int
    out: str
    err: str


type Proctor = Callable[..., Ran]
"""Runs a command in this process: `proctor("score", path)`."""


def run_here(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Proctor:
    """The program in this process, arguments to exit code; for fixtures."""

    def run(*arguments: object) -> Ran:
        monkeypatch.setattr(sys, "argv", ["proctor", *map(str, arguments)])
        with pytest.raises(SystemExit) as left:
            main()
        code = left.value.code
        assert isinstance(code, int)
        out, err = capsys.readouterr()
        return Ran(code, out, err)

    return run


def run_captured(*arguments: object) -> Ran:
    """The program in this process, for what has no fixtures of a test: a fixture of a module."""
    # Files, not only text: some commands write bytes.
    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True) for _ in range(2))
    with (
        pytest.MonkeyPatch.context() as patch,
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        patch.setattr(sys, "argv", ["proctor", *map(str, arguments)])
        with pytest.raises(SystemExit) as left:
            main()
    assert isinstance(left.value.code, int)
    return Ran(left.value.code, *(stream.buffer.getvalue().decode() for stream in (out, err)))


def environment(**changes: str) -> dict[str, str]:
    """The environment of a child; it finds proctor where this process does."""
    path = os.pathsep.join([str(ROOT / "src"), *filter(None, sys.path)])
    clean = {name: value for name, value in os.environ.items() if not name.startswith("COV")}
    return {**clean, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1", **changes}


def command_line(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "proctor", *map(str, arguments)]


def run_child(
    *arguments: object,
    env: Mapping[str, str] | None = None,
    stdin: str = "",
) -> Ran:
    """Run a command as a child, to its end."""
    return _run(command_line(*arguments), env, stdin)


def run_unprivileged(proctor: Proctor, *arguments: object) -> Ran:
    """Run a command in this process as a user whom file modes stop; root is not stopped by any."""
    with unprivileged():
        return proctor(*arguments)


def _run(command: list[str], env: Mapping[str, str] | None, stdin: str) -> Ran:
    done = subprocess.run(
        command,
        env=environment(**(env or {})),
        input=stdin,
        capture_output=True,
        text=True,
        check=False,
        # Only for a command that hangs: a busy machine is several times slower than an idle one.
        timeout=300,
    )
    return Ran(done.returncode, done.stdout, done.stderr)
