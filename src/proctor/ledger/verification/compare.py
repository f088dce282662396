"""Compare: the entries that were signed against the lines that were found, and what happened.

Both are lists of keys, one a line: leaf hashes, or the numbers that the lines give themselves. What
stands in order in both is in its place; between two such places there is a gap, and what a gap
lacks or has too much of is named. Pure: nothing here reads a file.
"""

from bisect import bisect_left
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from proctor.ledger.verification.damage import DamageKind
from proctor.ledger.verification.scan import Torn


class Keys[Key](Protocol):
    """What lines are compared by, in order."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> Key: ...

    def __iter__(self) -> Iterator[Key]: ...


@dataclass(frozen=True, slots=True)
class Difference:
    """One way in which what was found is not what was signed."""

    kind: DamageKind
    seq: int
    """The entry; of a line too much, the entry before which it stands."""
    line: int
    """The line among those that were found, from 0: where it is, or where it should be."""
    message: str


@dataclass(slots=True)
class Comparison:
    """How the lines that were found differ from what was signed."""

    differences: list[Difference] = field(default_factory=list)
    strange: set[int] = field(default_factory=set)
    """Lines that were found and are not what was signed."""
    behind: int = 0
    """Lines behind the last one that was signed."""
    moved: dict[int, int] = field(default_factory=dict)
    """The entries that lines are, where lines were too much or lacking before them."""

    def seq_of(self, line: int) -> int | None:
        """The entry that a line is; None where it is not what was signed."""
        return None if line in self.strange else self.moved.get(line, line)


@dataclass(frozen=True, slots=True)
class Log[Key: Hashable]:
    """Lines as they are compared."""

    keys: Keys[Key]
    lengths: Sequence[int] | None = None
    """Bytes of each, where they are known."""
    torn: Mapping[int, Torn] = field(default_factory=dict)
    """Bytes without a newline at the end of a segment, by the line that comes after them."""


@dataclass(frozen=True, slots=True)
class _Gap:
    """Entries that are lacking and lines that are too much, between two that are in place."""

    seqs: list[int]
    lines: list[int]
    first: int
    """The line at which it begins."""
    end: int
    """The line behind it."""
    is_last: bool
    """Whether nothing that was signed comes after it."""


def compare_logs[Key: Hashable](signed: Log[Key], found: Log[Key]) -> Comparison:
    """What happened to a log, in the order of its entries."""
    result = Comparison()
    begin, tail = _trim(signed.keys, found.keys)
    ends = (len(signed.keys) - tail, len(found.keys) - tail)
    placed, moved = _align(signed.keys, found.keys, begin, ends)
    result.moved = {line: seq for seq, line in placed if seq != line}
    if ends[0] != ends[1]:
        result.moved.update((ends[1] + at, ends[0] + at) for at in range(tail))
    for seq, line in moved:
        result.strange.add(line)
        what = f"entry {seq} stands as line {line}"
        result.differences.append(Difference(DamageKind.REORDERED, seq, line, what))
    gaps = list(_gaps(placed, moved, begin, ends, has_tail=tail > 0))
    copies = _find_copies(signed.keys, {found.keys[line] for gap in gaps for line in gap.lines})
    told: set[int] = set()
    for gap in gaps:
        torn = next((at for at in found.torn if gap.first <= at <= gap.end), None)
        if torn is not None and gap.seqs:
            told.add(torn)
        _name(gap, signed, found, found.torn.get(-1 if torn is None else torn), result)
        _name_excess(gap, signed, found, copies, result)
    _name_remains(found, told, result)
    result.differences.sort(key=lambda difference: (difference.seq, difference.line))
    return result


def _trim[Key: Hashable](signed: Keys[Key], found: Keys[Key]) -> tuple[int, int]:
    """How many are the same at the beginning, and how many of the rest at the end."""
    last, other = len(signed) - 1, len(found) - 1
    shorter = min(len(signed), len(found))
    begin = 0
    while begin < shorter and signed[begin] == found[begin]:
        begin += 1
    tail = 0
    while tail < shorter - begin and signed[last - tail] == found[other - tail]:
        tail += 1
    return begin, tail


type _Pairs = list[tuple[int, int]]
"""Entries and the lines that they are, in the order of the lines."""


def _align[Key: Hashable](
    signed: Keys[Key], found: Keys[Key], begin: int, ends: tuple[int, int]
) -> tuple[_Pairs, _Pairs]:
    """The entries that are in their places, and those that are there and in others."""
    places = {signed[seq]: seq for seq in range(begin, ends[0])}
    lines: dict[int, int] = {}
    for line in range(begin, ends[1]):
        seq = places.get(found[line])
        # Of several copies the one in the right place is the entry.
        if seq is not None and (seq not in lines or line == seq):
            lines[seq] = line
    pairs = sorted(((seq, line) for seq, line in lines.items()), key=lambda pair: pair[1])
    rising = _longest_rising([seq for seq, _ in pairs])
    placed = [pair for number, pair in enumerate(pairs) if number in rising]
    return placed, [pair for number, pair in enumerate(pairs) if number not in rising]


def _longest_rising(values: Sequence[int]) -> set[int]:
    """Which of the values make up a longest rising row of them."""
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
    """Which keys were signed, wherever."""
    return {key for key in signed if key in wanted} if wanted else set()


def _name[Key: Hashable](
    gap: _Gap, signed: Log[Key], found: Log[Key], torn: Torn | None, result: Comparison
) -> None:
    """What became of the entries that a gap lacks."""
    if _has_same_extent(gap, signed, found):
        # A newline became another byte, or another byte a newline: no byte is gone.
        edited, lacking = gap.seqs, []
    else:
        edited, lacking = gap.seqs[: len(gap.lines)], gap.seqs[len(gap.lines) :]
    for first, last in _runs(edited):
        line = gap.lines[min(first - edited[0], len(gap.lines) - 1)]
        what = f"entry {first} has" if first == last else f"entries {first} to {last} have"
        what += " other bytes than were signed"
        result.differences.append(Difference(DamageKind.EDITED, first, line, what))
    if torn is not None and lacking and torn.leaf_but_last == signed.keys[lacking[0]]:
        what = f"entry {lacking[0]} ends with another byte than a newline"
        result.differences.append(Difference(DamageKind.EDITED, lacking[0], gap.end, what))
        lacking = lacking[1:]
    is_cut = torn is not None or gap.is_last
    kind = DamageKind.TRUNCATED if is_cut else DamageKind.REMOVED
    for first, last in _runs(lacking):
        what = f"entry {first} is" if first == last else f"entries {first} to {last} are"
        what += " cut off" if is_cut else " not there"
        result.differences.append(Difference(kind, first, gap.end, what))


def _has_same_extent[Key: Hashable](gap: _Gap, signed: Log[Key], found: Log[Key]) -> bool:
    if signed.lengths is None or found.lengths is None or not gap.lines:
        return False
    before = sum(signed.lengths[seq] + 1 for seq in gap.seqs)
    return before == sum(found.lengths[line] + 1 for line in gap.lines)


def _runs(numbers: Sequence[int]) -> Iterator[tuple[int, int]]:
    """The first and the last of every unbroken row."""
    first = None
    for place, number in enumerate(numbers):
        first = number if first is None else first
        if number + 1 not in numbers[place + 1 : place + 2]:
            yield first, number
            first = None


def _name_excess[Key: Hashable](
    gap: _Gap, signed: Log[Key], found: Log[Key], copies: set[Key], result: Comparison
) -> None:
    """What the lines are that a gap has too much of."""
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


def _name_remains[Key: Hashable](found: Log[Key], told: set[int], result: Comparison) -> None:
    """Bytes without a newline at the end of a segment, where no entry is lacking."""
    for line in found.torn:
        if line not in told and line < len(found.keys) - result.behind:
            what = f"before line {line} are bytes that are no line"
            result.differences.append(Difference(DamageKind.INSERTED, line, line, what))
