"""How long a harbor trial and its phases took. What nobody wrote down is not made up."""

import math
from collections.abc import Sequence
from datetime import UTC, datetime

from proctor.harbor.account import TimedPhase, TrialAccount
from proctor.record.model import TimingRecord


def make_timing(account: TrialAccount | None, notes: list[str]) -> TimingRecord:
    """Seconds per phase, those of several steps added up; 0.0 in all where nothing is known."""
    total = find_total(account)
    if account is None or total is None:
        notes.append("how long the trial took is not recorded; timing.total_seconds is 0.0")
    elif account.seconds is None:
        notes.append(
            "when the trial began and ended is not recorded; timing.total_seconds is from the "
            "beginning of its first known phase to the end of the last"
        )
    if account is None:
        return TimingRecord(total_seconds=0.0)
    steps = account.step_results or []
    return TimingRecord(
        total_seconds=total or 0.0,
        agent_seconds=_add([account.agent_execution, *(step.agent_execution for step in steps)]),
        setup_seconds=_add([account.environment_setup, account.agent_setup]),
        verification_seconds=_add([account.verifier, *(step.verifier for step in steps)]),
    )


def find_total(account: TrialAccount | None) -> float | None:
    """Seconds of the whole trial: as it says, else from its first known phase to its last."""
    if account is None or account.seconds is not None:
        return account.seconds if account else None
    steps = account.step_results or []
    phases = [account.environment_setup, account.agent_setup]
    phases += [account.agent_execution, account.verifier]
    phases += [phase for step in steps for phase in (step.agent_execution, step.verifier)]
    known = [phase for phase in phases if phase is not None and phase.seconds is not None]
    starts = [_in_utc(phase.started_at) for phase in known if phase.started_at]
    ends = [_in_utc(phase.finished_at) for phase in known if phase.finished_at]
    return (max(ends) - min(starts)).total_seconds() if starts and ends else None


def _in_utc(time: datetime) -> datetime:
    return time if time.tzinfo else time.replace(tzinfo=UTC)


def _add(phases: Sequence[TimedPhase | None]) -> float | None:
    seconds = [phase.seconds for phase in phases if phase is not None]
    known = [each for each in seconds if each is not None]
    # Clocks tell microseconds; a sum of them tells no more.
    return round(math.fsum(known), 6) if known and len(known) == len(seconds) else None
