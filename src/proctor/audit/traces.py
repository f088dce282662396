"""Attempts that did the very same at the very same times: equal clocks are a copy.

Reads the trajectory.json that agents leave (ATIF), as far as commands and times go. An agent that
leaves none is not judged. What is said of equal commands alone is in commands.py.
"""

import os
from collections.abc import Iterator
from typing import Any

import msgspec

from proctor.audit.findings import Finding, Kind
from proctor.digest import sha256_hex
from proctor.errors import JobError
from proctor.harbor.documents import Decoder
from proctor.harbor.job import Job
from proctor.harbor.trial import FoundTrial


class ToolCall(msgspec.Struct, frozen=True):
    """One command."""

    function_name: str = ""
    arguments: Any = None


class TraceStep(msgspec.Struct, frozen=True):
    """One step of an agent."""

    timestamp: str | None = None
    tool_calls: list[ToolCall] | None = None


class TraceDocument(msgspec.Struct, frozen=True):
    """A trajectory.json, as far as commands and times go."""

    steps: list[TraceStep] = []


_TELLING = 3
"""Times to a fraction of a second that no two attempts share by chance."""

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
        path = f"{found.directory}/agent/trajectory.json"
        try:
            steps = ATIF.load(path).steps if os.path.lexists(path) else []
        except JobError as error:
            yield Finding(Kind.TORN_FILE, path, str(error))
            continue
        times = [step.timestamp for step in steps if step.timestamp]
        if len({time for time in times if "." in time}) >= _TELLING:
            by_clock.setdefault(_digest(times), []).append(found)
    for same in by_clock.values():
        if len(same) > 1:
            names = ", ".join(found.trial.name for found in same)
            path = f"{same[-1].directory}/agent/trajectory.json"
            message = f"attempts at {task} at the very same times: {names}"
            yield Finding(Kind.COPIED_TRIAL, path, message)


def _digest(value: object) -> str:
    return sha256_hex(msgspec.json.encode(value, order="deterministic"))
