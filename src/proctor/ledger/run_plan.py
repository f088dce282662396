"""The plans in a ledger: what was to be run, sealed before it was."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from proctor.errors import InputError
from proctor.ledger.entry import PlanEntry
from proctor.ledger.query import snapshot
from proctor.ledger.reader import LedgerReader
from proctor.record.comparable import settings_digest

FORMAT: Final = "proctor-plan-1"


class PlannedTask(msgspec.Struct, frozen=True, kw_only=True):
    """A task of the plan."""

    task: str
    """Its name, as in records."""
    revision: str
    """Its checksum, as computed by harbor."""


class PlannedAgent(msgspec.Struct, frozen=True, kw_only=True):
    """An agent of the plan."""

    agent: str
    """Name, or import path."""
    model: str | None
    settings: str
    """Digest of the agent's settings, with the names of its variables only: 12 hex digits."""
    revision: str | None = None
    """Revision of the agent, if known before it runs."""


class PlannedRetries(msgspec.Struct, frozen=True, kw_only=True):
    """Which trials are retried automatically."""

    most: int = 0
    """Retries of one trial, at most."""
    only: tuple[str, ...] | None = None
    """Retry only on these exceptions; null: on any."""
    never: tuple[str, ...] = ()
    """Never retry on these exceptions, whatever `only` lists."""


class RunPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be run, and for which causes trials may be excluded."""

    format: str = FORMAT
    dataset: str | None
    """name@version, if the dataset has a version."""
    tasks: tuple[PlannedTask, ...]
    agents: tuple[PlannedAgent, ...]
    attempts: int
    """Attempts of each agent at each task."""
    environment: str
    """The environment of the trials, such as sandbox or docker."""
    limits: dict[str, float | bool | str] = {}
    """Multipliers and overrides that differ from the defaults, by their names in harbor's
    config."""
    retries: PlannedRetries
    exclusions: tuple[str, ...] = ()
    """Causes for which another trial may replace one; empty: none."""
    note: str = ""

    @property
    def n_trials(self) -> int:
        """The number of planned trials."""
        return len(self.tasks) * len(self.agents) * self.attempts


_DECODER = msgspec.json.Decoder(RunPlan)


def parse_plan(data: bytes, where: str) -> RunPlan:
    """Parse the plan in an entry.

    Raises:
        InputError: it is not of this format; a ledger may contain plans of any format.
    """
    try:
        plan = _DECODER.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(f"{where}: not a plan of format {FORMAT}: {error}") from error
    if plan.format != FORMAT:
        raise InputError(f"{where}: a plan of format {plan.format[:80]!r}; expected {FORMAT}")
    return plan


@dataclass(frozen=True, slots=True)
class SealedPlan:
    """A plan and its position in the log."""

    seq: int
    experiment: str
    data: bytes
    """The sealed bytes, of any plan format."""
    where: str

    @property
    def plan(self) -> RunPlan:
        """The parsed plan."""
        return parse_plan(self.data, self.where)

    @property
    def n_trials(self) -> int | None:
        """The number of planned trials; None if the format is unknown."""
        try:
            return self.plan.n_trials
        except InputError:
            return None


def list_plans(
    ledger: LedgerReader, experiment: str | None = None, *, at: int | None = None
) -> list[SealedPlan]:
    """All plans or those of one experiment, in order; with `at`, those at that size of the log."""
    found = []
    with snapshot(ledger) as size:
        places = ledger.index.places("plan", size=at or size)
    for seq in places:
        entry = ledger.entry(seq)
        if isinstance(entry, PlanEntry) and experiment in (None, entry.experiment_id):
            where = f"{ledger.where}: entry {seq}"
            found.append(SealedPlan(seq, entry.experiment_id, bytes(entry.plan), where))
    return found


def digest_settings(settings: Mapping[str, Any]) -> str:
    """Digest of an agent's settings, computed alike for plans and records.

    Only the names of its variables are included: the values may be secrets.
    """
    agent = settings.get("agent")
    if isinstance(agent, Mapping):
        settings = {**settings, "agent": {**agent, "env": sorted(agent.get("env") or ())}}
    return settings_digest(None, settings)
