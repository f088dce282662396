"""Attempts with identical timestamps: equal clocks mean a copy.

Reads the timestamps of the trajectory.json that agents write (ATIF) and of the trajectory.jsonl
that is written live. An agent that writes neither is not judged. Equal commands are compared in
commands.py.
"""

import os
import stat
from collections.abc import Iterator
from typing import Any

import msgspec

from proctor.audit.findings import Finding, Kind
from proctor.digest import sha256_hex
from proctor.errors import JobError, TraceError
from proctor.files import find_way_out
from proctor.harbor.documents import Decoder
from proctor.harbor.job import Job
from proctor.harbor.trial import FoundTrial
from proctor.traces.trajectory import read_chunks


class ToolCall(msgspec.Struct, frozen=True):
    """One tool call."""

    function_name: str = ""
    arguments: Any = None


class TraceStep(msgspec.Struct, frozen=True):
    """One step of an agent."""

    timestamp: str | None = None
    tool_calls: list[ToolCall] | None = None


class TraceDocument(msgspec.Struct, frozen=True):
    """The commands and times of a trajectory.json."""

    steps: list[TraceStep] = []


_ATIF_FILE = "trajectory.json"
_LIVE_FILE = "trajectory.jsonl"
# Times with a fraction of a second; two attempts do not share this many by chance.
_TELLING = 3

ATIF = Decoder(TraceDocument)
"""Reads a trajectory.json."""


def audit_traces(job: Job) -> Iterator[Finding]:
    """Findings about attempts at one task by one agent."""
    attempts: dict[tuple[str, str, str | None], list[FoundTrial]] = {}
    for found in job.trials:
        trial = found.trial
        attempts.setdefault((trial.task, trial.agent, trial.model), []).append(found)
    for (task, _, _), trials in attempts.items():
        if len(trials) > 1:
            yield from _audit_attempts(task, trials)


def _audit_attempts(task: str, trials: list[FoundTrial]) -> Iterator[Finding]:
    by_clock: dict[str, list[FoundTrial]] = {}
    for found in trials:
        path = f"{found.directory}/agent/{_ATIF_FILE}"
        try:
            times = _load_times(found.directory) or _load_live_times(found.directory)
        except JobError as error:
            yield Finding(Kind.TORN_FILE, path, str(error))
            continue
        if len({time for time in times if "." in time}) >= _TELLING:
            by_clock.setdefault(_digest(times), []).append(found)
    for same in by_clock.values():
        if len(same) > 1:
            names = ", ".join(found.trial.name for found in same)
            message = f"attempts at {task} at the very same times: {names}"
            yield Finding(Kind.COPIED_TRIAL, _find_trace(same[-1]), message)


def _load_times(trial: str) -> list[str]:
    """The times in an ATIF file; empty if it does not exist."""
    path = f"{trial}/agent/{_ATIF_FILE}"
    steps = ATIF.load(path, trial).steps if os.path.lexists(path) else []
    return [step.timestamp for step in steps if step.timestamp]


def _load_live_times(trial: str) -> list[str]:
    """The times in a trace that was written live; empty if it is not a regular file."""
    path = f"{trial}/agent/{_LIVE_FILE}"
    try:
        if not stat.S_ISREG(os.lstat(path).st_mode) or find_way_out(trial, path) is not None:
            return []
        entries = (entry for chunk in read_chunks(path, salvage=True) for entry in chunk.entries)
        return [entry.timestamp for entry in entries if entry.timestamp]
    except (OSError, TraceError):
        return []


def _find_trace(found: FoundTrial) -> str:
    path = f"{found.directory}/agent/{_ATIF_FILE}"
    return path if os.path.lexists(path) else f"{found.directory}/agent/{_LIVE_FILE}"


def _digest(value: object) -> str:
    return sha256_hex(msgspec.json.encode(value, order="deterministic"))
