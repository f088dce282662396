"""What ran beside the main agent: entries marked so, and the subagents that ATIF embeds.

Embedded trajectories are counted once each, however they refer to each other; those that lie in
another file are counted and not opened.
"""

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from proctor.trajectory.entry import Entry, Object

_MOST: Final = 10_000
"""Embedded trajectories that are looked at."""


class SubagentSummary(msgspec.Struct, frozen=True, kw_only=True):
    """What subagents did."""

    messages: int = 0
    """Entries of the trace with call_type subagent; they are in all other counts too."""
    tool_calls: int = 0
    """Tool calls among them."""
    tool_errors: int = 0
    """Tool errors among them."""
    embedded: int = 0
    """Trajectories inside the ATIF document; they are in no other count."""
    embedded_steps: int = 0
    embedded_tool_calls: int = 0
    elsewhere: int = 0
    """References to trajectories in other files, which were not opened."""


_NONE: Final = SubagentSummary()


class Subagents:
    """The subagents of one trace, as its entries come."""

    def __init__(self) -> None:
        self._messages = self._calls = self.errors = 0
        self._embedded = self._steps = self._tools = self._elsewhere = 0

    def see(self, entry: Entry) -> None:
        """Take in an entry that is marked as a subagent's."""
        self._messages += 1
        if entry.role == "tool_call":
            self._calls += 1

    def see_document(self, atif: Object) -> None:
        """Take in what the metadata of an entry carries of an ATIF document."""
        document = atif.get("document")
        if isinstance(document, dict) and "subagent_trajectories" in document:
            self._walk(document["subagent_trajectories"])
        self._see_references(atif.get("subagent_trajectory_ref"))

    def _walk(self, trajectories: Any) -> None:
        # By a list of what is left, not by recursion: how deep they lie is up to a stranger.
        left = list(trajectories) if isinstance(trajectories, list) else []
        while left and self._embedded < _MOST:
            found = left.pop()
            if not isinstance(found, dict):
                continue
            self._embedded += 1
            for step in _list(found.get("steps")):
                self._see_step(step)
            left += _list(found.get("subagent_trajectories"))

    def _see_step(self, step: Any) -> None:
        if not isinstance(step, dict):
            return
        self._steps += 1
        self._tools += len(_list(step.get("tool_calls")))
        observation = step.get("observation")
        results = _list(observation.get("results")) if isinstance(observation, dict) else []
        for result in results:
            if isinstance(result, dict):
                self._see_references(result.get("subagent_trajectory_ref"))

    def _see_references(self, references: Any) -> None:
        for each in _list(references):
            if isinstance(each, dict) and each.get("trajectory_path") is not None:
                self._elsewhere += 1

    def finish(self) -> SubagentSummary:
        """What there was."""
        if not (self._messages or self._embedded or self._elsewhere):
            return _NONE
        return SubagentSummary(
            messages=self._messages,
            tool_calls=self._calls,
            tool_errors=self.errors,
            embedded=self._embedded,
            embedded_steps=self._steps,
            embedded_tool_calls=self._tools,
            elsewhere=self._elsewhere,
        )


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def merge_subagents(parts: Sequence[SubagentSummary]) -> SubagentSummary:
    """The subagents of the parts of one trial."""
    names = SubagentSummary.__struct_fields__
    sums = {name: sum(getattr(each, name) for each in parts) for name in names}
    return SubagentSummary(**sums)
