"""Two traces side by side: what both did, and what only one did, in order.

`traces.divergence` finds where they diverge and aligns the rest; this module loads the actions that
a page shows of it, the first of every stretch.
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
from proctor.web.sanitize import Folded, fold, make_plain
from proctor.web.traces.index import TraceIndex
from proctor.web.traces.lines import Lines
from proctor.web.traces.rows import read_some

# Actions shown of each stretch.
_FIRST: Final = 3
# Most entries that are read again for one action.
_MOST_ENTRIES: Final = 2000
# Most lines of recorded output that can be shown.
_MOST_LINES: Final = 100_000
# Actions shown of the shared beginning: its last ones.
_SHARED: Final = 2


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
    """Consecutive actions that are the same on both sides, on one side only, or different."""

    is_same: bool
    count_a: int = 0
    count_b: int = 0
    answers_differ: int = 0
    begin_a: int = 0
    begin_b: int = 0
    """Its first action on each side, from 0."""
    a: list[ShownAction] = field(default_factory=list)
    b: list[ShownAction] = field(default_factory=list)


class Side:
    """One of two traces: yields its actions for comparison, and loads some of them again."""

    def __init__(self, lines: Lines, index: TraceIndex, *, is_output: bool = False) -> None:
        self.opening = Opening()
        self._lines, self._index = lines, index
        self._read = 0
        # For each action, the number of entries read when it was complete.
        self._ends = array("I")
        self._steps = array("q")
        # Lines of output are joined of several entries: they are kept, not loaded again.
        self._printed: list[Action] | None = [] if is_output else None

    def actions(self) -> Iterator[Action]:
        """All actions, in order."""
        for action in read_actions(self.opening.listen(self._entries())):
            if self._printed is not None and len(self._printed) < _MOST_LINES:
                self._printed.append(action)
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
        """Load one action again from the entries it was made of."""
        if self._printed is not None:
            return show_action(self._printed[number]) if number < len(self._printed) else None
        end, step = self._ends[number], self._steps[number]
        first = bisect_left(self._ends, end)
        begin = self._ends[first - 1] - 1 if first else 0
        rows = range(max(begin, end - _MOST_ENTRIES), min(end, len(self._index)))
        wanted = [row for row in rows if self._index.steps[row] == step]
        found = read_actions(read_some(self._lines, self._index, wanted))
        action = next(islice(found, number - first, None), None)
        return None if action is None else show_action(action)


@dataclass(frozen=True, slots=True)
class TracePair:
    """Two traces as a page shows them."""

    found: Divergence
    has_same_input: bool
    stretches: list[Stretch]
    left_out: int
    """Number of stretches not shown."""
    shared: Stretch


def compare_traces(a: Side, b: Side, most: int) -> TracePair:
    """Compare two traces, with at most `most` stretches."""
    found = compare_actions(a.actions(), b.actions())
    stretches = list(_join(found.hunks, found.prefix))
    begin = max(found.prefix - _SHARED, 0)
    shared = Stretch(
        is_same=True, count_a=found.prefix - begin, count_b=found.prefix - begin,
        begin_a=begin, begin_b=begin,
    )  # fmt: skip
    shown = stretches[:most]
    _fill([shared, *shown], a, b)
    return TracePair(
        found=found,
        has_same_input=a.opening.is_same(b.opening),
        stretches=shown,
        left_out=len(stretches) - len(shown) + found.hunks_left_out,
        shared=shared,
    )


def _join(hunks: Sequence[Hunk], prefix: int) -> Iterator[Stretch]:
    """Make stretches; adjacent actions of A only and of B only become one."""
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
    """Load the first actions of every stretch."""
    for stretch in stretches:
        for side, begin, count, shown in (
            (a, stretch.begin_a, stretch.count_a, stretch.a),
            (b, stretch.begin_b, stretch.count_b, stretch.b),
        ):
            loaded = (side.load(begin + number) for number in range(min(count, _FIRST)))
            shown += [action for action in loaded if action is not None]


def show_action(action: Action) -> ShownAction:
    """Convert an action for display."""
    return ShownAction(
        step=action.step,
        tool=make_plain(action.tool[:120]),
        command=fold(action.command),
        answer=None if action.answer is None else fold(action.answer),
        exit_code=action.exit_code,
    )


def pair_up(stretch: Stretch) -> Iterator[tuple[ShownAction | None, ShownAction | None]]:
    """Pair the shown actions of a stretch."""
    for at in range(max(len(stretch.a), len(stretch.b))):
        pair = [side[at] if at < len(side) else None for side in (stretch.a, stretch.b)]
        yield pair[0], pair[1]


def count_unshown(stretch: Stretch) -> tuple[int, int]:
    """Number of actions of a stretch not shown, on each side."""
    return stretch.count_a - len(stretch.a), stretch.count_b - len(stretch.b)
