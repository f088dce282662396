"""Agents that are no Python packages: fetched once, and kept in build/ for later runs."""

import fcntl
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.conftest import ROOT

CLAUDE = "@anthropic-ai/claude-code@2.1.197"
_FETCH_SEC = 300


def find_claude() -> Path:
    """A directory with the program `claude`, as npm installs it; skips where npm cannot."""
    if os.uname().machine != "x86_64" or shutil.which("npm") is None:
        pytest.skip("claude-code is installed by npm, for x86-64")
    place = ROOT / "build" / "agents" / CLAUDE.replace("/", "_")
    place.mkdir(parents=True, exist_ok=True)
    tree = place / "tree"
    with (place / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not tree.exists():
            _install(place)
            (found,) = place.glob("node_modules/@anthropic-ai/claude-code-linux-x64/claude")
            (place / "part").mkdir(exist_ok=True)
            found.replace(place / "part" / "claude")
            (place / "part").rename(tree)
    return tree


def _install(place: Path) -> None:
    done = subprocess.run(
        ["npm", "install", "--no-audit", "--no-fund", "--prefix", str(place), CLAUDE],
        capture_output=True,
        text=True,
        check=False,
        timeout=_FETCH_SEC,
    )
    if done.returncode != 0:
        pytest.skip(f"npm cannot install {CLAUDE}: {done.stderr[-300:]}")
