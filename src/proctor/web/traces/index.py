"""Index of a trace: each entry's step, role and tool, and whether it is an error.

It needs a few bytes per entry, whatever its size. It is built in one pass over the trace, piece by
piece; the position of each piece is kept, so any entry can be read by reading one piece.
"""

from array import array
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterator
from itertools import groupby

from proctor.diagnostic import Diagnostic
from proctor.traces.entry import Entry
from proctor.traces.label_rules import Classifier
from proctor.traces.labels import Label
from proctor.traces.tool_errors import find_error
from proctor.traces.trajectory import Chunk, read_pieces
from proctor.web.traces.lines import Lines, Span

_LARGEST_STEP = (1 << 62) - 1
_MOST_ROLES = 200
_MOST_TOOLS = 2000
_MOST_NOTICED = 100
OTHER = "(others)"
"""Collective name for roles and tools beyond the limit."""


class Names:
    """Maps names to small numbers; names beyond the limit share one."""

    def __init__(self, most: int) -> None:
        self.listed: list[str] = []
        self._numbers: dict[str, int] = {}
        self._most = most

    def number(self, name: str) -> int:
        """The number of a name, assigned if it is new."""
        found = self._numbers.get(name)
        if found is None:
            if len(self.listed) >= self._most:
                name = OTHER
                if name in self._numbers:
                    return self._numbers[name]
            found = self._numbers[name] = len(self.listed)
            self.listed.append(name)
        return found

    def find(self, name: str) -> int | None:
        """The number of a name, if it has one."""
        return self._numbers.get(name)


class TraceIndex:
    """Index of one trace; entries are numbered from 0."""

    def __init__(self) -> None:
        self.steps = array("q")
        self.roles = array("B")
        self.tools = array("H")
        """0 means no tool."""
        self.errors = array("I")
        """Numbers of the entries that are errors."""
        self.role_names = Names(_MOST_ROLES)
        self.tool_names = Names(_MOST_TOOLS)
        self.tool_names.number("")
        self.problems = 0
        self.noticed: list[str] = []
        self._spans: list[Span] = []
        self._begins: list[int] = []
        # The first entry of each span.
        self._firsts: list[int] = []

    def __len__(self) -> int:
        return len(self.steps)

    def add(self, span: Span, chunks: list[Chunk]) -> None:
        """Add the next piece."""
        self._spans.append(span)
        self._begins.append(span.begin)
        self._firsts.append(len(self.steps))
        for chunk in chunks:
            self._notice(chunk.diagnostics)
            self._take(chunk.entries)

    def step_over(self, found: Diagnostic) -> None:
        """Add a line that is too long to keep in memory."""
        self._notice([found])

    def _notice(self, found: list[Diagnostic]) -> None:
        for each in found:
            if each.is_problem:
                self.problems += 1
                if len(self.noticed) < _MOST_NOTICED:
                    self.noticed.append(str(each))

    def _take(self, entries: list[Entry]) -> None:
        steps, roles, tools = self.steps, self.roles, self.tools
        last_step, last_tool = -1, 0
        number_role, number_tool = self.role_names.number, self.tool_names.number
        for entry in entries:
            step, role = min(entry.step, _LARGEST_STEP), entry.role
            tool = number_tool(entry.tool_name) if entry.tool_name else 0
            if role == "tool_call":
                last_step, last_tool = step, tool
            elif role == "tool_result":
                if not tool and step == last_step:
                    tool = last_tool
                if find_error(entry) is not None:
                    self.errors.append(len(steps))
            steps.append(step)
            roles.append(number_role(role))
            tools.append(tool)

    def spans(self, first: int, count: int) -> Iterator[tuple[Span, int]]:
        """The pieces that contain some entries, each with the number of its first entry."""
        at = max(bisect_right(self._firsts, first) - 1, 0)
        # Pieces without entries share their first number; the bisection ends at the last of them.
        while at < len(self._spans) and self._firsts[at] < first + count:
            yield self._spans[at], self._firsts[at]
            at += 1

    def next_after(self, span: Span) -> int:
        """The number of the first entry after a piece."""
        at = bisect_right(self._begins, span.begin)
        return self._firsts[at] if at < len(self._firsts) else len(self)

    def find_step(self, step: int) -> int | None:
        """The first entry of a step, or of the next existing step."""
        try:
            return self.steps.index(step)
        except ValueError:
            later = [each for each in self.steps if each > step]
            return self.steps.index(min(later)) if later else None

    def is_first(self, row: int) -> bool:
        """Whether an entry begins a step."""
        return row == 0 or self.steps[row] != self.steps[row - 1]

    def count_steps(self) -> int:
        """Number of steps; step 0, before the first one, does not count."""
        return sum(1 for step, _ in groupby(self.steps) if step > 0)

    def count_roles(self) -> list[tuple[str, int]]:
        """Roles in order of appearance, with their numbers of entries."""
        counts = Counter(self.roles)
        return [(name, counts[at]) for at, name in enumerate(self.role_names.listed)]

    def count_tools(self) -> list[tuple[str, int]]:
        """Tools by number of entries, calls and results."""
        counts = Counter(self.tools)
        named = [(name, counts[at]) for at, name in enumerate(self.tool_names.listed) if at]
        return sorted(named, key=lambda each: -each[1])

    def draw(self, places: int) -> list[int]:
        """Number of errors in each of `places` equal parts of the trace."""
        found = [0] * max(min(places, len(self)), 1)
        for row in self.errors:
            found[row * len(found) // len(self)] += 1
        return found


def build_index(lines: Lines) -> TraceIndex:
    """Build the index of a trace."""
    index = TraceIndex()
    for span, piece in lines.pieces():
        if isinstance(piece, Diagnostic):
            index.step_over(piece)
        else:
            index.add(span, list(read_pieces([(span.line, piece)])))
    return index


class Labels:
    """The labels of one trace, by step."""

    def __init__(self, given: tuple[Label, ...]) -> None:
        self._steps = array("q")
        self._kinds = array("H")
        self._combinations: list[tuple[str, str, float]] = []
        known: dict[tuple[str, str, float], int] = {}
        # There are few distinct combinations of label, cue and confidence, so each is stored once.
        for label in given:
            combination = (label.label, label.cue, label.confidence)
            kind = known.setdefault(combination, len(known))
            if kind == len(self._combinations):
                self._combinations.append(combination)
            self._steps.append(min(label.step, (1 << 62) - 1))
            self._kinds.append(kind)

    def find(self, step: int) -> tuple[str, str, float] | None:
        """The label of a step, the cue that decided it, and the confidence."""
        at = bisect_left(self._steps, step)
        is_there = at < len(self._steps) and self._steps[at] == step
        return self._combinations[self._kinds[at]] if is_there else None

    def count(self) -> dict[str, int]:
        """Number of turns with each label."""
        counts: dict[str, int] = {}
        for kind in self._kinds:
            name = self._combinations[kind][0]
            counts[name] = counts.get(name, 0) + 1
        return counts


def label_turns(lines: Lines) -> Labels:
    """Label the turns of a trace."""
    classifier = Classifier()
    for span, piece in lines.pieces():
        if isinstance(piece, bytes):
            for chunk in read_pieces([(span.line, piece)]):
                for entry in chunk.entries:
                    classifier.add(entry)
    return Labels(classifier.finish())
