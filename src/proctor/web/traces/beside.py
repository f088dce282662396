"""Two traces beside each other: what both did the same, and what only one did, in their order.

`traces.divergence` says where they part and how the rest is aligned; here the actions that a
page shows of it are fetched, the first of every stretch.
"""

from array import array
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

from proctor.traces.actions import Action, read_actions
from proctor.traces.divergence import Divergence, Hunk, Opening, compare_actions
from proctor.traces.entry import Entry
from proctor.traces.trajectory import read_pieces
from proctor.web.traces.index import TraceIndex
from proctor.web.traces.lines import Lines
from proctor.web.traces.plain import Folded, fold, make_plain
from proctor.web.traces.window import read_some

_FIRST: Final = 3
"""Actions of a stretch that are shown."""
_MOST_ENTRIES: Final = 2000
"""Entries that are looked at again for one action."""
_SHARED: Final = 2
"""Actions of the shared beginning that are shown, the last ones."""


@dataclass(frozen=True, slots=True)
class ShownAction:
    """One action of one side."""

    step: int
    tool: str
    command: Folded
    answer: Folded | None
    exit_code: int | None


@dataclass(slots=True, kw_only=True)
class Stretch:
    """Actions that have one fate: the same on both sides, or only on one, or other ones on each."""

    is_same: bool
    count_a: int = 0
    count_b: int = 0
    answers_differ: int = 0
    begin_a: int = 0
    begin_b: int = 0
    """Its first action on either side, counted from 0."""
    a: list[ShownAction] = field(default_factory=list)
    b: list[ShownAction] = field(default_factory=list)


class Side:
    """One of two traces: its actions while they are compared, and some of them again later."""

    def __init__(self, lines: Lines, index: TraceIndex) -> None:
        self.opening = Opening()
        self._lines, self._index = lines, index
        self._read = 0
        self._ends = array("I")
        """For each action, how many entries were read when it was known."""
        self._steps = array("q")

    def actions(self) -> Iterator[Action]:
        """All actions, in their order."""
        for action in read_actions(self.opening.listen(self._entries())):
            self._ends.append(self._read)
            self._steps.append(min(action.step, (1 << 62) - 1))
            yield action

    def _entries(self) -> Iterator[Entry]:
        for span, piece in self._lines.pieces():
            if isinstance(piece, bytes):
                for chunk in read_pieces([(span.line, piece)]):
                    for entry in chunk.entries:
                        self._read += 1
                        yield entry

    def load(self, number: int) -> ShownAction | None:
        """One action again, by the few entries that it was made of."""
        end, step = self._ends[number], self._steps[number]
        first = bisect_left(self._ends, end)
        begin = self._ends[first - 1] - 1 if first else 0
        rows = range(max(begin, end - _MOST_ENTRIES), min(end, len(self._index)))
        wanted = [row for row in rows if self._index.steps[row] == step]
        found = read_actions(read_some(self._lines, self._index, wanted))
        action = next(islice(found, number - first, None), None)
        return None if action is None else show_action(action)


@dataclass(frozen=True, slots=True)
class Beside:
    """Two traces, as a page shows them."""

    found: Divergence
    told_the_same: bool
    stretches: list[Stretch]
    left_out: int
    """Stretches that are not shown."""
    shared: Stretch


def lay_beside(a: Side, b: Side, most: int) -> Beside:
    """Two traces beside each other, with as many stretches as are wanted.

    Raises:
        TraceError: one cannot be read.
        DamageError: what was sealed is missing or altered.
    """
    found = compare_actions(a.actions(), b.actions())
    stretches = list(_join(found.hunks, found.prefix))
    begin = max(found.prefix - _SHARED, 0)
    shared = Stretch(
        is_same=True, count_a=found.prefix - begin, count_b=found.prefix - begin,
        begin_a=begin, begin_b=begin,
    )  # fmt: skip
    shown = stretches[:most]
    _fill([shared, *shown], a, b)
    return Beside(
        found=found,
        told_the_same=a.opening.is_same(b.opening),
        stretches=shown,
        left_out=len(stretches) - len(shown) + found.hunks_left_out,
        shared=shared,
    )


def _join(hunks: Sequence[Hunk], prefix: int) -> Iterator[Stretch]:
    """Stretches; what only A did and what only B did instead are one."""
    at = to = prefix
    apart: Stretch | None = None
    for hunk in hunks:
        if hunk.kind == "same":
            if apart is not None:
                yield apart
                apart = None
            yield Stretch(
                is_same=True,
                count_a=hunk.count,
                count_b=hunk.count,
                answers_differ=hunk.answers_differ,
                begin_a=at,
                begin_b=to,
            )
            at, to = at + hunk.count, to + hunk.count
            continue
        apart = apart or Stretch(is_same=False, begin_a=at, begin_b=to)
        if hunk.kind == "only_a":
            apart.count_a += hunk.count
            at += hunk.count
        else:
            apart.count_b += hunk.count
            to += hunk.count
    if apart is not None:
        yield apart


def _fill(stretches: list[Stretch], a: Side, b: Side) -> None:
    """Fetch the first actions of every stretch."""
    for stretch in stretches:
        for side, begin, count, shown in (
            (a, stretch.begin_a, stretch.count_a, stretch.a),
            (b, stretch.begin_b, stretch.count_b, stretch.b),
        ):
            loaded = (side.load(begin + number) for number in range(min(count, _FIRST)))
            shown += [action for action in loaded if action is not None]


def show_action(action: Action) -> ShownAction:
    """An action as a page shows it."""
    return ShownAction(
        step=action.step,
        tool=make_plain(action.tool[:120]),
        command=fold(action.command),
        answer=None if action.answer is None else fold(action.answer),
        exit_code=action.exit_code,
    )


def pair_up(stretch: Stretch) -> Iterator[tuple[ShownAction | None, ShownAction | None]]:
    """The shown actions of a stretch, beside each other."""
    for at in range(max(len(stretch.a), len(stretch.b))):
        pair = [side[at] if at < len(side) else None for side in (stretch.a, stretch.b)]
        yield pair[0], pair[1]


def count_unshown(stretch: Stretch) -> tuple[int, int]:
    """How many actions of a stretch are not shown, on either side."""
    return stretch.count_a - len(stretch.a), stretch.count_b - len(stretch.b)
