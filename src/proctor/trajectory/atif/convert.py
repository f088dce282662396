"""An ATIF document to trajectory entries and back, with a list of what did not survive.

    to_entries(atif)       a message is an entry, then each tool call and its results
    from_entries(entries)  the other way, for the entries of any harness

Agent steps count 1, 2, 3, … as the turns of the entries; what comes before the first is 0, and what
a user or the system says in between has the number of the turn before it. What one side has no
field for is carried along (in_metadata.py, in_extra.py), so that most documents come back whole.
The list of losses is made by going back and comparing: what is not on it has come back.

Nothing is read or written here. Embedded subagents are carried whole, not as entries.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from proctor.errors import TraceError
from proctor.trajectory.atif.in_extra import find_restored, write_entries
from proctor.trajectory.atif.in_metadata import DocumentCarry, split_document, with_document
from proctor.trajectory.atif.model import UNKNOWN_AGENT, Agent, Atif, Step
from proctor.trajectory.atif.rules import find_problems
from proctor.trajectory.atif.steps import group_entries, group_step
from proctor.trajectory.atif.version import to_written_version
from proctor.trajectory.entry import Entry
from proctor.trajectory.loss import Loss, find_losses


def to_entries(atif: Atif) -> tuple[list[Entry], list[Loss]]:
    """The entries of a document, no header among them, and what the way back would not bring.

    Raises:
        TraceError: the document is nested too deeply, or holds half of a surrogate pair.
    """
    try:
        entries = _write(atif)
        written, losses = to_written_version(atif)
        back = _builtins(_read(entries)) if entries else {}
        losses += find_losses(_builtins(written), back)
    except (RecursionError, UnicodeEncodeError) as error:
        raise TraceError(f"the ATIF document cannot be converted: {_blame(error)}") from error
    return entries, losses


def from_entries(
    entries: Sequence[Entry], *, agent: Agent | None = None, session_id: str | None = None
) -> tuple[Atif, list[Loss]]:
    """The entries as an ATIF v1.7 document that harbor's validator takes, and what it cannot hold.

    Agent and session given here go before what the entries carry; an agent that nobody names is
    called unknown. Losses name fields of the entries, as in `entries[3].exit_code`.

    Raises:
        TraceError: there are no entries, they are nested too deeply, or hold half of a surrogate
            pair.
    """
    if not entries:
        raise TraceError("there are no entries; expected at least one, as ATIF needs a step")
    try:
        atif = _read(entries, agent, session_id)
        losses = list(find_losses(_builtins(entries), _builtins(_write(atif)), "entries"))
    except (RecursionError, UnicodeEncodeError) as error:
        raise TraceError(f"the entries cannot be converted: {_blame(error)}") from error
    return atif, losses


def _blame(error: Exception) -> str:
    if isinstance(error, RecursionError):
        return "nested too deeply; expected JSON of some hundred levels at most"
    return "half of a surrogate pair in a text; expected whole characters"


def _builtins(value: object) -> Any:
    return msgspec.to_builtins(value)


def _write(atif: Atif) -> list[Entry]:
    entries: list[Entry] = []
    made: list[Entry] = []
    for number, step in enumerate(atif.steps, 1):
        made = _write_step(step, number, made)
        entries += made
    if entries:
        entries[0] = with_document(entries[0], _document_carry(atif))
    return entries


def _write_step(step: Step, number: int, previous: list[Entry]) -> list[Entry]:
    """The entries of a step: those it was made from, if it can only have been made from them."""
    before = previous[0].step if previous else 0
    restored = find_restored(step, number, before)
    if restored is not None:
        groups = group_entries([*previous, *restored])[len(group_entries(previous)) :]
        if [group_step(group, number, before) for group in groups] == [step]:
            return restored
    return write_entries(step, number, before)


def _document_carry(atif: Atif) -> DocumentCarry:
    return DocumentCarry(
        session_id=atif.session_id,
        trajectory_id=atif.trajectory_id,
        agent=None if atif.agent == UNKNOWN_AGENT else atif.agent,
        notes=atif.notes,
        final_metrics=atif.final_metrics,
        continued_trajectory_ref=atif.continued_trajectory_ref,
        extra=atif.extra,
        subagent_trajectories=atif.subagent_trajectories,
    )


def _read(
    entries: Sequence[Entry], agent: Agent | None = None, session_id: str | None = None
) -> Atif:
    first, carry = split_document(entries[0])
    steps: list[Step] = []
    turn = 0
    for group in group_entries([first, *entries[1:]]):
        steps.append(group_step(group, len(steps) + 1, turn))
        turn = group.turn
    told = _document(carry, tuple(steps))
    if any(find_problems(told)):
        told = _document(DocumentCarry(), tuple(steps))
    return msgspec.structs.replace(
        told, agent=agent or told.agent, session_id=session_id or told.session_id
    )


def _document(carry: DocumentCarry, steps: tuple[Step, ...]) -> Atif:
    atif = Atif(
        session_id=carry.session_id,
        trajectory_id=carry.trajectory_id,
        agent=carry.agent or UNKNOWN_AGENT,
        steps=steps,
        notes=carry.notes,
        final_metrics=carry.final_metrics,
        continued_trajectory_ref=carry.continued_trajectory_ref,
        extra=carry.extra,
        subagent_trajectories=carry.subagent_trajectories,
    )
    return to_written_version(atif)[0]
