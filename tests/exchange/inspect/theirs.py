"""The real inspect_ai, in processes of its own."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

_PROGRAM = Path(__file__).with_name("program.py")
_MOST_SEC = 600


def _run(*command: object) -> str:
    done = subprocess.run(
        [str(each) for each in command],
        capture_output=True,
        text=True,
        check=False,
        timeout=_MOST_SEC,
        # Nothing of the machine's own settings: no keys, no log directory, no colours.
        env={name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ},
    )
    if done.returncode != 0:
        pytest.fail(f"{command[0]}: {done.stderr[-2000:]}")
    return done.stdout


def make_logs(place: Path) -> None:
    """Run tasks with Inspect and its model without a network; their logs."""
    _run(sys.executable, _PROGRAM, "make", place)


def read_theirs(*paths: Path) -> list[dict[str, Any]]:
    """What Inspect reads in logs."""
    found: list[dict[str, Any]] = json.loads(_run(sys.executable, _PROGRAM, "read", *paths))
    return found


def list_theirs(place: Path) -> list[dict[str, Any]]:
    """What Inspect's list of logs and its viewer read in a directory."""
    found: list[dict[str, Any]] = json.loads(_run(sys.executable, _PROGRAM, "list", place))
    return found


def bundle_theirs(place: Path, target: Path) -> None:
    """Make a page of Inspect's viewer with the logs of a directory."""
    program = Path(sys.executable).with_name("inspect")
    _run(program, "view", "bundle", "--log-dir", place, "--output-dir", target)
