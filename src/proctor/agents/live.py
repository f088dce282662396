"""The trajectory that an agent on the host writes while it works. It is not read here."""

from pathlib import Path

from proctor.traces.writer import Redactor, TrajectoryWriter

TRAJECTORY = "trajectory.jsonl"


def open_trace(logs_dir: Path, redactor: Redactor) -> TrajectoryWriter:
    """An agent's trajectory in <trial>/agent, new or continued."""
    path = logs_dir / TRAJECTORY
    # Where the environment shares the directory, a link may lie there to a file of the host.
    if path.is_symlink():
        path.unlink()
    return TrajectoryWriter(path, secrets=redactor)
