"""Opens the trajectory that an agent on the host writes while it works."""

from pathlib import Path

from proctor.traces.writer import Redactor, TrajectoryWriter

TRAJECTORY = "trajectory.jsonl"


def open_trace(logs_dir: Path, redactor: Redactor) -> TrajectoryWriter:
    """Open an agent's trajectory in <trial>/agent, to create it or append to it."""
    path = logs_dir / TRAJECTORY
    # If the environment mounts this directory, the agent may have left a symlink to a host file.
    if path.is_symlink():
        path.unlink()
    return TrajectoryWriter(path, secrets=redactor)
