"""Checks that every rewarded trial has a trace: readable, not empty, of its time, not a copy."""

import importlib
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from proctor.digest import sha256_file
from proctor.errors import ProctorError
from proctor.report.page.figures import render_number
from proctor.report.policy.model import Policy
from proctor.report.policy.reason import PolicyCode
from proctor.report.policy.submission import Submission, SubmittedTrial
from proctor.report.policy.verdict import Failure, Unchecked
from proctor.sentence import count_of
from proctor.traces.entry import TraceKind
from proctor.traces.traced_trial import FoundTrace
from proctor.traces.trajectory import read_chunks

_ANSWERS = frozenset({"assistant", "tool_call"})


@dataclass(frozen=True, slots=True)
class TraceFacts:
    """What the traces of a trial contain."""

    digests: tuple[str, ...]
    has_answers: bool
    first: str | None
    """The earliest time in them, as written."""
    last: str | None


def check_traces(policy: Policy, submission: Submission) -> Iterator[Failure | Unchecked]:
    """Every trial that needs a trace has its own."""
    seen: dict[str, str] = {}
    unclocked = 0
    for trial in submission.counted:
        if not _is_needed(policy, trial):
            continue
        try:
            facts = read_trace_facts(trial)
        except (ProctorError, OSError) as error:
            yield Failure(PolicyCode.NO_TRACE, trial.name, f"its trace cannot be read: {error}")
            continue
        yield from _check_content(trial, facts, seen)
        span = _find_span(trial, facts)
        if span is None:
            unclocked += bool(facts.digests)
        else:
            yield from _check_clock(policy, trial, span)
    if unclocked:
        yield Unchecked(
            f"whether {count_of(unclocked, 'trace')} are within their trials: times are missing "
            "or only one of the two has a time zone"
        )


def _is_needed(policy: Policy, trial: SubmittedTrial) -> bool:
    if trial.is_withheld or trial.is_too_large:
        return False
    return policy.traces.needed == "all" or (trial.row.reward or 0) > 0


def read_trace_facts(trial: SubmittedTrial) -> TraceFacts:
    """Read the traces of a trial."""
    digests: list[str] = []
    has_answers, first, last = False, None, None
    with trial.open_traces() as traces:
        for found in traces:
            digests.append(sha256_file(Path(found.path)))
            for role, time in _read(found):
                has_answers |= role in _ANSWERS
                if _moment(time) is not None and time is not None:
                    first = min(first or time, time, key=_sortable)
                    last = max(last or time, time, key=_sortable)
    return TraceFacts(tuple(digests), has_answers, first, last)


def _read(found: FoundTrace) -> Iterator[tuple[str, str | None]]:
    """Role and time of every entry; a live trace is streamed."""
    if found.kind is TraceKind.TRAJECTORY:
        chunks = read_chunks(found.path, salvage=True)
        yield from ((entry.role, entry.timestamp) for chunk in chunks for entry in chunk.entries)
        return
    # Imported late: it is slow to import, and most trials have no ATIF trace.
    loader = importlib.import_module("proctor.traces.trace")
    trace = loader.load_trace_file(found.path, found.kind)
    yield from ((entry.role, entry.timestamp) for entry in trace.entries)
    yield from ((turn.role, None) for turn in trace.turns)


def _check_content(
    trial: SubmittedTrial, facts: TraceFacts, seen: dict[str, str]
) -> Iterator[Failure]:
    if not facts.digests:
        message = f"reward {render_number(trial.row.reward)}, but no readable trace"
        yield Failure(PolicyCode.NO_TRACE, trial.name, message)
        return
    if not facts.has_answers:
        message = "its trace has neither an answer nor a tool call"
        yield Failure(PolicyCode.EMPTY_TRACE, trial.name, message)
    for digest in facts.digests:
        first = seen.setdefault(digest, trial.name)
        if first != trial.name:
            message = f"its trace is identical to that of {first}"
            yield Failure(PolicyCode.COPIED_TRACE, trial.name, message)


type Span = tuple[datetime, datetime, datetime, datetime]
"""Begin of the trial, begin and end of its trace, end of the trial."""


def _find_span(trial: SubmittedTrial, facts: TraceFacts) -> Span | None:
    """The times to compare; None if they cannot be compared."""
    texts = (trial.began, facts.first, facts.last, trial.ended)
    moments = [_moment(text) for text in texts]
    if any(moment is None for moment in moments):
        return None
    known = [moment for moment in moments if moment is not None]
    if len({moment.tzinfo is None for moment in known}) > 1:
        return None
    began, first, last, ended = known
    return began, first, last, ended


def _check_clock(policy: Policy, trial: SubmittedTrial, span: Span) -> Iterator[Failure]:
    began, first, last, ended = span
    slack = timedelta(seconds=policy.traces.clock_seconds)
    if first < began - slack or last > ended + slack:
        message = f"its trace is from {first} to {last}, the trial from {began} to {ended}"
        yield Failure(PolicyCode.TRACE_OUTSIDE_TRIAL, trial.name, message)


def _moment(text: str | None) -> datetime | None:
    try:
        return datetime.fromisoformat(text) if text else None
    except ValueError:
        return None


def _sortable(text: str) -> datetime:
    moment = datetime.fromisoformat(text)
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
