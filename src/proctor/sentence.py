"""Helpers for messages: counts, reasons and quoted values, formatted the same everywhere."""

import json
import math
import re

_LEAST_MONEY = 0.0001
# Decimals of a figure; more only where these would make a figure look like a whole number.
_DECIMALS, _MOST_DECIMALS = 3, 9
_LARGE, _HUGE = 1000, 1e15
_MINUTE, _HOUR = 60, 3600
_UNITS, _STEP = ("B", "kB", "MB", "GB", "TB"), 1000
_LIMITS = (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10))
# Characters of a value that a message quotes.
_SHOWN = 60
_ESCAPE = re.compile(r"\x1b(?:\[[0-9;?]{0,20}[A-Za-z]|\][^\x07\x1b]{0,200}(?:\x07|\x1b\\))")
_DATA = re.compile(r"data:([\w.+-]{1,60}/[\w.+-]{1,60})?[^,\s\"']{0,100};base64,[\w+/=-]{64,}")


def count_of(number: int, noun: str, plural: str | None = None) -> str:
    """Format a count with its noun: 1 entry, 2 entries."""
    return f"{number:,} {noun if number == 1 else plural or f'{noun}s'}"


def render_figure(value: float) -> str:
    """Format a score, a rate or a count: 0.4, 0.667, 1, 0.9996, 12,345."""
    if isinstance(value, int):
        return f"{value:,}" if abs(value) < _HUGE else shown(value)
    if not math.isfinite(value) or abs(value) >= _HUGE:
        return f"{value:g}"
    if abs(value) >= _LARGE:
        return f"{value:,.0f}"
    decimals = _DECIMALS
    # 0.9996 is not 1, but 0.9999999999999999 is.
    while decimals < _MOST_DECIMALS and _looks_whole(value, decimals):
        decimals += 1
    # Adding 0.0 turns -0.0 into 0.0.
    return f"{round(value, decimals) + 0.0:.{decimals}f}".rstrip("0").rstrip(".")


def render_value(value: object) -> str:
    """Format a value of a breakdown: a figure as such, a text as it is, anything else as JSON."""
    if isinstance(value, str):
        return value
    if isinstance(value, int | float) and not isinstance(value, bool):
        return render_figure(value)
    return shown(value)


def _looks_whole(value: float, decimals: int) -> bool:
    """Whether a figure that is not a whole number would be shown as one."""
    whole = round(value)
    return round(value, decimals) == whole != round(value, _MOST_DECIMALS)


def render_percent(share: float) -> str:
    """Format a share as a percentage: 66.7%."""
    return f"{share:.1%}"


def render_money(amount: float) -> str:
    """Format a cost in US dollars: $25.14, $0.0123."""
    if amount >= 1 or amount == 0:
        return f"${amount:,.2f}"
    return f"${amount:.4f}" if amount >= _LEAST_MONEY else f"under ${_LEAST_MONEY:.4f}"


def render_duration(seconds: float) -> str:
    """Format a duration: 12.3s, 4m 05s, 2h 10m."""
    whole = round(seconds)
    # 59.97 is 1m 00s, not 60.0s.
    if round(seconds, 1) < _MINUTE:
        return f"{seconds:.1f}s"
    if whole < _HOUR:
        return f"{whole // _MINUTE}m {whole % _MINUTE:02}s"
    return f"{whole // _HOUR:,}h {whole % _HOUR // _MINUTE:02}m"


def render_size(n_bytes: float) -> str:
    """Format a size: 512 B, 1.2 GB; a GB has 10^9 bytes."""
    unit = 0
    while round(n_bytes, 1) >= _STEP and unit < len(_UNITS) - 1:
        n_bytes /= _STEP
        unit += 1
    return f"{n_bytes:.1f} {_UNITS[unit]}" if unit else f"{n_bytes:.0f} {_UNITS[0]}"


def render_limit(n_bytes: int) -> str:
    """Format a limit in bytes as it is set: 16 MiB, 64 KiB, 1,000 B."""
    for unit, size in _LIMITS:
        if n_bytes >= size and n_bytes % size == 0:
            return f"{n_bytes // size:,} {unit}"
    return f"{n_bytes:,} {_UNITS[0]}"


def render_errored(number: int) -> str:
    """Format how many trials raised an exception; it overlaps with how many were scored."""
    return f"{number:,} errored (scored or not)" if number else "0 errored"


def reason_of(error: OSError | ValueError) -> str:
    """Say why a file could not be opened or read; a ValueError comes from an invalid file name."""
    return error.strerror or str(error) if isinstance(error, OSError) else str(error)


def without_number(text: str) -> str:
    """A message of the system without `[Errno 111]` before it, which says the same in numbers."""
    return re.sub(r"\[Errno -?\d+\] ", "", text)


def shown(value: object) -> str:
    """Format a JSON value for a message, shortened."""
    try:
        text = json.dumps(value, ensure_ascii=False)
    except (ValueError, RecursionError):
        text = type(value).__name__
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"


def without_escapes(text: str) -> str:
    """Remove the escape sequences by which programs colour their output and move the cursor."""
    return _ESCAPE.sub("", text) if "\x1b" in text else text


def without_data(text: str, note: str = "") -> str:
    """Replace embedded data, such as an image, by its type and its length, with a note."""
    if ";base64," not in text:
        return text
    return _DATA.sub(
        lambda found: f"[{found[1] or 'data'}, {len(found[0]):,} characters{note}]", text
    )


def printable(text: str) -> str:
    """Escape control characters: untrusted text must not reach a terminal raw."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else _spelled(char) for char in text)


def _spelled(char: str) -> str:
    return char.encode("unicode_escape", "backslashreplace").decode("ascii")
