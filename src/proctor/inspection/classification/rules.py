"""The rule set: every turn of an agent gets one label, by what it says and does. No model is asked.

A turn is a step above 0 that has a text or a tool call of the assistant; warm-up calls are none.
The first rule that fires decides (docs/behaviour.md has them as a table, in this order), and names
the cue. Rules see the text and the thinking of the turn, what its tool calls do, and of earlier
turns which files they wrote, what they ran, what failed, and whether they have produced anything.

    labels = classify(entries)

The same entries give the same labels, on any machine; RULES_VERSION changes with every rule.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from proctor.inspection.classification.actions import Action, read_call
from proctor.inspection.classification.labels import (
    DELIBERATION,
    EXECUTION,
    EXPLORATION,
    VERIFICATION,
    Label,
)
from proctor.inspection.classification.programs import (
    CHECKS,
    ENDS,
    LOOKS,
    PROBES,
    RUNS,
    THINKS,
    WAITS,
    WRITES,
)
from proctor.inspection.classification.words import Cues, find_cues
from proctor.trajectory.entry import Entry, Object

RULES_VERSION: Final = "1"

_SURE, _SURER, _SUREST, _BY_DEFAULT = 0.55, 0.1, 0.95, 0.5
_ARGUMENT: Final = 300
"""Characters of text beside an action that are taken for an argument, if causes are given."""
_THOUGHT: Final = 120
"""Characters of text without an action that are taken for reasoning."""
_WARMUP: Final = "warmup"


def classify(entries: Iterable[Entry]) -> tuple[Label, ...]:
    """The label of every turn, by step."""
    classifier = Classifier()
    classifier.add(entries)
    return classifier.finish()


@dataclass(slots=True)
class _Turn:
    """What is known of a turn when it is judged."""

    text: str
    does: int
    last: int
    again: bool
    """Runs what was run before, and nothing is changed with it."""
    back: bool
    """Shows a file that an earlier turn wrote."""
    changed: bool
    """An earlier turn has written a file."""
    acted: bool
    """An earlier turn has produced something."""
    is_last: bool


class Classifier:
    """Labels as far as entries have come; memory does not grow with what they hold."""

    def __init__(self) -> None:
        self._labels: dict[int, Label] = {}
        self._step = 0
        self._texts: list[str] = []
        self._calls: list[Entry] = []
        self._has_spoken = False
        self._changed = self._acted = False
        self._written: set[str] = set()
        self._ran: set[str] = set()

    def add(self, entries: Iterable[Entry]) -> None:
        """Take the next entries of the trace."""
        step = self._step
        for entry in entries:
            if entry.step != step:
                if self._has_spoken:
                    self._close(is_last=False)
                self._step = step = entry.step
            role = entry.role
            if role == "assistant":
                self._listen(entry)
            elif role == "tool_call" and step and entry.call_type != _WARMUP:
                self._has_spoken = True
                self._calls.append(entry)

    def _listen(self, entry: Entry) -> None:
        if not entry.step or entry.call_type == _WARMUP:
            return
        self._has_spoken = True
        if entry.content:
            self._texts.append(entry.content)
        if entry.metadata:
            self._texts.extend(_find_thinking(entry.metadata))

    def finish(self) -> tuple[Label, ...]:
        """All labels, by step."""
        if self._has_spoken:
            self._close(is_last=True)
        labels = self._labels
        return tuple(labels[step] for step in sorted(labels))

    def _close(self, *, is_last: bool) -> None:
        """Give the turn that has ended its label, and remember what it did."""
        texts = self._texts
        text = texts[0] if len(texts) == 1 else "\n".join(texts)
        does = last = 0
        again = back = False
        actions = [read_call(call.tool_name, call.command, call.arguments) for call in self._calls]
        for action in actions:
            does |= action.does
            last = action.last
            back = back or not self._written.isdisjoint(action.read)
            again = again or not self._ran.isdisjoint(action.ran)
        turn = _Turn(text, does, last, again, back, self._changed, self._acted, is_last)
        label, cue, extra = _decide(turn)
        sure = _BY_DEFAULT if extra < 0 else min(_SURE + _SURER * extra, _SUREST)
        self._labels.setdefault(self._step, Label(self._step, label, cue, sure))
        self._remember(actions, does, label)
        self._texts, self._calls = [], []
        self._has_spoken = False

    def _remember(self, actions: Iterable[Action], does: int, label: str) -> None:
        for action in actions:
            self._written |= action.written
            self._ran |= action.ran
        if does & WRITES:
            self._changed = self._acted = True
        elif does and label == EXECUTION:
            self._acted = True


type _Decision = tuple[str, str, int]
"""A label, the cue, and how many cues there are beyond the one that was needed; -1: none at all."""


def _decide(turn: _Turn) -> _Decision:
    cues = find_cues(turn.text) if turn.text else _NO_CUES
    if not turn.does & ~THINKS:
        return _decide_words(turn, cues)
    if turn.does & WAITS and not turn.does & ~(WAITS | LOOKS):
        return EXECUTION, "waits", 0
    return (
        _find_verification(turn, cues)
        or _find_exploration(turn, cues)
        or _find_deliberation(turn, cues)
        or _find_execution(turn)
    )


_NO_CUES: Final = Cues(0, 0, 0, 0, 0, 0, 0)


def _find_verification(turn: _Turn, cues: Cues) -> _Decision | None:
    judged = cues.looks_back + 2 * cues.finds_fault
    if turn.does & CHECKS and turn.last & (CHECKS | LOOKS) and turn.changed:
        return VERIFICATION, "checks its work", cues.looks_back
    if turn.does & PROBES and turn.acted and not turn.does & WRITES:
        return VERIFICATION, "probes its service", cues.looks_back
    if turn.back and not turn.does & WRITES:
        cue = "tries what it wrote" if turn.does & RUNS else "reads back what it wrote"
        return VERIFICATION, cue, cues.looks_back
    if turn.again and turn.changed and not turn.does & WRITES:
        return VERIFICATION, "runs again after a change", cues.looks_back
    needed = 2 if turn.does & RUNS else 3
    if turn.acted and judged >= needed and not turn.does & (WRITES | ENDS):
        return VERIFICATION, "judges its work", judged - needed
    if turn.changed and cues.finds_fault >= 2:
        return VERIFICATION, "names its mistake", cues.finds_fault - 2
    return None


def _find_exploration(turn: _Turn, cues: Cues) -> _Decision | None:
    open_ = cues.weighs + cues.guesses + cues.asks
    if turn.does & (WRITES | ENDS):
        return None
    if turn.does & CHECKS and not turn.changed:
        return EXPLORATION, "sees the failure first", open_
    if open_ >= 2:
        return EXPLORATION, "weighs or guesses", open_ - 2
    if not turn.does & RUNS:
        return EXPLORATION, "looks at what is there", cues.looks_around + open_
    if not turn.acted and cues.looks_around:
        return EXPLORATION, "looks around first", cues.looks_around - 1
    return None


def _find_deliberation(turn: _Turn, cues: Cues) -> _Decision | None:
    if len(turn.text) >= _ARGUMENT and cues.reasons >= 2:
        return DELIBERATION, "argues, then acts", cues.reasons - 2
    return None


def _find_execution(turn: _Turn) -> _Decision:
    if turn.does & ENDS:
        return EXECUTION, "hands in", 1
    if turn.does & WRITES:
        return EXECUTION, "writes", 1
    return EXECUTION, "runs", 0


def _decide_words(turn: _Turn, cues: Cues) -> _Decision:
    """The label of a turn that only says something."""
    open_ = cues.weighs + cues.guesses + cues.asks
    judged = cues.looks_back + 2 * cues.finds_fault
    if turn.is_last:
        return EXECUTION, "closing words", 1
    if turn.acted and judged >= 3:
        return VERIFICATION, "judges its work", judged - 3
    if open_ >= 2 and (cues.asks or open_ > cues.reasons):
        return EXPLORATION, "weighs or guesses", open_ - 2
    if cues.asks:
        return EXPLORATION, "asks", 0
    if len(turn.text) >= _THOUGHT or cues.reasons >= 2 or turn.does:
        return DELIBERATION, "reasons", max(cues.reasons - 2, 0)
    return EXECUTION, "nothing else applies", -1


def _find_thinking(metadata: Object) -> Iterator[str]:
    for key, name in (("conversation", "thinking"), ("atif", "reasoning_content")):
        held = metadata.get(key)
        thought = held.get(name) if isinstance(held, dict) else None
        if isinstance(thought, str):
            yield thought
