"""What a judge answered, taken with distrust: only labels of turns that were asked for.

Every item stands for itself: a bad one loses its own turn and no other. Of two labels for one turn
the first is kept, and that there were two is said.
"""

import json
import math
import re
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any, Final

from proctor.inspection.classification.labels import LABELS, Label

MOST_REASON: Final = 300
"""Characters of a judge's own words that are kept."""
_MOST_ANSWER: Final = 1 << 20
_UNSURE: Final = 0.5
"""The confidence of a label that came without one."""
_FENCED = re.compile(r"```\w*\n(.*?)```", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Judged:
    """The labels in one answer."""

    labels: dict[int, Label] = field(default_factory=dict)
    """By step; the cue is the judge's own reason."""
    problems: dict[int, str] = field(default_factory=dict)
    """Why a turn that was asked for has none."""
    notes: tuple[str, ...] = ()
    """What was in the answer and was not taken."""


def read_answer(answer: str, asked: Collection[int]) -> Judged:
    """The labels in an answer; what cannot be read leaves turns without one, each with its why."""
    items = _find_items(answer)
    if isinstance(items, str):
        return Judged(problems=dict.fromkeys(asked, items))
    labels: dict[int, Label] = {}
    problems: dict[int, str] = {}
    n_strange = n_second = 0
    for item in items:
        step = _find_step(item)
        if step not in asked:
            n_strange += 1
        elif step in labels:
            n_second += 1
        else:
            found = _read_item(item, step)
            if isinstance(found, Label):
                labels[step] = found
            else:
                problems[step] = found
    left = {step: problems.get(step, _MISSING) for step in asked if step not in labels}
    return Judged(labels, left, _tell(n_strange, n_second))


_MISSING: Final = "the answer has no label for it"


def _tell(n_strange: int, n_second: int) -> tuple[str, ...]:
    told = (
        (n_strange, "labels for turns that were not asked for were left out"),
        (n_second, "second labels for one turn were left out"),
    )
    return tuple(f"{count:,} {what}" for count, what in told if count)


def _find_items(answer: str) -> list[Any] | str:
    """The items of an answer, or what is wrong with it as a whole."""
    if len(answer) > _MOST_ANSWER:
        return f"the answer has {len(answer):,} characters; expected {_MOST_ANSWER:,} at most"
    fenced = _FENCED.search(answer)
    text = fenced[1] if fenced else answer[answer.find("{") : answer.rfind("}") + 1]
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return "the answer is no JSON object" if answer.strip() else "the answer is empty"
    items = document.get("labels") if isinstance(document, dict) else None
    return items if isinstance(items, list) else 'the answer has no list "labels"'


def _find_step(item: object) -> int:
    """The turn of an item; -1, which no turn is, where it names none."""
    step = item.get("turn") if isinstance(item, dict) else None
    if isinstance(step, str) and step.isascii() and step.isdigit() and len(step) < 20:
        step = int(step)
    return step if type(step) is int else -1


def _read_item(item: dict[str, Any], step: int) -> Label | str:
    named = item.get("label")
    label = named.strip().lower() if isinstance(named, str) else ""
    if label not in LABELS:
        return "the answer has another label for it than the four"
    reason = item.get("reason")
    said = reason[:MOST_REASON] if isinstance(reason, str) else ""
    return Label(step, label, said, _find_confidence(item.get("confidence")))


def _find_confidence(given: object) -> float:
    if isinstance(given, bool) or not isinstance(given, int | float):
        return _UNSURE
    # Compared first: a whole number can be too large for a float.
    bounded = 0.0 if given < 0 else 1.0 if given > 1 else float(given)
    return _UNSURE if math.isnan(bounded) else bounded
