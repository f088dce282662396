"""Slurm's commands: submit a pilot job, ask for its state, cancel it. Decides nothing."""

import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from proctor.cluster.pilot_script import Pilot, render_script
from proctor.errors import ClusterError
from proctor.sentence import reason_of

_ANSWER_SEC: Final = 60
PENDING: Final = frozenset({"PENDING", "CONFIGURING", "REQUEUED", "SUSPENDED"})
ENDED: Final = frozenset(
    {
        *("BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL"),
        *("OUT_OF_MEMORY", "PREEMPTED", "REVOKED", "TIMEOUT"),
    }
)
UNKNOWN: Final = "UNKNOWN"
"""Slurm has forgotten the job."""
_FORGOTTEN: Final = "Invalid job id"


@dataclass(frozen=True, slots=True)
class State:
    """What Slurm says about a job."""

    name: str
    reason: str = ""
    """Why it waits, by Slurm's name of the reason."""

    def __str__(self) -> str:
        is_told = self.name in PENDING and self.reason not in ("", "None")
        return f"{self.name} ({self.reason})" if is_told else self.name


@dataclass(frozen=True, slots=True)
class SlurmJob:
    """A job that was submitted."""

    number: str
    pilots: Path
    label: str

    @property
    def pilot(self) -> Path:
        """Directory of the job's own files."""
        return self.pilots / f"{self.label}-{self.number}"

    @property
    def outputs(self) -> tuple[Path, Path]:
        """Files of what the job prints: stdout, stderr."""
        return Path(f"{self.pilot}.out"), Path(f"{self.pilot}.err")

    def find_code(self) -> int | None:
        """Return the exit code of the command that the job ran; None: it has not ended."""
        try:
            return int((self.pilot / "code").read_text())
        except FileNotFoundError:
            return None

    def forget(self) -> None:
        """Remove the job's own files: it has ended, and what it printed was shown."""
        shutil.rmtree(self.pilot, ignore_errors=True)
        for path in self.outputs:
            path.unlink(missing_ok=True)


def submit(pilot: Pilot) -> SlurmJob:
    """Submit a pilot job.

    Raises:
        ClusterError: there is no Slurm, or it rejects the job.
    """
    pilot.pilots.mkdir(mode=0o700, parents=True, exist_ok=True)
    files = pilot.pilots / pilot.label
    own = ["--parsable", f"--output={files}-%j.out", f"--error={files}-%j.err"]
    # In the script and here: Slurm's variables SBATCH_* override the script, not these.
    try:
        ran = _ask(["sbatch", *pilot.options, *own], render_script(pilot))
    except FileNotFoundError:
        raise ClusterError(
            "--on slurm: there is no sbatch on this machine; use a login node of a cluster, or "
            "print the job with --print-script and submit it there"
        ) from None
    except OSError as error:
        raise ClusterError(f"sbatch cannot be run: {reason_of(error)}") from error
    except subprocess.TimeoutExpired as error:
        raise ClusterError(f"sbatch did not answer within {_ANSWER_SEC} seconds") from error
    number = ran.stdout.strip().partition(";")[0]
    if ran.returncode != 0 or not number.isdecimal():
        said = (ran.stderr.strip() or ran.stdout.strip() or "no reason given").splitlines()[-1]
        raise ClusterError(
            f"Slurm rejected the job: {said.removeprefix('sbatch: ').removeprefix('error: ')}; "
            "options for sbatch are given with --slurm-arg, such as --slurm-arg=--partition=NAME"
        )
    return SlurmJob(number, pilot.pilots, pilot.label)


def find_state(job: SlurmJob) -> State | None:
    """Ask the queue for the state of a job, then the accounting, which not every cluster has.

    None: Slurm does not answer.
    """
    queued = _answer(["squeue", "-h", "-t", "all", "-j", job.number, "-o", "%T|%r"])
    if queued is None:
        return None
    kept = queued or _answer(["sacct", "-n", "-X", "-P", "-j", job.number, "-o", "State"]) or ""
    name, _, reason = kept.partition("|")
    # sacct says who: CANCELLED by 1000.
    return State(name.partition(" ")[0], reason) if name else State(UNKNOWN)


def stop(job: SlurmJob, *, is_pending: bool) -> None:
    """Ask a job to end its sandboxes and to keep its results; one that waits leaves the queue."""
    # Only the script: what runs on the nodes must live until the driver has fetched it.
    how = [] if is_pending else ["--batch", "--signal=TERM"]
    _answer(["scancel", *how, job.number])


def kill(job: SlurmJob) -> None:
    """End a job at once."""
    _answer(["scancel", job.number])


def _answer(line: Sequence[str]) -> str | None:
    """Return the first line that a command of Slurm prints; None if it fails."""
    try:
        ran = _ask(line)
    except (OSError, subprocess.TimeoutExpired):
        return None
    if ran.returncode != 0:
        return "" if _FORGOTTEN in ran.stderr else None
    return ran.stdout.strip().partition("\n")[0]


def _ask(line: Sequence[str], text: str = "") -> subprocess.CompletedProcess[str]:
    # In a session of its own: Ctrl-C is for us.
    return subprocess.run(
        line,
        input=text,
        capture_output=True,
        text=True,
        timeout=_ANSWER_SEC,
        check=False,
        start_new_session=True,
    )
