"""Two long sequences laid side by side, in bounded time: patience, by what occurs once in both.

Sequences of some hundreds are compared item by item, which gives the most equals there can be. Of
longer ones, what occurs once in both is taken for the same place, as far as the order allows;
between two such places the same is done again, a few levels deep. What has nothing unique and is
too long to be compared counts as different. So a million steps take seconds; the answer may then
pair fewer than could be paired, but what is paired is equal.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from typing import NamedTuple

_DEEPEST = 24
_COMPARISONS = 2_000_000
"""How many items are compared with one another in all; that takes about a second."""


class Block(NamedTuple):
    """A run of equals."""

    left: int
    """Where it begins in the first sequence."""
    right: int
    """Where it begins in the second."""
    size: int


def align[Item: Hashable](left: Sequence[Item], right: Sequence[Item]) -> list[Block]:
    """The runs of equals, in their order in both."""
    pairs: list[tuple[int, int]] = []
    waiting = [(0, len(left), 0, len(right), 0)]
    left_over = _COMPARISONS
    while waiting:
        begin, end, low, high, depth = waiting.pop()
        while begin < end and low < high and left[begin] == right[low]:
            pairs.append((begin, low))
            begin, low = begin + 1, low + 1
        while begin < end and low < high and left[end - 1] == right[high - 1]:
            end, high = end - 1, high - 1
            pairs.append((end, high))
        if begin == end or low == high or depth > _DEEPEST:
            continue
        if (cost := (end - begin) * (high - low)) <= left_over:
            left_over -= cost
            found = _compare_all(left[begin:end], right[low:high])
            pairs += [(begin + at, low + to) for at, to in found]
            continue
        anchors = _find_anchors(left, right, (begin, end), (low, high))
        if anchors:
            pairs += anchors
            before = (begin - 1, low - 1)
            for at, to in [*anchors, (end, high)]:
                waiting.append((before[0] + 1, at, before[1] + 1, to, depth + 1))
                before = (at, to)
    return list(_join(sorted(pairs)))


def _compare_all[Item: Hashable](
    left: Sequence[Item], right: Sequence[Item]
) -> Iterator[tuple[int, int]]:
    """The most pairs of equals that rise in both: the longest common subsequence."""
    width = len(right)
    # How many pairs there can be from each place on, last row first.
    rows = [[0] * (width + 1)]
    for item in reversed(left):
        below, row, best = rows[-1], [0] * (width + 1), 0
        for to in range(width - 1, -1, -1):
            best = below[to + 1] + 1 if item == right[to] else max(best, below[to])
            row[to] = best
        rows.append(row)
    rows.reverse()
    at = to = 0
    while at < len(left) and to < width:
        if left[at] == right[to]:
            yield at, to
            at, to = at + 1, to + 1
        elif rows[at + 1][to] >= rows[at][to + 1]:
            at += 1
        else:
            to += 1


def _find_anchors[Item: Hashable](
    left: Sequence[Item], right: Sequence[Item], mine: tuple[int, int], theirs: tuple[int, int]
) -> list[tuple[int, int]]:
    """Places of what occurs once in both, as many as can be had in the order of both."""
    here = _find_unique(left, *mine)
    there = _find_unique(right, *theirs)
    common = [(at, there[item]) for item, at in here.items() if item in there]
    return _longest_rising(common)


def _find_unique[Item: Hashable](items: Sequence[Item], begin: int, end: int) -> dict[Item, int]:
    counts = Counter(items[begin:end])
    return {items[at]: at for at in range(begin, end) if counts[items[at]] == 1}


def _longest_rising(pairs: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Most of the pairs, such that both numbers rise; the first numbers rise already."""
    tops: list[int] = []
    at_top: list[int] = []
    before: list[int] = []
    for index, (_, value) in enumerate(pairs):
        pile = bisect_left(tops, value)
        before.append(at_top[pile - 1] if pile else -1)
        if pile == len(tops):
            tops.append(value)
            at_top.append(index)
        else:
            tops[pile], at_top[pile] = value, index
    rising, index = [], at_top[-1] if at_top else -1
    while index >= 0:
        rising.append(pairs[index])
        index = before[index]
    return rising[::-1]


def _join(pairs: list[tuple[int, int]]) -> Iterator[Block]:
    begin, size = (-1, -1), 0
    for at, to in pairs:
        if size and (at, to) == (begin[0] + size, begin[1] + size):
            size += 1
            continue
        if size:
            yield Block(*begin, size)
        begin, size = (at, to), 1
    if size:
        yield Block(*begin, size)
