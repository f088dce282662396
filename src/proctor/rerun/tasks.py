"""Where the task of a recorded trial lies now, and whether it is still the one that was run.

The directory that is on record, or one below those that a person names. Nothing is fetched: a task
of a git repository or of a package has to be named. A task is the same when its checksum is.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

from proctor.errors import NotReplayableError, TaskError
from proctor.rerun.recorded import RecordedTrial
from proctor.task.checksum import task_checksum
from proctor.task.directory import load_task

_SHOWN = 12
"""Characters of a checksum that are shown."""


def find_task(trial: RecordedTrial, places: Sequence[Path]) -> Path:
    """The directory of a trial's task; of several that bear its name, the one that is the same.

    Raises:
        NotReplayableError: it is gone, another one than was run, or not the one that is claimed.
        TaskError: it is no task.
    """
    wanted = trial.result.task_checksum
    if wanted is None:
        raise NotReplayableError("which content its task had is not on record")
    seen: list[str] = []
    for directory in _candidates(trial, places):
        try:
            found = task_checksum(directory)
        except (OSError, TaskError):
            continue
        if found == wanted:
            _check_name(trial, directory)
            return directory.absolute()
        seen.append(f"{directory} ({found[:_SHOWN]})")
    if seen:
        raise NotReplayableError(
            f"its task has changed: the trial ran on the checksum {wanted[:_SHOWN]}, and there is "
            f"{', '.join(seen)}"
        )
    looked = f", and not below {', '.join(map(str, places))}" if places else ""
    raise NotReplayableError(
        f"its task is not there: {_describe(trial)}{looked}; --tasks DIR says where it is"
    )


def _check_name(trial: RecordedTrial, directory: Path) -> None:
    """See that the task is the claimed one; one that does not name itself may have moved."""
    task, path = load_task(directory, verifying=False), trial.config.task.path
    name = path.name if path is not None and task.config.task is None else task.name
    if name != trial.result.task_name:
        raise NotReplayableError(
            f"it claims the task {trial.result.task_name!r}; what it ran on is {name!r}"
        )


def _candidates(trial: RecordedTrial, places: Sequence[Path]) -> Iterator[Path]:
    task = trial.config.task
    name = (task.path or Path(task.name or "")).name
    for place in places:
        yield from (path for path in (place / name, place) if (path / "task.toml").is_file())
    if not places and task.path is not None and task.git_url is None:
        path = task.path.expanduser()
        origins = [Path(trial.cwd)] if trial.cwd else []
        yield from dict.fromkeys(
            at / path for at in (*origins, Path.cwd()) if (at / path / "task.toml").is_file()
        )


def _describe(trial: RecordedTrial) -> str:
    task = trial.config.task
    if task.name is not None:
        return f"it is of the package {task.name}"
    if task.git_url is not None:
        return f"it is {task.path} of the repository {task.git_url}"
    return f"it was {task.path}"
