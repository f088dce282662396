"""Begin a trial: create its directories, config.json, first record and log."""

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
from proctor.harbor.trial_result import AgentInfo, LocalTaskId, TrialResult, task_id_of
from proctor.traces.writer import Redactor
from proctor.trial.agent import Kinds
from proctor.trial.clock import Clock
from proctor.trial.making import find_model
from proctor.trial.paths import TrialPaths
from proctor.trial.recording import Recording
from proctor.trial.spec import TrialSpec
from proctor.trial.trial_run import TrialRun, Watch, host_variables

# Removing the secrets that a trial was given from its own files


# Shorter values would match parts of ordinary words.
_SHORTEST = 8


def find_redactor(spec: TrialSpec, host: Mapping[str, str]) -> Redactor | None:
    """Return a redactor for the trial's secrets; None if it has none."""
    secrets = {
        name: value
        for env in (find_keys(spec.config.agent, host), *find_envs(spec))
        for name, value in _resolve_known(env, host).items()
        if is_sensitive(name) and len(value) >= _SHORTEST
    }
    return Redactor(secrets) if secrets else None


def find_envs(spec: TrialSpec) -> Iterator[Mapping[str, str]]:
    """Yield every table of variables of a trial and its task, with templates unresolved."""
    config, task = spec.config, spec.task.config
    yield from (config.agent.env, config.environment.env, config.verifier.env)
    yield from (task.environment.env, task.verifier.env, task.solution.env)
    if task.verifier.environment is not None:
        yield task.verifier.environment.env
    for step in task.steps or ():
        yield step.verifier.env


def _resolve_known(env: Mapping[str, str], host: Mapping[str, str]) -> dict[str, str]:
    """Variables whose values are known; an unresolved template holds no secret yet."""
    known: dict[str, str] = {}
    for name, value in env.items():
        if not is_sensitive(name):
            continue
        try:
            known |= resolve_env({name: value}, host)
        except ValueError:
            continue
    return known


# trial.log: the messages of a trial, for people
#
# Each trial has its own loggers, which are discarded when it ends, so ten thousand trials do not
# accumulate in the process. Secrets given to the trial are removed.


class Cleaner(Protocol):
    """Removes secrets from text."""

    def redact_text(self, text: str) -> str:
        """Return the text without secrets."""


class _CleanLines(logging.Formatter):
    """The bare message, without secrets."""

    def __init__(self, cleaner: Cleaner | None) -> None:
        super().__init__()
        self._cleaner = cleaner

    def format(self, record: logging.LogRecord) -> str:
        text = super().format(record)
        return self._cleaner.redact_text(text) if self._cleaner else text


class _LogFile(logging.Handler):
    """A log file that ignores a full disk; result.json reports how the trial ended.

    The file is opened with its first line, so a trial without messages creates none.
    """

    def __init__(self, path: str) -> None:
        super().__init__()
        self._path = path
        self._fd: int | None = None

    def emit(self, record: logging.LogRecord) -> None:
        """Write a line; ignore write errors."""
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
        """Close the file."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None
        super().close()


@contextlib.contextmanager
def open_journal(path: str, cleaner: Cleaner | None) -> Iterator[logging.Logger]:
    """Open a logger whose messages, and its children's, are appended to trial.log."""
    logger = logging.RootLogger(logging.DEBUG)
    logger.name = "trial"
    # A separate manager keeps this trial's loggers out of the process-wide registry, which never
    # shrinks.
    logger.manager = logging.Manager(logger)
    handler = _LogFile(path)
    handler.setFormatter(_CleanLines(cleaner))
    logger.addHandler(handler)
    try:
        yield logger
    finally:
        logger.removeHandler(handler)
        # Closing flushes, which fails on a full disk.
        with contextlib.suppress(OSError):
            handler.close()


@contextmanager
def opened(
    spec: TrialSpec, directory: Path, kinds: Kinds, watch: Watch, clock: Clock
) -> Iterator[TrialRun]:
    """Set up a trial in memory; none of its files exist yet."""
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
    """Return an empty result for a trial."""
    config = spec.config
    name = config.agent.name or config.agent.import_path or "unknown"
    try:
        task_id = task_id_of(spec.config)
    except ValueError:
        task_id = LocalTaskId(path=str(spec.task.directory))
    return TrialResult(
        task_name=spec.task.name,
        trial_name=config.trial_name,
        trial_uri=spec.uri,
        task_id=task_id,
        source=config.task.source,
        task_checksum=spec.digests.task_checksum,
        config=config,
        agent_info=AgentInfo(
            name=name, version="unknown", model_info=find_model(config.agent.model_name)
        ),
        started_at=started_at,
    )


def open_files(run: TrialRun) -> None:
    """Create the trial's directories and first files."""
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
