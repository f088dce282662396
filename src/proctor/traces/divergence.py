"""Compare two traces: where they diverge, who diverged first, and what they share afterwards.

Memory grows by a few bytes per action; texts are kept only at the divergence.

Sequences of some hundred actions are compared item by item, which finds the longest common
subsequence. In longer ones, items that occur once in both are matched, as far as the order allows;
between two matches this is repeated, a few levels deep. A stretch without unique items that is too
long to compare counts as different. So a million steps take seconds; fewer items may be matched
than possible, but matched items are equal.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Sequence
from enum import StrEnum
from itertools import chain, zip_longest
from typing import NamedTuple

import msgspec

from proctor.digest import sha256_hex
from proctor.traces.actions import Action
from proctor.traces.entry import Entry

_DEEPEST = 24
# Comparisons of items in total, which take about a second.
_COMPARISONS = 2_000_000


class Block(NamedTuple):
    """A run of equal items."""

    left: int
    """Its start in the first sequence."""
    right: int
    """Its start in the second."""
    size: int


def align[Item: Hashable](left: Sequence[Item], right: Sequence[Item]) -> list[Block]:
    """The runs of equal items, in the order of both."""
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
        # The budget is shared by all stretches, so that the total time is bounded.
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
    """Items that occur once in both: the longest series in the order of both."""
    here = _find_unique(left, *mine)
    there = _find_unique(right, *theirs)
    common = [(at, there[item]) for item, at in here.items() if item in there]
    # The longest series of pairs in which both numbers rise; the first numbers already rise.
    tops: list[int] = []
    at_top: list[int] = []
    before: list[int] = []
    for index, (_, value) in enumerate(common):
        pile = bisect_left(tops, value)
        before.append(at_top[pile - 1] if pile else -1)
        if pile == len(tops):
            tops.append(value)
            at_top.append(index)
        else:
            tops[pile], at_top[pile] = value, index
    rising, index = [], at_top[-1] if at_top else -1
    while index >= 0:
        rising.append(common[index])
        index = before[index]
    return rising[::-1]


def _find_unique[Item: Hashable](items: Sequence[Item], begin: int, end: int) -> dict[Item, int]:
    counts = Counter(items[begin:end])
    return {items[at]: at for at in range(begin, end) if counts[items[at]] == 1}


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


_MOST_HUNKS = 10_000


class First(StrEnum):
    """Who differed first."""

    NEITHER = "nobody"
    AGENT = "agent"
    ENVIRONMENT = "environment"


class Sides(msgspec.Struct, frozen=True, kw_only=True):
    """The actions of both at the same position; None if that side has ended."""

    number: int
    """The position, from 1."""
    a: Action | None
    b: Action | None


class Hunk(msgspec.Struct, frozen=True, kw_only=True):
    """Consecutive actions that are equal in both, or that only one has."""

    kind: str
    """same, only_a or only_b."""
    count: int
    answers_differ: int = 0
    """How many of the equal actions have different answers."""


class Divergence(msgspec.Struct, frozen=True, kw_only=True):
    """How two trajectories differ."""

    actions_a: int
    actions_b: int
    prefix: int
    """Equal actions from the beginning."""
    first: First
    action: Sides | None
    """Where the agents first act differently; null if they never do."""
    answer: Sides | None
    """Where, before that, an equal action first has a different answer."""
    same: int
    """Aligned actions, including the shared beginning."""
    only_a: int
    only_b: int
    answers_differ: int
    """Aligned actions with different answers."""
    hunks: tuple[Hunk, ...]
    """The hunks after the shared beginning, in the order of both."""
    hunks_left_out: int = 0


class Opening:
    """A digest of the instructions before an agent's first action."""

    def __init__(self) -> None:
        self.digest = ""
        """The digest; "" without instructions."""
        self._is_over = False

    def listen(self, entries: Iterable[Entry]) -> Iterator[Entry]:
        """Pass the entries through, and hash the instructions."""
        for entry in entries:
            if entry.role in ("assistant", "tool_call"):
                self._is_over = True
            elif not self._is_over and entry.role in ("system", "user"):
                self.digest = sha256_hex(f"{self.digest}\0{entry.content}".encode(errors="replace"))
            yield entry

    def is_same(self, other: "Opening") -> bool:
        """Whether both got the same instructions."""
        return self.digest == other.digest


type _Rest = tuple[list[bytes], list[bytes | None]]
"""The keys of one side's actions from the divergence on, and of their answers."""


def compare_actions(a: Iterable[Action], b: Iterable[Action]) -> Divergence:
    """Compare two trajectories, given as actions."""
    left, right = iter(a), iter(b)
    prefix = differing = 0
    answer: Sides | None = None
    action: Sides | None = None
    # Streaming, so that long traces are not held in memory up to their divergence.
    for mine, theirs in zip_longest(left, right):
        if mine is None or theirs is None or mine.key != theirs.key:
            action = Sides(number=prefix + 1, a=mine, b=theirs)
            break
        prefix += 1
        if _differ(mine.answer_key, theirs.answer_key):
            differing += 1
            answer = answer or Sides(number=prefix, a=mine, b=theirs)
    rest_a = _read_rest(action.a if action else None, left)
    rest_b = _read_rest(action.b if action else None, right)
    hunks = list(_find_hunks(rest_a, rest_b))
    same = sum(hunk.count for hunk in hunks if hunk.kind == "same")
    return Divergence(
        actions_a=prefix + len(rest_a[0]),
        actions_b=prefix + len(rest_b[0]),
        prefix=prefix,
        first=First.ENVIRONMENT if answer else First.AGENT if action else First.NEITHER,
        action=action,
        answer=answer,
        same=prefix + same,
        only_a=len(rest_a[0]) - same,
        only_b=len(rest_b[0]) - same,
        answers_differ=differing + sum(hunk.answers_differ for hunk in hunks),
        hunks=tuple(hunks[:_MOST_HUNKS]),
        hunks_left_out=max(len(hunks) - _MOST_HUNKS, 0),
    )


def _read_rest(first: Action | None, rest: Iterable[Action]) -> _Rest:
    keys: list[bytes] = []
    answers: list[bytes | None] = []
    for action in chain([first] if first else [], rest):
        keys.append(action.key)
        answers.append(action.answer_key)
    return keys, answers


def _differ(mine: bytes | None, theirs: bytes | None) -> bool:
    """Whether two answers differ; a missing answer never differs."""
    return mine is not None and theirs is not None and mine != theirs


def _find_hunks(mine: _Rest, theirs: _Rest) -> Iterator[Hunk]:
    at, to = 0, 0
    for block in [*align(mine[0], theirs[0]), None]:
        left = len(mine[0]) if block is None else block.left
        right = len(theirs[0]) if block is None else block.right
        if left > at:
            yield Hunk(kind="only_a", count=left - at)
        if right > to:
            yield Hunk(kind="only_b", count=right - to)
        if block is None:
            return
        at, to = left + block.size, right + block.size
        differing = sum(map(_differ, mine[1][left:at], theirs[1][right:to]))
        yield Hunk(kind="same", count=block.size, answers_differ=differing)


def describe_divergence(found: Divergence, *, is_output: bool = False) -> str:
    """One sentence: how far two trajectories, or two outputs, agree, and who diverged first."""
    if is_output:
        return _describe_output(found)
    shared = "The first action is the same"
    if found.prefix != 1:
        shared = f"The first {found.prefix:,} actions are the same"
    match found.first:
        case First.NEITHER:
            return "All actions are the same, and so are the answers."
        case First.ENVIRONMENT:
            parted = " All actions are the same." if found.action is None else ""
            return f"{shared}; the environment's answer differs first.{parted}"
        case First.AGENT:
            if not found.prefix:
                return "Nothing is the same from the start: the agent's action differs first."
            return f"{shared}, and so are the answers; the agent's action differs first."


def _describe_output(found: Divergence) -> str:
    if found.first is First.NEITHER:
        return "All lines of the output are the same."
    if not found.prefix:
        return "The output differs from its first line."
    if found.prefix == 1:
        return "The first line of the output is the same; then it differs."
    return f"The first {found.prefix:,} lines of the output are the same; then it differs."
