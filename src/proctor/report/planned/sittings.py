"""The trials of an experiment as a plan looks at them: who sat what, and what became of it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from proctor.errors import DamageError
from proctor.ledger.counting import NOT_COUNTED
from proctor.ledger.entry import TrialEntry
from proctor.ledger.ledger import Ledger
from proctor.ledger.query import load_position
from proctor.ledger.row import TrialRow
from proctor.ledger.run_plan import PlannedAgent, RunPlan, digest_settings
from proctor.report.board.trials import BoardTrials, StandIn, settle


class _Agent(msgspec.Struct, frozen=True):
    configuration: dict[str, Any] = {}


class _Record(msgspec.Struct, frozen=True):
    agent: _Agent


@dataclass(frozen=True, slots=True)
class Sat:
    """One trial."""

    attempt: TrialRow
    settings: str
    """Digest of what the agent was told, as plans have it; empty where it was withheld."""
    planned: PlannedAgent | None
    """Whom the plan has for it; None: nobody."""
    stand_in: StandIn | None
    """What stands in for it, whether that counts or not."""

    @property
    def is_counted(self) -> bool:
        """Whether it is in the numbers."""
        return self.attempt.status not in NOT_COUNTED


@dataclass(frozen=True, slots=True)
class Sittings:
    """All trials of an experiment, in the order they were sealed."""

    sat: tuple[Sat, ...]
    trials: BoardTrials


def load_sittings(ledger: Ledger, experiment: str, plan: RunPlan) -> Sittings:
    """The trials of an experiment.

    Raises:
        DamageError: a record cannot be read, or the log is not what its checkpoint says.
    """
    trials = settle(ledger, load_position(ledger, experiment=experiment))
    return Sittings(tuple(_look_at(ledger, each, trials, plan) for each in trials.attempts), trials)


def _look_at(ledger: Ledger, attempt: TrialRow, trials: BoardTrials, plan: RunPlan) -> Sat:
    told = _read_settings(ledger, attempt)
    settings = digest_settings(told) if told is not None else ""
    return Sat(
        attempt=attempt,
        settings=settings,
        planned=_find_planned(attempt, settings, plan),
        stand_in=trials.stand_ins.get(attempt.record),
    )


def _read_settings(ledger: Ledger, attempt: TrialRow) -> Mapping[str, Any] | None:
    entry = ledger.entry(attempt.seq)
    if not isinstance(entry, TrialEntry):
        return None
    try:
        return msgspec.json.decode(entry.record, type=_Record).agent.configuration
    except msgspec.MsgspecError as error:
        raise DamageError(f"entry {attempt.seq}: no TrialRecord in it: {error}") from error


def _find_planned(attempt: TrialRow, settings: str, plan: RunPlan) -> PlannedAgent | None:
    """By what it was told; else by its name and model."""
    for agent in plan.agents:
        if agent.settings == settings:
            return agent
    for agent in plan.agents:
        same_model = agent.model is None or agent.model == attempt.model
        if agent.agent == attempt.agent and same_model:
            return agent
    return None
