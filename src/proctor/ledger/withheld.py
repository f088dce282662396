"""Withholdings that name no trial: shared by lists, boards and claims.

A withheld line is a withheld trial if the first later entry that gives its leaf hash and a subject
names a trial that is nowhere else in the log. Every other withheld line names no trial: it may have
been one, but which is unknown. The same holds for evidence withheld by an entry without a subject.
"""

from collections.abc import Sequence
from typing import Final

import msgspec

from proctor.ledger.entry import WithholdEntry
from proctor.ledger.reader import LedgerReader
from proctor.sentence import count_of

_MOST_NAMED: Final = 5


class UnnamedWithholding(msgspec.Struct, frozen=True, kw_only=True):
    """A withholding that names no trial."""

    entry: int | None
    """Position of the withheld line; null: only evidence was withheld."""
    said_at: int | None
    """Position of the entry that withholds it; null if there is none."""
    reason: str = ""
    author: str = ""


def list_unnamed(ledger: LedgerReader, size: int | None = None) -> list[UnnamedWithholding]:
    """Withholdings that name no trial, at a size of the log (default: all of it).

    A line that was withheld later counts as withheld at every size, as for named trials. Call
    `refresh` first.
    """
    bound = ledger.index.size() if size is None else size
    found = ledger.index.unnamed_withholdings(bound)
    return [_describe(ledger, line, said_at) for line, said_at in found]


def _describe(ledger: LedgerReader, line: int | None, said_at: int | None) -> UnnamedWithholding:
    said = None if said_at is None else ledger.entry(said_at)
    if not isinstance(said, WithholdEntry):
        return UnnamedWithholding(entry=line, said_at=None)
    return UnnamedWithholding(entry=line, said_at=said_at, reason=said.reason, author=said.author)


def render_unnamed(found: Sequence[UnnamedWithholding]) -> str | None:
    """The disclosure as a sentence without its full stop; None if there are none."""
    places = [each.entry for each in found if each.entry is not None]
    said_at = [each.said_at for each in found if each.entry is None and each.said_at is not None]
    return render_places(places, said_at)


def render_places(lines: Sequence[int], evidence: Sequence[int]) -> str | None:
    """Like `render_unnamed`, for withheld lines and for entries that withhold evidence."""
    if not lines and not evidence:
        return None
    named = [*(f"entry {seq}" for seq in lines), *(f"evidence, by entry {seq}" for seq in evidence)]
    shown = ", ".join(named[:_MOST_NAMED])
    more = ", …" if len(named) > _MOST_NAMED else ""
    what = count_of(len(named), "entry", "entries")
    return f"{what} withheld without naming a trial ({shown}{more}): any experiment may be meant"
