"""How aec-bench reads its model's answer.

Turns that were not asked for and second labels of one turn are kept, as it keeps them. What makes
it crash (a list in a fence, `classifications: null`) is an unreadable answer here.
"""

import json
import re
from collections.abc import Iterable

import msgspec

from proctor.errors import JudgeAnswerError
from proctor.inspection.classification.labels import LABELS

_FENCED = re.compile(r"```(?:json)?\s*\n?(.*?)```", re.DOTALL)
_BRACED = re.compile(r"\{.*\}", re.DOTALL)
_USUAL_CONFIDENCE = 0.5


class CompatLabel(msgspec.Struct, frozen=True):
    """One label of one turn, with what the model says of it."""

    turn_index: int
    bond_type: str
    confidence: float
    rationale: str


def parse_answer(answer: str, expected: Iterable[int]) -> list[CompatLabel]:
    """The labels in an answer, by turn.

    Raises:
        JudgeAnswerError: it cannot be read, or a turn that was asked for is not in it.
    """
    found = [label for item in _find_items(answer) if (label := _parse_item(item)) is not None]
    missing = sorted(set(expected) - {label.turn_index for label in found})
    if missing:
        named = ", ".join(map(str, missing))
        raise JudgeAnswerError(f"the answer has no label for turn {named}")
    return sorted(found, key=lambda label: label.turn_index)


def _find_items(answer: str) -> list[object]:
    fenced, braced = _FENCED.search(answer), _BRACED.search(answer)
    text = fenced[1] if fenced else braced[0] if braced else answer
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise JudgeAnswerError(f"the answer is no JSON: {error}") from error
    items = document.get("classifications", []) if isinstance(document, dict) else None
    if not isinstance(items, list):
        raise JudgeAnswerError("the answer is JSON without a list `classifications`")
    return items


def _parse_item(item: object) -> CompatLabel | None:
    """One label; None for an item that is dropped."""
    if not isinstance(item, dict):
        return None
    try:
        label = str(item["bond_type"]).lower()
        index = _whole(item["turn_index"])
        confidence = float(item.get("confidence", _USUAL_CONFIDENCE))
    except (KeyError, TypeError, ValueError, OverflowError):
        return None
    if label not in LABELS:
        return None
    # Written so that nan becomes 0, as it does there.
    bounded = max(0.0, min(1.0, confidence)) if confidence == confidence else 0.0
    return CompatLabel(index, label, bounded, str(item.get("rationale", "")))


def _whole(value: object) -> int:
    if isinstance(value, str) or type(value) is int:
        return int(value)
    raise ValueError(f"{value!r} is no whole number")
