"""Compares the entries that were signed with the lines that were read, and names the differences.

Both are lists of keys, one for each line: leaf hashes, or the sequence numbers that lines state.
Keys in the same order in both are in place; what is missing or extra in the gaps between them is
named. Pure functions.
"""

from bisect import bisect_left
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from proctor.ledger.verification.damage import DamageKind
from proctor.ledger.verification.scan import Torn


class Keys[Key](Protocol):
    """The keys that lines are compared by, in order."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> Key: ...

    def __iter__(self) -> Iterator[Key]: ...


@dataclass(frozen=True, slots=True)
class Difference:
    """One difference between the signed and the present log."""

    kind: DamageKind
    seq: int
    """The entry; for an extra line, the entry that it comes before."""
    line: int
    """The present line, from 0: where it is, or where it should be."""
    message: str


@dataclass(slots=True)
class Comparison:
    """All differences between the signed and the present log."""

    differences: list[Difference] = field(default_factory=list)
    strange: set[int] = field(default_factory=set)
    """Present lines that are not what was signed."""
    behind: int = 0
    """Lines after the last signed one."""
    moved: dict[int, int] = field(default_factory=dict)
    """The entry of each line that was shifted by extra or missing lines before it."""

    def seq_of(self, line: int) -> int | None:
        """The entry in a line; None if it is not what was signed."""
        return None if line in self.strange else self.moved.get(line, line)


@dataclass(frozen=True, slots=True)
class Log[Key: Hashable]:
    """Lines to be compared."""

    keys: Keys[Key]
    lengths: Sequence[int] | None = None
    """Length of each in bytes, if known."""
    torn: Mapping[int, Torn] = field(default_factory=dict)
    """Bytes without a newline at the end of a segment, by the line that follows them."""


@dataclass(frozen=True, slots=True)
class _Gap:
    """Missing entries and extra lines between two that are in place."""

    seqs: list[int]
    lines: list[int]
    first: int
    """Its first line."""
    end: int
    """The line after it."""
    is_last: bool
    """Whether no signed entry comes after it."""


def compare_logs[Key: Hashable](signed: Log[Key], found: Log[Key]) -> Comparison:
    """Compare a signed log with a present one; differences are in the order of entries."""
    result = Comparison()
    # Usually almost all lines are in place: align only the part that differs.
    begin, tail = _trim(signed.keys, found.keys)
    ends = (len(signed.keys) - tail, len(found.keys) - tail)
    placed, moved = _align(signed.keys, found.keys, begin, ends)
    result.moved = {line: seq for seq, line in placed if seq != line}
    if ends[0] != ends[1]:
        result.moved.update((ends[1] + at, ends[0] + at) for at in range(tail))
    for seq, line in moved:
        result.strange.add(line)
        what = f"entry {seq} is at line {line}"
        result.differences.append(Difference(DamageKind.REORDERED, seq, line, what))
    gaps = list(_gaps(placed, moved, begin, ends, has_tail=tail > 0))
    copies = _find_copies(signed.keys, {found.keys[line] for gap in gaps for line in gap.lines})
    reported: set[int] = set()
    for gap in gaps:
        torn = next((at for at in found.torn if gap.first <= at <= gap.end), None)
        if torn is not None and gap.seqs:
            reported.add(torn)
        _name(gap, signed, found, found.torn.get(-1 if torn is None else torn), result)
        _name_excess(gap, signed, found, copies, result)
    _name_torn(found, reported, result)
    result.differences.sort(key=lambda difference: (difference.seq, difference.line))
    return result


def _trim[Key: Hashable](signed: Keys[Key], found: Keys[Key]) -> tuple[int, int]:
    """The number of equal keys at the start, and of the rest at the end."""
    last, other = len(signed) - 1, len(found) - 1
    shorter = min(len(signed), len(found))
    begin = 0
    while begin < shorter and signed[begin] == found[begin]:
        begin += 1
    tail = 0
    while tail < shorter - begin and signed[last - tail] == found[other - tail]:
        tail += 1
    return begin, tail


# Entries with their lines, in the order of lines.
type _Pairs = list[tuple[int, int]]


def _align[Key: Hashable](
    signed: Keys[Key], found: Keys[Key], begin: int, ends: tuple[int, int]
) -> tuple[_Pairs, _Pairs]:
    """The entries that are in place, and those that are at another line."""
    places = {signed[seq]: seq for seq in range(begin, ends[0])}
    lines: dict[int, int] = {}
    for line in range(begin, ends[1]):
        seq = places.get(found[line])
        # Of several copies, the one at the right line is the entry.
        if seq is not None and (seq not in lines or line == seq):
            lines[seq] = line
    pairs = sorted(((seq, line) for seq, line in lines.items()), key=lambda pair: pair[1])
    rising = _longest_rising([seq for seq, _ in pairs])
    placed = [pair for number, pair in enumerate(pairs) if number in rising]
    return placed, [pair for number, pair in enumerate(pairs) if number not in rising]


def _longest_rising(values: Sequence[int]) -> set[int]:
    """The indexes of a longest increasing subsequence."""
    tops: list[int] = []
    ends: list[int] = []
    before: list[int] = []
    for number, value in enumerate(values):
        at = bisect_left(tops, value)
        before.append(ends[at - 1] if at else -1)
        tops[at : at + 1] = [value]
        ends[at : at + 1] = [number]
    chosen: set[int] = set()
    number = ends[-1] if ends else -1
    while number >= 0:
        chosen.add(number)
        number = before[number]
    return chosen


def _gaps(
    placed: _Pairs, moved: _Pairs, begin: int, ends: tuple[int, int], *, has_tail: bool
) -> Iterator[_Gap]:
    elsewhere = {seq for seq, _ in moved}
    strays = {line for _, line in moved}
    seq, line = begin, begin
    for number, (next_seq, next_line) in enumerate([*placed, ends]):
        seqs = [lacking for lacking in range(seq, next_seq) if lacking not in elsewhere]
        lines = [extra for extra in range(line, next_line) if extra not in strays]
        if seqs or lines:
            is_last = number == len(placed) and not has_tail
            yield _Gap(seqs, lines, line, next_line, is_last)
        seq, line = next_seq + 1, next_line + 1


def _find_copies[Key: Hashable](signed: Keys[Key], wanted: set[Key]) -> set[Key]:
    """The keys among `wanted` that were signed anywhere."""
    return {key for key in signed if key in wanted} if wanted else set()


def _name[Key: Hashable](
    gap: _Gap, signed: Log[Key], found: Log[Key], torn: Torn | None, result: Comparison
) -> None:
    """Name what happened to the entries that are missing in a gap."""
    if _has_same_extent(gap, signed, found):
        # A newline was changed into another byte, or the reverse: no byte is missing.
        edited, lacking = gap.seqs, []
    else:
        edited, lacking = gap.seqs[: len(gap.lines)], gap.seqs[len(gap.lines) :]
    for first, last in _runs(edited):
        line = gap.lines[min(first - edited[0], len(gap.lines) - 1)]
        what = f"entry {first} differs" if first == last else f"entries {first} to {last} differ"
        what += " from what was signed"
        result.differences.append(Difference(DamageKind.EDITED, first, line, what))
    if torn is not None and lacking and torn.leaf_but_last == signed.keys[lacking[0]]:
        what = f"entry {lacking[0]} does not end with a newline"
        result.differences.append(Difference(DamageKind.EDITED, lacking[0], gap.end, what))
        lacking = lacking[1:]
    is_cut = torn is not None or gap.is_last
    kind = DamageKind.TRUNCATED if is_cut else DamageKind.REMOVED
    for first, last in _runs(lacking):
        what = f"entry {first} is" if first == last else f"entries {first} to {last} are"
        what += " cut off" if is_cut else " missing"
        result.differences.append(Difference(kind, first, gap.end, what))


def _has_same_extent[Key: Hashable](gap: _Gap, signed: Log[Key], found: Log[Key]) -> bool:
    if signed.lengths is None or found.lengths is None or not gap.lines:
        return False
    before = sum(signed.lengths[seq] + 1 for seq in gap.seqs)
    return before == sum(found.lengths[line] + 1 for line in gap.lines)


def _runs(numbers: Sequence[int]) -> Iterator[tuple[int, int]]:
    """The first and last number of every run without a gap."""
    first = None
    for place, number in enumerate(numbers):
        first = number if first is None else first
        if number + 1 not in numbers[place + 1 : place + 2]:
            yield first, number
            first = None


def _name_excess[Key: Hashable](
    gap: _Gap, signed: Log[Key], found: Log[Key], copies: set[Key], result: Comparison
) -> None:
    """Name what the extra lines of a gap are."""
    result.strange.update(gap.lines)
    excess = gap.lines[len(gap.seqs) :]
    if _has_same_extent(gap, signed, found):
        return
    if gap.is_last:
        result.behind += len(excess)
        return
    for line in excess:
        is_copy = found.keys[line] in copies
        kind = DamageKind.DUPLICATED if is_copy else DamageKind.INSERTED
        what = "is a copy of another entry" if is_copy else "was never signed"
        what = f"line {line} {what}"
        result.differences.append(Difference(kind, line, line, what))


def _name_torn[Key: Hashable](found: Log[Key], reported: set[int], result: Comparison) -> None:
    """Report bytes without a newline at the end of a segment where no entry is missing."""
    for line in found.torn:
        if line not in reported and line < len(found.keys) - result.behind:
            what = f"before line {line} are bytes that are not a line"
            result.differences.append(Difference(DamageKind.INSERTED, line, line, what))
