"""A score as the 16 hex digits of its double, most significant first. Nothing is rounded.

Only scores: finite, 0 to 1, and zero without a sign, so that equal scores have equal text.
"""

import re
import struct

from proctor.errors import ScoreRecordError
from proctor.reward.number import bits

_DIGITS = re.compile("[0-9a-f]{16}")
_NEGATIVE_ZERO = 1 << 63


def render_f64be(score: float) -> str:
    """The digits of a score.

    Raises:
        ScoreRecordError: it is no score.
    """
    if not 0.0 <= score <= 1.0:
        raise ScoreRecordError("score must be finite and in [0, 1]")
    pattern = bits(score)
    if pattern == _NEGATIVE_ZERO:
        raise ScoreRecordError("negative zero is not canonical")
    return f"{pattern:016x}"


def parse_f64be(text: object, where: str) -> float:
    """The score with these digits.

    Raises:
        ScoreRecordError: they are not 16 lower-case hex digits, or they spell no score.
    """
    if not isinstance(text, str) or _DIGITS.fullmatch(text) is None:
        raise ScoreRecordError(f"{where} is {text!r}; expected 16 lower-case hex digits")
    (score,) = struct.unpack(">d", bytes.fromhex(text))
    try:
        render_f64be(score)
    except ScoreRecordError as error:
        raise ScoreRecordError(f"{where} is {text}: {error}") from error
    return float(score)
