"""The real inspect_ai, in an environment of its own that is kept in build/ for later runs."""

import fcntl
import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT

PACKAGE = "inspect-ai==0.3.285"
_PROGRAM = Path(__file__).with_name("program.py")
_FETCH_SEC = 600


def find_python() -> Path:
    """A Python with inspect_ai, which is too large for everybody's environment."""
    place = ROOT / "build" / "inspect" / PACKAGE
    place.mkdir(parents=True, exist_ok=True)
    made = place / "venv"
    with (place / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (place / "made").exists():
            uv = _run(ROOT / "scripts" / "get-uv").strip()
            _run(uv, "venv", "--quiet", "--clear", "--no-project", "--python", "3.12", made)
            _run(uv, "pip", "install", "--quiet", "--python", made / "bin" / "python", PACKAGE)
            (place / "made").touch()
    return made / "bin" / "python"


def _run(*command: object) -> str:
    done = subprocess.run(
        [str(each) for each in command],
        capture_output=True,
        text=True,
        check=False,
        timeout=_FETCH_SEC,
        # Nothing of the machine's own settings: no keys, no log directory, no colours.
        env={name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
        | {name: value for name, value in os.environ.items() if name.startswith(("UV_", "SSL_"))},
    )
    if done.returncode != 0:
        pytest.fail(f"{command[0]}: {done.stderr[-2000:]}")
    return done.stdout


def make_logs(place: Path) -> None:
    """Run tasks with Inspect and its model without a network; their logs."""
    _run(find_python(), _PROGRAM, "make", place)


def read_theirs(*paths: Path) -> list[dict[str, Any]]:
    """What Inspect reads in logs."""
    found: list[dict[str, Any]] = json.loads(_run(find_python(), _PROGRAM, "read", *paths))
    return found


def list_theirs(place: Path) -> list[dict[str, Any]]:
    """What Inspect's list of logs and its viewer read in a directory."""
    found: list[dict[str, Any]] = json.loads(_run(find_python(), _PROGRAM, "list", place))
    return found


def bundle_theirs(place: Path, target: Path) -> None:
    """Make a page of Inspect's viewer with the logs of a directory."""
    program = find_python().with_name("inspect")
    _run(program, "view", "bundle", "--log-dir", place, "--output-dir", target)
