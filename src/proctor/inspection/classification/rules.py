"""The rule set: every turn of an agent gets one label, by what it says and does. No model is asked.

A turn is a step above 0 that has a text or a tool call of the assistant; warm-up calls are none.
The first rule that fires decides (docs/behaviour.md has them as a table, in this order), and names
the cue. Rules see the text and the thinking of the turn, its tool calls, whether a command failed
before, and which files earlier turns wrote.

    labels = classify(entries)

The same entries give the same labels, on any machine; RULES_VERSION changes with every rule.
"""

from collections.abc import Iterable, Iterator
from typing import Final

from proctor.inspection.classification.actions import (
    CHECKS,
    LOOKS,
    RUNS,
    THINKS,
    WRITES,
    read_call,
)
from proctor.inspection.classification.labels import (
    DELIBERATION,
    EXECUTION,
    EXPLORATION,
    VERIFICATION,
    Label,
)
from proctor.inspection.classification.words import (
    CHECKS_WORK,
    FINDS_FAULT,
    GUESSES,
    PLANS,
    REASONS,
    WEIGHS,
    find_cues,
)
from proctor.trajectory.entry import Entry, Object

RULES_VERSION: Final = "1"

_SURE, _SURER, _SUREST, _BY_DEFAULT = 0.55, 0.1, 0.95, 0.5
_LONG_THOUGHT: Final = 400
"""Characters without a tool call that are taken for reasoning."""
_WARMUP: Final = "warmup"


def classify(entries: Iterable[Entry]) -> tuple[Label, ...]:
    """The label of every turn, by step."""
    classifier = Classifier()
    classifier.add(entries)
    return classifier.finish()


class Classifier:
    """Labels as far as entries have come; memory does not grow with what they hold."""

    def __init__(self) -> None:
        self._labels: dict[int, Label] = {}
        self._step = 0
        self._texts: list[str] = []
        self._calls: list[Entry] = []
        self._failed_now = False
        self._has_spoken = False
        self._written: set[str] = set()
        self._failed: set[int] = set()
        """Hashes of commands that failed, which are all that is needed of them."""

    def add(self, entries: Iterable[Entry]) -> None:
        """Take the next entries of the trace."""
        step = self._step
        for entry in entries:
            if entry.step != step:
                if self._has_spoken:
                    self._close()
                self._step = step = entry.step
            role = entry.role
            if role == "tool_result":
                if entry.exit_code or (entry.metadata and _is_error(entry.metadata)):
                    self._failed_now = True
            elif role == "assistant":
                if entry.call_type != _WARMUP and step:
                    self._has_spoken = True
                    if entry.content:
                        self._texts.append(entry.content)
                    if entry.metadata:
                        self._texts.extend(_find_thinking(entry.metadata))
            elif role == "tool_call" and entry.call_type != _WARMUP and step:
                self._has_spoken = True
                self._calls.append(entry)

    def finish(self) -> tuple[Label, ...]:
        """All labels, by step."""
        if self._has_spoken:
            self._close()
        labels = self._labels
        return tuple(labels[step] for step in sorted(labels))

    def _close(self) -> None:
        """Give the turn that has ended its label, and remember what it did."""
        texts = self._texts
        text = texts[0] if len(texts) == 1 else "\n".join(texts)
        does, again, back, failed = 0, False, False, self._failed
        for call in self._calls:
            action = read_call(call.tool_name, call.command, call.arguments)
            does |= action.does
            if action.read and not back:
                back = not action.read.isdisjoint(self._written)
            key = hash((call.tool_name, call.command)) if call.command else 0
            if key:
                again = again or key in failed
                if self._failed_now:
                    failed.add(key)
            if action.written:
                self._written |= action.written
        if self._step not in self._labels:
            self._labels[self._step] = _decide(self._step, text, does, again, back)
        self._texts, self._calls = [], []
        self._failed_now = self._has_spoken = False


def _decide(step: int, text: str, does: int, again: bool, back: bool) -> Label:
    cues = find_cues(text) if text else {}
    label, cue, extra = _find_rule(text, does, again, back, cues)
    confidence = _BY_DEFAULT if extra < 0 else min(_SURE + _SURER * extra, _SUREST)
    return Label(step, label, cue, confidence)


def _find_rule(
    text: str, does: int, again: bool, back: bool, cues: dict[str, int]
) -> tuple[str, str, int]:
    looked_back = cues.get(CHECKS_WORK, 0) + cues.get(FINDS_FAULT, 0)
    guessed = cues.get(WEIGHS, 0) + cues.get(GUESSES, 0)
    reasoned = cues.get(REASONS, 0) + cues.get(PLANS, 0)
    acts = does & ~THINKS
    if does & CHECKS:
        return VERIFICATION, "runs a check", looked_back + back
    if back and not does & WRITES:
        return VERIFICATION, "reads back what it wrote", looked_back
    if again:
        return VERIFICATION, "repeats what failed", looked_back
    if looked_back and not does & WRITES:
        return VERIFICATION, CHECKS_WORK, looked_back - 1
    if guessed and not does & WRITES:
        return EXPLORATION, WEIGHS, guessed - 1
    if not acts and text.rstrip().endswith("?"):
        return EXPLORATION, "asks", 0
    if not acts and (reasoned >= 2 or len(text) >= _LONG_THOUGHT or does):
        return DELIBERATION, "reasons", max(reasoned - 2, 0)
    if does & (WRITES | RUNS):
        return EXECUTION, "acts", 0
    return EXECUTION, "nothing else applies", -1


def _is_error(metadata: Object) -> bool:
    held = metadata.get("conversation")
    return isinstance(held, dict) and held.get("is_error") is True


def _find_thinking(metadata: Object) -> Iterator[str]:
    for key, name in (("conversation", "thinking"), ("atif", "reasoning_content")):
        held = metadata.get(key)
        thought = held.get(name) if isinstance(held, dict) else None
        if isinstance(thought, str):
            yield thought
