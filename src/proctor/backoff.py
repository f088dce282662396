"""How long to wait before a request is repeated: as the server asks, or a growing time.

Does not send or wait: the loops that do so differ, as docs/decisions.md says.
"""

import math
from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import Final, Protocol

_FIRST_WAIT: Final = 1.0
_LONGEST_WAIT: Final = 60.0
_LONGEST_ASKED: Final = 300.0
"""Longest wait that a server can ask for, in seconds."""


class Headers(Protocol):
    """Headers of a response, found by names in lower case; httpx and http.client have them."""

    def get(self, name: str, /) -> str | None:
        """Return the value of a header."""


def find_retry_after(headers: Headers, now: datetime) -> float | None:
    """Return the seconds to wait from Retry-After, given as a number or as a date."""
    if (milliseconds := _parse_seconds(headers.get("retry-after-ms"))) is not None:
        return milliseconds / 1000
    text = headers.get("retry-after")
    if text is None or (seconds := _parse_seconds(text)) is not None:
        return seconds if text is not None else None
    try:
        return max(0.0, (parsedate_to_datetime(text) - now).total_seconds())
    except (ValueError, TypeError, OverflowError):
        return None  # neither, or a date without a zone


def _parse_seconds(text: str | None) -> float | None:
    try:
        seconds = float(text or "")
    except ValueError:
        return None
    return seconds if math.isfinite(seconds) and seconds >= 0 else None


def find_wait(retry_after: float | None, n_tries: int, chance: float) -> float:
    """Return the seconds to wait after `n_tries`; `retry_after` is what the server asks for.

    The time doubles from one second up to a minute. `chance`, from 0 to 1, takes up to half of it
    away, so that many trials do not retry at the same moment.
    """
    if retry_after is not None:
        return min(retry_after, _LONGEST_ASKED)
    # Bound the exponent first: the number of retries may be any, and 2.0 ** 2000 overflows.
    longest = min(_FIRST_WAIT * 2.0 ** min(n_tries - 1, 16), _LONGEST_WAIT)
    # At least half of it, so that a retry is never immediate.
    return longest * (0.5 + chance / 2)
