"""Why a trial failed: one cause, by ordered rules, with the evidence that a rule rests on.

A cause explains a score and never moves it: nothing that scores imports this. Rules look for words,
so a cause can be wrong; that is why each shows where it was read, and what stands there.
"""

from enum import StrEnum
from typing import Any, Final

import msgspec

from proctor.inspection.limits import Limit
from proctor.inspection.tool_errors import ToolError

LONGEST_QUOTE: Final = 300
"""Characters of what is quoted as evidence."""
PASSED: Final = 1.0
"""A reward below it is a failure that has a cause."""


class CauseKind(StrEnum):
    """Whose doing a failure was."""

    AGENT = "agent"
    """The agent did not solve it."""
    TASK = "task"
    """The task cannot be sat as it is."""
    VERIFIER = "verifier"
    """The verifier gave no number that counts."""
    INFRASTRUCTURE = "infrastructure"
    """Machines, networks, endpoints, or whoever stopped it."""
    LIMIT = "limit"
    """A limit of time, turns, tokens, money or context ended it."""
    CHEATING = "cheating suspected"
    """What was found about its integrity speaks against it."""


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """What a rule read."""

    where: str
    """A file of the trial, a field of the record, a finding, a step of the trace."""
    quote: str
    """What stands there, 300 characters of it."""


class Cause(msgspec.Struct, frozen=True, kw_only=True):
    """Why a trial failed."""

    kind: CauseKind
    rule: str
    """Name of the rule that decided; docs/summaries.md has a line for each."""
    evidence: tuple[Evidence, ...]


class LogText(msgspec.Struct, frozen=True, kw_only=True):
    """A file that may say what went wrong."""

    name: str
    """Which of the trial's files."""
    text: str
    """Its beginning and its end."""


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """All that the rules look at."""

    reward: float | None
    """Null where it was not scored."""
    reason_code: str | None = None
    exceptions: tuple[tuple[str, str], ...] = ()
    """Each error on record: its class, and its sentence."""
    agent_error: str | None = None
    """What the record says of the agent's own end."""
    verifier_completed: bool = False
    breakdown: dict[str, Any] | None = None
    findings: tuple[dict[str, Any], ...] = ()
    limit: Limit | None = None
    verifier_logs: tuple[LogText, ...] = ()
    """What the verifier printed."""
    tracebacks: tuple[LogText, ...] = ()
    """What ended the trial, with the frames."""
    was_verified: bool = True
    """Whether anything of a verifier is there at all."""
    is_unverified: bool = False
    """Whether the job was told to verify nothing."""
    last_error: ToolError | None = None
    """The last tool error of the trace."""
    problem: str | None = None
    """Why there is no record."""


def has_failed(reward: float | None) -> bool:
    """Whether a trial with this reward needs a cause: not scored, or scored below 1."""
    return reward is None or reward < PASSED


def quoted(where: str, text: str) -> Evidence:
    """A piece of evidence, cut to what is shown."""
    short = text.strip()
    cut = short if len(short) <= LONGEST_QUOTE else f"{short[: LONGEST_QUOTE - 1]}…"
    return Evidence(where=where, quote=cut)
