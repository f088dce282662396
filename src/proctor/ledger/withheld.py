"""What was withheld, by whether it says of which trial: one place for every list, board and claim.

A line that was taken out is a withheld trial where the first later entry that gives its leaf hash
and a subject names a trial that is nowhere else in the log. Any other line that was taken out is
withheld without naming a trial: it may have been one, and nobody can say which. So is evidence that
an entry without a subject takes out.
"""

from collections.abc import Sequence
from typing import Final

import msgspec

from proctor.ledger.entry import WithholdEntry
from proctor.ledger.reader import LedgerReader
from proctor.sentence import count_of

_MOST_NAMED: Final = 5


class UnnamedWithholding(msgspec.Struct, frozen=True, kw_only=True):
    """Something that was withheld without naming a trial."""

    entry: int | None
    """Place of the line that was taken out; null: only evidence was."""
    said_at: int | None
    """Place of the entry that says so; null where none does."""
    reason: str = ""
    author: str = ""


def find_unnamed(ledger: LedgerReader, size: int | None = None) -> list[UnnamedWithholding]:
    """What was withheld without naming a trial, at a size of the log (default: all of it).

    As with named trials, a line that was taken out later is gone at every position. Call `refresh`
    before.
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
    """The disclosure as a sentence without its full stop; None where there is nothing to say."""
    places = [each.entry for each in found if each.entry is not None]
    said_at = [each.said_at for each in found if each.entry is None and each.said_at is not None]
    return render_places(places, said_at)


def render_places(lines: Sequence[int], evidence: Sequence[int]) -> str | None:
    """The same, by the lines that were taken out and by the entries that take out evidence."""
    if not lines and not evidence:
        return None
    named = [*(f"entry {seq}" for seq in lines), *(f"evidence, by entry {seq}" for seq in evidence)]
    shown = ", ".join(named[:_MOST_NAMED])
    more = ", …" if len(named) > _MOST_NAMED else ""
    what = count_of(len(named), "entry", "entries")
    return f"{what} withheld without naming a trial ({shown}{more}): any experiment may be meant"
