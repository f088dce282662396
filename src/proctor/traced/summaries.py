"""A trial with traces to its summary: which files are read, and how much of each.

What is counted and what is concluded is decided in `inspection`; here its inputs are fetched.
"""

import contextlib
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import msgspec

from proctor.errors import DamageError, TraceError
from proctor.files import open_plain
from proctor.inspection.cause_rules import find_cause
from proctor.inspection.causes import Case, LogText, has_failed
from proctor.inspection.compat import (
    TraceSummaryRecord,
    make_summary_record,
    read_signals,
)
from proctor.inspection.compat_signals import Signals
from proctor.inspection.limits import exception_types
from proctor.inspection.reading import Classify, summarise_file
from proctor.inspection.summary import TraceSummary
from proctor.inspection.trial import TrialSummary, summarise_trial
from proctor.record.model import TrialRecord
from proctor.traced.trial import FoundTrace, TracedTrial, opened_traces
from proctor.trajectory.trace import TraceKind

_END: Final = 1 << 16
"""Bytes of either end of a log that are looked at."""
_MOST_LOGS: Final = 20
_VERIFIER_LOGS: Final = ("verifier/test-stdout.txt", "verifier/test-stderr.txt")
_TRACEBACK: Final = "exception.txt"
_PLACES: Final = ("agent/", "", "artifacts/")


def summarise_traced(trial: TracedTrial, classify: Classify | None = None) -> TrialSummary:
    """What is known of a trial; what cannot be read of it is said, never raised."""
    problem = trial.problem
    parts: list[TraceSummary] = []
    try:
        with opened_traces(trial) as traces:
            parts = [_summarise(found, classify) for found in traces]
    except (TraceError, DamageError) as error:
        problem = str(error)
    summary = summarise_trial(trial.name, parts, trial.record, trial.reason_code)
    summary = msgspec.structs.replace(summary, problem=problem)
    return msgspec.structs.replace(summary, cause=find_cause(_make_case(trial, summary)))


def _summarise(found: FoundTrace, classify: Classify | None) -> TraceSummary:
    return msgspec.structs.replace(
        summarise_file(found.path, found.kind, classify),
        part=found.part,
        file=found.name,
        passed_over=found.passed_over,
    )


def _make_case(trial: TracedTrial, summary: TrialSummary) -> Case:
    """What is known about a failure; of a trial that did not fail, nothing is fetched."""
    record = trial.record
    if record is None:
        # A lone trace has no score to explain, and of what was withheld nothing is known.
        is_lost = trial.problem is not None and trial.seq is None
        return Case(reward=None if is_lost else 1.0, problem=trial.problem)
    evaluation, reward = record.evaluation, record.evaluation.reward
    if not has_failed(reward):
        return Case(reward=reward)
    output = record.outputs.agent_output
    return Case(
        reward=reward,
        reason_code=trial.reason_code,
        exceptions=tuple(exception_types(record)),
        agent_error=output.error_message if output else None,
        verifier_completed=evaluation.validity.verifier_completed,
        breakdown=evaluation.breakdown,
        findings=trial.findings,
        limit=summary.limit,
        verifier_logs=_read_logs(trial, _VERIFIER_LOGS),
        tracebacks=_read_logs(trial, [_TRACEBACK]),
        was_verified=any(_is_verifiers(name) for name in trial.files) or reward is not None,
        is_unverified=_is_unverified(record),
        last_error=summary.trace.errors.last,
    )


def _is_unverified(record: TrialRecord) -> bool:
    told = (record.agent.configuration or {}).get("verifier")
    return isinstance(told, dict) and told.get("disable") is True


def _is_verifiers(name: str) -> bool:
    return name.startswith("verifier/") or "/verifier/" in name


def _read_logs(trial: TracedTrial, names: Iterable[str]) -> tuple[LogText, ...]:
    """The logs of these names, of the trial and of its steps."""
    wanted = [
        file
        for name in names
        for file in trial.files
        if file == name or (file.startswith("steps/") and file.endswith(f"/{name}"))
    ]
    found = []
    for name in wanted[:_MOST_LOGS]:
        with contextlib.suppress(OSError, DamageError), trial.open_file(name) as path:
            found.append(LogText(name=name, text=_read_ends(path)))
    return tuple(found)


def _read_ends(path: str) -> str:
    with open_plain(Path(path)) as file:
        size = os.fstat(file.fileno()).st_size
        data = file.read(_END)
        if size > 2 * _END:
            file.seek(size - _END)
            data += b"\n"
        data += file.read(_END)
    return data.decode("utf-8", "replace")


class Compared(msgspec.Struct, frozen=True, kw_only=True):
    """What aec-bench would say of a trial."""

    name: str
    signals: Signals
    record: TraceSummaryRecord | None
    """Null where the trial has no record."""


def compare_traced(trial: TracedTrial) -> Compared:
    """A trial by aec-bench's own rules.

    Raises:
        TraceError: a trace cannot be read at all.
        DamageError: sealed evidence is missing or altered.
    """
    names = [_find_trace(trial, kind) for kind in (TraceKind.TRAJECTORY, TraceKind.CONVERSATION)]
    with contextlib.ExitStack() as stack:
        paths = [
            None if name is None else stack.enter_context(trial.open_file(name)) for name in names
        ]
        signals = read_signals(*paths)
    record = None if trial.record is None else make_summary_record(trial.record, signals)
    return Compared(name=trial.name, signals=signals, record=record)


def _find_trace(trial: TracedTrial, kind: TraceKind) -> str | None:
    """The trial's file of a kind: what the record names, else where it usually lies."""
    if trial.lone is not None:
        return trial.files[0] if trial.lone is kind else None
    outputs = trial.record.outputs if trial.record else None
    is_trajectory = kind is TraceKind.TRAJECTORY
    named = None if outputs is None else outputs.conversation_path
    if outputs is not None and is_trajectory:
        named = outputs.trajectory_path
    usual = "trajectory.jsonl" if is_trajectory else "conversation.jsonl"
    candidates = [named, *(f"{place}{usual}" for place in _PLACES)]
    fitting = (name for name in candidates if name and name.endswith(".jsonl"))
    return next((name for name in fitting if name in trial.files), None)
