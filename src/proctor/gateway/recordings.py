"""Finds the recorded exchanges of a trial, or of the trials of a job. Reads no requests or answers.

The directories may be a stranger's: a recording that is a link, or not a file, is not used.
"""

import os
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from proctor.errors import AgentError, TraceError
from proctor.files import read_small
from proctor.gateway.recording import scan_calls
from proctor.harbor.documents import TRIAL, TRIAL_CONFIG, AgentConfig
from proctor.trial.models import MODEL_CALLS

_AGENT: Final = f"agent/{MODEL_CALLS}"
_STEPS: Final = "steps"
_LARGEST: Final = 1 << 24


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """The recorded exchanges of one trial."""

    directory: Path
    """The trial's."""
    files: tuple[str, ...]
    """One, or one for each step of its task."""
    providers: Mapping[str, str]
    """Base URLs by the name of the provider that answered."""
    task: str | None
    """Name of its task; None if the trial has no result."""
    agent: str | None
    model: str | None

    @property
    def prefix(self) -> str:
        """The beginning of its trial's name, which is made from the task's."""
        return self.directory.resolve().name.rpartition("__")[0]


def find_recordings(place: Path) -> list[Recording]:
    """Find the recordings of a trial's directory, or of a job's, in the order of their names.

    Raises:
        AgentError: there are none.
        TraceError: a file cannot be read, or is not a recording.
    """
    trials = [place] if _find_files(place) else sorted(filter(_find_files, _list(place)))
    if not trials:
        raise AgentError(
            f"{place}: no {_AGENT} in it or in the directories in it; expected a trial or a job "
            "whose agents reached their models through the gateway"
        )
    return [_load(trial) for trial in trials]


def _load(trial: Path) -> Recording:
    result = _read(trial, "result.json", TRIAL.parse)
    config = _read(trial, "config.json", TRIAL_CONFIG.parse)
    agent = config.agent if config else AgentConfig()
    files = _find_files(trial)
    return Recording(
        directory=trial,
        files=files,
        providers=find_providers(files),
        task=result.task_name if result else None,
        agent=agent.name,
        model=agent.model_name,
    )


def find_providers(files: Sequence[str]) -> dict[str, str]:
    """Return the base URLs of the providers that answered, by name."""
    providers: dict[str, str] = {}
    for file in files:
        for call in scan_calls(file):
            providers.setdefault(call.provider, call.address)
    return providers


def find_trial(file: str) -> Path:
    """Return the directory of the trial that a file with recorded exchanges belongs to."""
    directory = Path(file).parent.parent
    return directory.parent.parent if directory.parent.name == _STEPS else directory


def _find_files(trial: Path) -> tuple[str, ...]:
    if own := _find_file(trial, _AGENT):
        return (own,)
    steps = (_find_file(trial, f"{_STEPS}/{step.name}/{_AGENT}") for step in _list_steps(trial))
    # In the order in which the steps were run, which their names do not tell.
    return tuple(sorted(filter(None, steps), key=_find_begin))


def _find_begin(file: str) -> str:
    return next((call.at for call in scan_calls(file)), "")


def _list_steps(trial: Path) -> list[Path]:
    steps = trial / _STEPS
    return list(_list(steps)) if steps.is_dir() else []


def _find_file(trial: Path, name: str) -> str | None:
    path = f"{trial}/{name}"
    try:
        is_plain = stat.S_ISREG(os.lstat(path).st_mode)
    except (OSError, ValueError):
        return None
    # A link, also of a directory, could lead to a file of this machine.
    is_inside = os.path.realpath(path) == f"{os.path.realpath(trial)}/{name}"
    return path if is_plain and is_inside else None


def _list(place: Path) -> Iterator[Path]:
    try:
        yield from (each for each in place.iterdir() if each.is_dir() and not each.is_symlink())
    except OSError as error:
        raise TraceError(f"{place}: {error.strerror}; expected a trial or a job") from error


def _read[T](trial: Path, name: str, parse: Callable[[bytes], T]) -> T | None:
    path = _find_file(trial, name)
    try:
        return parse(read_small(path, _LARGEST)) if path else None
    # A trial that was killed has no result, and a stranger's may be anything: its name is enough.
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
