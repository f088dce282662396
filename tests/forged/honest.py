"""An honest submission, really run: two tasks, two attempts at each, sealed as they ended.

    make_honest(place)      runs it: a job directory, the ledger, and the checkpoint of that hour
    copy_to(handed, place)  a copy for whoever wants to forge it

The checkpoint is what the keeper of a board got when the run was over, and kept.
"""

import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from tests.cli.programs import environment

HERE = Path(__file__).resolve().parent
TASKS = HERE / "tasks"
POLICY = HERE / "policy.toml"
MODEL = "acme/model-x"
NAME = "entry"
_SEALED = "ledger"
_KEPT = "kept-checkpoint"


@dataclass(frozen=True)
class HandedIn:
    """What somebody hands in, and what the keeper kept of it."""

    place: Path

    @property
    def job(self) -> Path:
        """The job's directory."""
        return self.place / "jobs" / NAME

    @property
    def ledger(self) -> Path:
        """The ledger it was sealed into."""
        return self.place / _SEALED

    @property
    def kept(self) -> Path:
        """The checkpoint that the keeper has had since the run."""
        return self.place / _KEPT

    @property
    def bundle(self) -> Path:
        """A bundle that was handed over instead of the ledger, where there is one."""
        return self.place / "bundle.tar.zst"

    @property
    def keys(self) -> Path:
        """Where the submitter's key is."""
        return self.place / "config"

    def trials(self, task: str) -> list[Path]:
        """The trial directories of a task."""
        return sorted(self.job.glob(f"{task}__*"))


def make_honest(place: Path) -> HandedIn:
    """Run the honest submission."""
    place.mkdir(parents=True)
    handed = HandedIn(place)
    words = ["run", "-p", str(TASKS), "-e", "sandbox", "-a", "scripted", "-m", MODEL, "-k", "2"]
    words += ["--ak", f"script={HERE / 'agent.sh'}", "--job-name", NAME]
    words += ["-o", str(place / "jobs"), "--ledger", str(handed.ledger)]
    ran = subprocess.run(
        [sys.executable, "-m", "proctor", *words],
        env=environment(XDG_CONFIG_HOME=str(handed.keys)),
        capture_output=True,
        text=True,
        check=False,
        cwd=place,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    keep_checkpoint(handed)
    return handed


def keep_checkpoint(handed: HandedIn) -> None:
    """The keeper gets the checkpoint of this hour."""
    shutil.copy(handed.ledger / "checkpoint", handed.kept)


def copy_to(handed: HandedIn, place: Path) -> HandedIn:
    """A copy of all of it; the index of a ledger stays at home."""
    shutil.copytree(handed.place, place, ignore=shutil.ignore_patterns("index.sqlite*"))
    return HandedIn(place)
