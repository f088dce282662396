"""The beginning of a trial: its directories, config.json, its first record, and its log."""

import contextlib
import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Protocol

from proctor.files import replace_file
from proctor.harbor.agents import find_keys
from proctor.harbor.env import is_sensitive, resolve_env
from proctor.harbor.trial_result import AgentInfo, LocalTaskId, TaskId, TrialResult, task_id_of
from proctor.task.config import TaskConfig
from proctor.traces.writer import Redactor
from proctor.trial.clock import Clock
from proctor.trial.making import find_model
from proctor.trial.order import Kinds
from proctor.trial.paths import TrialPaths
from proctor.trial.recording import Recording
from proctor.trial.spec import TrialSpec
from proctor.trial.trial_run import TrialRun, Watch, host_variables

# The secrets that a trial was given, so that they get into none of its own files


_SHORTEST = 8
"""Shorter values would be found in ordinary words."""


def find_redactor(spec: TrialSpec, host: Mapping[str, str]) -> Redactor | None:
    """What takes the trial's secrets out of text; None where it has none."""
    secrets = {
        name: value
        for env in (find_keys(spec.config.agent, host), *_find_envs(spec))
        for name, value in _resolve_known(env, host).items()
        if is_sensitive(name) and len(value) >= _SHORTEST
    }
    return Redactor(secrets) if secrets else None


def _find_envs(spec: TrialSpec) -> Iterator[Mapping[str, str]]:
    config, task = spec.config, spec.task.config
    yield from (config.agent.env, config.environment.env, config.verifier.env)
    yield from _find_task_envs(task)


def _find_task_envs(task: TaskConfig) -> Iterator[Mapping[str, str]]:
    yield from (task.environment.env, task.verifier.env, task.solution.env)
    if task.verifier.environment is not None:
        yield task.verifier.environment.env
    for step in task.steps or ():
        yield step.verifier.env


def _resolve_known(env: Mapping[str, str], host: Mapping[str, str]) -> dict[str, str]:
    """The variables whose values are known; a template that the host has not is no secret yet."""
    known: dict[str, str] = {}
    for name, value in env.items():
        if not is_sensitive(name):
            continue
        try:
            known |= resolve_env({name: value}, host)
        except ValueError:
            continue
    return known


# trial.log: what happened in a trial, for people, one message a line or more
#
# Each trial has loggers of its own, which go when it ends: ten thousand trials leave nothing behind
# in the process. Secrets that the trial was given do not get into the file.


class Cleaner(Protocol):
    """Takes secrets out of text."""

    def redact_text(self, text: str) -> str:
        """The text without secrets."""
        ...


class _CleanLines(logging.Formatter):
    """The bare message, without secrets."""

    def __init__(self, cleaner: Cleaner | None) -> None:
        super().__init__()
        self._cleaner = cleaner

    def format(self, record: logging.LogRecord) -> str:
        text = super().format(record)
        return self._cleaner.redact_text(text) if self._cleaner else text


class _LogFile(logging.Handler):
    """A log that a full disk cuts short; the trial's result says what became of the trial.

    The file is opened for its first line, so that a trial with nothing to say costs nothing.
    """

    def __init__(self, path: str) -> None:
        super().__init__()
        self._path = path
        self._fd: int | None = None

    def emit(self, record: logging.LogRecord) -> None:
        """Write a line, or pass it over when it cannot be written."""
        try:
            line = f"{self.format(record)}\n".encode(errors="backslashreplace")
            if self._fd is None:
                flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
                self._fd = os.open(self._path, flags, 0o666)
            while line:
                line = line[os.write(self._fd, line) :]
        except Exception:  # noqa: BLE001 - what is logged may have no text; no line ends a trial
            return

    def close(self) -> None:
        """Write no more."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None
        super().close()


@contextlib.contextmanager
def open_journal(path: str, cleaner: Cleaner | None) -> Iterator[logging.Logger]:
    """A logger that writes to trial.log from its first line on, and so do its children."""
    logger = logging.RootLogger(logging.DEBUG)
    logger.name = "trial"
    # A manager of its own keeps the loggers of this trial out of the list of all loggers.
    logger.manager = logging.Manager(logger)
    handler = _LogFile(path)
    handler.setFormatter(_CleanLines(cleaner))
    logger.addHandler(handler)
    try:
        yield logger
    finally:
        logger.removeHandler(handler)
        # A full disk refuses the last bytes.
        with contextlib.suppress(OSError):
            handler.close()


@contextmanager
def opened(
    spec: TrialSpec, directory: Path, kinds: Kinds, watch: Watch, clock: Clock
) -> Iterator[TrialRun]:
    """A trial that has begun; no file of it is there yet."""
    redactor = find_redactor(spec, host_variables())
    with open_journal(f"{directory}/trial.log", redactor) as logger:
        yield TrialRun(
            spec=spec,
            paths=TrialPaths(directory),
            kinds=kinds,
            clock=clock,
            watch=watch,
            logger=logger,
            redactor=redactor,
            result=begin_result(spec, clock.now()),
            recording=Recording(spec, str(directory), redactor),
        )


def begin_result(spec: TrialSpec, started_at: datetime | None = None) -> TrialResult:
    """The result of a trial of which nothing is known yet."""
    config = spec.config
    name = config.agent.name or config.agent.import_path or "unknown"
    return TrialResult(
        task_name=spec.task.name,
        trial_name=config.trial_name,
        trial_uri=spec.uri,
        task_id=_find_task_id(spec),
        source=config.task.source,
        task_checksum=spec.digests.task_checksum,
        config=config,
        agent_info=AgentInfo(
            name=name, version="unknown", model_info=find_model(config.agent.model_name)
        ),
        started_at=started_at,
    )


def _find_task_id(spec: TrialSpec) -> TaskId:
    try:
        return task_id_of(spec.config)
    except ValueError:
        return LocalTaskId(path=str(spec.task.directory))


def open_files(run: TrialRun) -> None:
    """Make the trial's directories and its first files.

    Raises:
        OSError: they cannot be made.
    """
    place = run.place
    _make_directory(place)
    for name in ("agent", "verifier", "artifacts"):
        _make_directory(f"{place}/{name}")
    replace_file(f"{place}/config.json", run.config_text.encode())
    os.close(os.open(f"{place}/trial.log", os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o666))


def _make_directory(directory: str) -> None:
    try:
        os.mkdir(directory)
    except FileNotFoundError:
        os.makedirs(directory, exist_ok=True)
    except FileExistsError:
        if not os.path.isdir(directory):
            raise
