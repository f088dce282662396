"""A trial with what is known of it, and the traces that it can be looked at by.

Of the files that can be its trace (see candidates.py) the first is used that has anything usable in
it: one that has nothing does not hide the next.
"""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from proctor.record.model import TrialRecord
from proctor.traced.candidates import Named, Part, find_parts
from proctor.traced.opening import FoundTrace, Opened, open_parts
from proctor.traced.step_order import order_parts
from proctor.trajectory.kind import TraceKind

__all__ = ["FoundTrace", "Opened", "TracedTrial", "opened_traces"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TracedTrial:
    """A trial, and how to get at its files."""

    name: str
    """EXPERIMENT/TRIAL of a sealed trial, else the path that leads to it."""
    files: tuple[str, ...]
    """All its files, relative and with slashes; of a lone trace, the one."""
    open_file: Callable[[str], Opened]
    """Makes one of them readable for a while."""
    record: TrialRecord | None = None
    """Null for a lone trace, and where `problem` says why there is none."""
    problem: str | None = None
    """Why no record could be made of it."""
    reason_code: str | None = None
    """Why it has no score, from the closed set."""
    findings: tuple[dict[str, Any], ...] = ()
    """What was found about its integrity."""
    seq: int | None = None
    """Its entry's place in the ledger."""
    lone: TraceKind | None = None
    """Of a lone trace: what it is, whatever its name."""


@contextlib.contextmanager
def opened_traces(trial: TracedTrial) -> Iterator[list[FoundTrace]]:
    """The traces of a trial, the steps in their order; empty where it left none.

    Raises:
        DamageError: sealed evidence is missing or altered.
    """
    with contextlib.ExitStack() as stack:
        yield list(open_parts(_find_parts(trial), trial.open_file, stack))


def _find_parts(trial: TracedTrial) -> list[Part]:
    if trial.lone is not None:
        return [Part("", [(trial.lone, trial.files[0])])]
    named = Named()
    if trial.record is not None:
        outputs = trial.record.outputs
        named = Named(outputs.trajectory_path, outputs.conversation_path)
    return order_parts(find_parts(trial.files, named), trial.files, trial.open_file)
