"""A plan as a value, and as the bytes that are sealed."""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from proctor.digest import sha256_hex
from proctor.errors import InputError
from proctor.record.comparable import settings_digest

FORMAT: Final = "proctor-plan-1"


class PlannedTask(msgspec.Struct, frozen=True, kw_only=True):
    """A task that is to be sat."""

    task: str
    """Its name, as records have it."""
    revision: str
    """Harbor's checksum of it."""


class PlannedAgent(msgspec.Struct, frozen=True, kw_only=True):
    """Who is to sit."""

    agent: str
    """Name, or import path."""
    model: str | None
    settings: str
    """Digest of the agent's own settings, of its variables only the names: 12 hex digits."""
    revision: str | None = None
    """Of the agent, where it is known before it runs."""


class PlannedRetries(msgspec.Struct, frozen=True, kw_only=True):
    """Which trials are run again by themselves."""

    most: int = 0
    """Times that one trial is run again."""
    only: tuple[str, ...] | None = None
    """Exceptions for which that is done; null: any."""
    never: tuple[str, ...] = ()
    """Exceptions for which it is not done, whatever `only` says."""


class RunPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be run, and by which rules something may be left out of the numbers."""

    format: str = FORMAT
    dataset: str | None
    """name@version, where the dataset has one."""
    tasks: tuple[PlannedTask, ...]
    agents: tuple[PlannedAgent, ...]
    attempts: int
    """By each agent at each task."""
    environment: str
    """What the trials are run in, such as sandbox or docker."""
    limits: dict[str, float | bool | str] = {}
    """Multipliers and overrides that are not the default, by their names in harbor's settings."""
    retries: PlannedRetries
    exclusions: tuple[str, ...] = ()
    """Causes for which another trial may stand in for one; none: for no cause."""
    note: str = ""

    @property
    def n_trials(self) -> int:
        """All that are to be run."""
        return len(self.tasks) * len(self.agents) * self.attempts


_ENCODER = msgspec.json.Encoder()
_DECODER = msgspec.json.Decoder(RunPlan)


def encode_plan(plan: RunPlan) -> bytes:
    """The bytes that are sealed."""
    return _ENCODER.encode(plan)


def parse_plan(data: bytes, where: str) -> RunPlan:
    """The plan in an entry.

    Raises:
        InputError: it is none of this format; a ledger takes any.
    """
    try:
        plan = _DECODER.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(f"{where}: no plan of format {FORMAT}: {error}") from error
    if plan.format != FORMAT:
        raise InputError(f"{where}: a plan of format {plan.format[:80]!r}; expected {FORMAT}")
    return plan


def plan_digest(data: bytes) -> str:
    """SHA-256 of a plan's bytes as stored."""
    return sha256_hex(data)


def digest_settings(settings: Mapping[str, Any]) -> str:
    """Names what an agent was told, as plans and records both have it.

    Of its variables only the names count: values may be secrets.
    """
    agent = settings.get("agent")
    if isinstance(agent, Mapping):
        settings = {**settings, "agent": {**agent, "env": sorted(agent.get("env") or ())}}
    return settings_digest(None, settings)
