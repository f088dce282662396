"""Blocks in their order: what they say, and what of them the fields of a turn do not hold.

Nothing here knows what a block looks like; that is each dialect's own.
"""

from typing import Any, Final, NamedTuple

from proctor.trajectory.turn import ToolCall, ToolResult

_THOUGHT: Final = 0
_TEXT: Final = 1
_CALL: Final = 2
_RESULT: Final = 3
_OTHER: Final = 4


class _Block(NamedTuple):
    rank: int
    left: Any
    whole: Any
    says_more: bool


class Blocks:
    """What has been read of some blocks."""

    def __init__(self) -> None:
        self.calls: list[ToolCall] = []
        self.results: list[ToolResult] = []
        self._texts: list[str] = []
        self._thoughts: list[str] = []
        self._order: list[_Block] = []

    @property
    def text(self) -> str:
        """All texts."""
        return "\n".join(self._texts)

    @property
    def thinking(self) -> str | None:
        """All thoughts; None when there are none."""
        return "\n".join(self._thoughts) if self._thoughts else None

    def add_text(self, text: str, left: Any, whole: Any, *, says_more: bool) -> None:
        """A text; `left` is its block without it, which may say more than that it is a text."""
        self._texts.append(text)
        self._order.append(_Block(_TEXT, left, whole, says_more))

    def add_thought(self, text: str, left: Any, whole: Any, *, says_more: bool) -> None:
        """A thought, likewise."""
        self._thoughts.append(text)
        self._order.append(_Block(_THOUGHT, left, whole, says_more))

    def add_call(self, call: ToolCall, mark: Any) -> None:
        """A call, which holds the rest of its block itself; the mark stands for it in the order."""
        self.calls.append(call)
        self._order.append(_Block(_CALL, mark, mark, says_more=False))

    def add_result(self, result: ToolResult, mark: Any) -> None:
        """A result, likewise."""
        self.results.append(result)
        self._order.append(_Block(_RESULT, mark, mark, says_more=False))

    def add_other(self, block: Any) -> None:
        """A block that is none of these."""
        self._order.append(_Block(_OTHER, block, block, says_more=True))

    def left_over(self) -> list[Any] | None:
        """The blocks in their order without what the fields hold; None when that says nothing.

        It says something when a block holds more than its text, when the order is another than
        thought, text, calls, results, and when there are several texts or thoughts: those are then
        in it themselves, since joined they do not show where one ends.
        """
        ranks = [block.rank for block in self._order]
        single = {rank for rank in (_THOUGHT, _TEXT) if ranks.count(rank) == 1}
        several = any(rank <= _TEXT and rank not in single for rank in ranks)
        says_more = any(block.says_more for block in self._order)
        if not several and not says_more and ranks == sorted(ranks):
            return None
        return [
            block.whole if block.rank <= _TEXT and block.rank not in single else block.left
            for block in self._order
        ]
