"""A trial's phases on a timeline: when each began and how long it took.

From result.json if it has them; else the durations in the record, end to end, and the page says so.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

import msgspec

from proctor.errors import DamageError
from proctor.files import read_small
from proctor.harbor.documents import TimedPhase
from proctor.harbor.record import find_seconds
from proctor.record.model import TimingRecord
from proctor.web.trials.known import Known

_RESULT = "result.json"
_LARGEST = 16 << 20
_MOST_STEPS = 100
_SHARES = 100.0


class ExceptionSummary(msgspec.Struct, frozen=True):
    """The exception that ended a trial or a step."""

    exception_type: str
    exception_message: str = ""
    exception_traceback: str = ""


class _Step(msgspec.Struct, frozen=True):
    step_name: str
    agent_execution: TimedPhase | None = None
    verifier: TimedPhase | None = None
    exception_info: ExceptionSummary | None = None


class TrialTimes(msgspec.Struct, frozen=True):
    """The times and exceptions in a trial's result.json."""

    started_at: datetime | None = None
    finished_at: datetime | None = None
    environment_setup: TimedPhase | None = None
    agent_setup: TimedPhase | None = None
    agent_execution: TimedPhase | None = None
    verifier: TimedPhase | None = None
    step_results: list[_Step] | None = None
    exception_info: ExceptionSummary | None = None

    @property
    def steps(self) -> list[str]:
        """The names of its steps, in execution order."""
        return [step.step_name for step in self.step_results or ()]

    def exceptions(self) -> list[tuple[str, ExceptionSummary]]:
        """The trial's exception, then those of its steps, by name."""
        found = [("", self.exception_info)]
        found += [(step.step_name, step.exception_info) for step in self.step_results or ()]
        return [(where, error) for where, error in found if error is not None]


@dataclass(frozen=True, slots=True)
class Phase:
    """One phase; its position is in percent of the whole, for drawing."""

    name: str
    kind: str
    """setup, agent or verifier; decides its colour."""
    seconds: float | None
    """None if no end is recorded."""
    began: float | None = None
    """Seconds after the trial began; None if only its duration is known."""
    left: float = 0.0
    width: float = 0.0


@dataclass(frozen=True, slots=True)
class Timeline:
    """All phases."""

    phases: tuple[Phase, ...]
    total: float | None
    """Duration of the whole trial, in seconds."""
    is_laid_out: bool
    """Whether only durations are known, so that the phases are drawn end to end."""
    started_at: str | None = None
    finished_at: str | None = None


def load_times(known: Known) -> TrialTimes | None:
    """Load the times in result.json; None if missing or unreadable."""
    file = known.find_file(_RESULT)
    if file is None or not file.is_here:
        return None
    try:
        with known.traced.open_file(_RESULT) as path:
            data = read_small(path, _LARGEST)
        return msgspec.json.decode(data, type=TrialTimes)
    except (OSError, DamageError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def draw_timeline(known: Known, times: TrialTimes | None) -> Timeline:
    """Lay out the phases of a trial."""
    found = list(_list_phases(times)) if times else []
    if times is not None and times.started_at is not None and found:
        return _place(times, times.started_at, found)
    record = known.traced.record
    timing = record.timing if record else None
    return _lay_out(timing) if timing else Timeline((), None, is_laid_out=True)


def _list_phases(times: TrialTimes) -> Iterator[tuple[str, str, TimedPhase]]:
    named = [
        ("environment setup", "setup", times.environment_setup),
        ("agent setup", "setup", times.agent_setup),
        ("agent", "agent", times.agent_execution),
    ]
    for step in (times.step_results or ())[:_MOST_STEPS]:
        named += [
            (f"agent, step {step.step_name}", "agent", step.agent_execution),
            (f"verifier, step {step.step_name}", "verifier", step.verifier),
        ]
    named.append(("verifier", "verifier", times.verifier))
    yield from ((name, kind, phase) for name, kind, phase in named if phase is not None)


def _place(
    times: TrialTimes, start: datetime, found: list[tuple[str, str, TimedPhase]]
) -> Timeline:
    total = find_seconds(times)
    ends = [_after(start, each.finished_at or each.started_at) or 0.0 for _, _, each in found]
    whole = max([total or 0.0, *ends]) or 1.0
    phases = []
    for name, kind, each in found:
        began = _after(start, each.started_at)
        seconds = find_seconds(each)
        left = _SHARES * min(max(began or 0.0, 0.0) / whole, 1.0)
        width = min(_SHARES * (seconds or 0.0) / whole, _SHARES - left)
        phases.append(Phase(name, kind, seconds, began, left, width))
    return Timeline(
        tuple(phases),
        total,
        is_laid_out=False,
        started_at=_time_text(times.started_at),
        finished_at=_time_text(times.finished_at),
    )


def _after(start: datetime, moment: datetime | None) -> float | None:
    if moment is None or (start.tzinfo is None) != (moment.tzinfo is None):
        return None
    return (moment - start).total_seconds()


def _time_text(moment: datetime | None) -> str | None:
    if moment is None:
        return None
    zone = "" if moment.tzinfo is None else " UTC"
    try:
        moment = moment if moment.tzinfo is None else moment.astimezone(UTC)
    except OverflowError:
        return None
    return f"{moment:%Y-%m-%d %H:%M:%S}{zone}"


def _lay_out(timing: TimingRecord) -> Timeline:
    named = [
        ("setup", "setup", timing.setup_seconds),
        ("agent", "agent", timing.agent_seconds),
        ("verifier", "verifier", timing.verification_seconds),
    ]
    known = [(name, kind, float(seconds)) for name, kind, seconds in named if seconds is not None]
    total = float(timing.total_seconds)
    whole = max(total, sum(seconds for _, _, seconds in known)) or 1.0
    phases, left = [], 0.0
    for name, kind, seconds in known:
        width = _SHARES * seconds / whole
        phases.append(Phase(name, kind, seconds, None, left, width))
        left += width
    return Timeline(tuple(phases), total, is_laid_out=True)
