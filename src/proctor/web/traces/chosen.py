"""Select the entries of a trace that match a filter, as ascending numbers."""

from array import array
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from proctor.web.traces.index import TraceIndex


@dataclass(frozen=True, slots=True)
class Choice:
    """A filter; "" matches everything."""

    role: str = ""
    tool: str = ""
    errors: bool = False
    """Only steps with an error, with all their entries."""

    @property
    def is_all(self) -> bool:
        """Whether everything matches."""
        return not (self.role or self.tool or self.errors)


def choose(index: TraceIndex, choice: Choice) -> Sequence[int]:
    """The numbers of the matching entries."""
    if choice.is_all:
        return range(len(index))
    rows: Sequence[int] = _in_wrong_steps(index) if choice.errors else range(len(index))
    if choice.role:
        role, roles = index.role_names.find(choice.role), index.roles
        rows = array("I", [row for row in rows if roles[row] == role])
    if choice.tool:
        tool, tools = index.tool_names.find(choice.tool), index.tools
        rows = array("I", [row for row in rows if tools[row] == tool])
    return rows


def _in_wrong_steps(index: TraceIndex) -> Sequence[int]:
    wrong = set(index.errors)
    found = array("I")
    for _, group in groupby(range(len(index)), key=index.steps.__getitem__):
        rows = list(group)
        if not wrong.isdisjoint(rows):
            found.extend(rows)
    return found


def find_position(chosen: Sequence[int], row: int) -> int:
    """The position of an entry among the selected ones, or of the next one."""
    return min(bisect_left(chosen, row), max(len(chosen) - 1, 0))
