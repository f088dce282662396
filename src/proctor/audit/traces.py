"""Attempts that did the very same: equal commands are worth a look, equal clocks are a copy.

Reads the trajectory.json that agents leave (ATIF), as far as commands and times go. An agent that
leaves none is not judged.
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

_TRACE = Decoder(TraceDocument)


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
    by_commands: dict[str, list[FoundTrial]] = {}
    by_clock: dict[str, list[FoundTrial]] = {}
    for found in trials:
        path = f"{found.directory}/agent/trajectory.json"
        try:
            steps = _TRACE.load(path).steps if os.path.lexists(path) else []
        except JobError as error:
            yield Finding(Kind.TORN_FILE, path, str(error))
            continue
        if commands := [call for step in steps for call in step.tool_calls or ()]:
            by_commands.setdefault(_digest(commands), []).append(found)
        times = [step.timestamp for step in steps if step.timestamp]
        if len({time for time in times if "." in time}) >= _TELLING:
            by_clock.setdefault(_digest(times), []).append(found)
    yield from _report(Kind.COPIED_TRIAL, by_clock, f"attempts at {task} at the very same times")
    yield from _report(
        Kind.IDENTICAL_COMMANDS, by_commands, f"attempts at {task} by equal commands"
    )


def _report(kind: Kind, groups: dict[str, list[FoundTrial]], what: str) -> Iterator[Finding]:
    for same in groups.values():
        if len(same) > 1:
            names = ", ".join(found.trial.name for found in same)
            yield Finding(kind, f"{same[-1].directory}/agent/trajectory.json", f"{what}: {names}")


def _digest(value: object) -> str:
    return sha256_hex(msgspec.json.encode(value, order="deterministic"))
