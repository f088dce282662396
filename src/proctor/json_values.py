"""Count the values in JSON text before decoding it, to bound the memory a decoder takes."""

MOST_VALUES = 1_000_000
"""Most JSON values decoded to plain objects; each takes some 100 bytes, however short its text."""
_BLOCK = 1 << 18
_BACKSLASH = ord("\\")


def has_more_values(
    data: bytes | bytearray, most: int, start: int = 0, end: int | None = None
) -> bool:
    """Whether JSON text has more than `most` values, found without decoding it.

    A decoder allocates 60 bytes or more for each pair of brackets, so a short text can take many
    times its size. Counts commas and opening brackets outside of strings.
    """
    end = len(data) if end is None else end
    # The cheap count includes marks in strings, so it can only be too high.
    if end - start <= most or _count_marks(data, start, end) <= most:
        return False
    found, is_inside = 0, False
    while start < end and found <= most:
        stop = min(start + _BLOCK, end)
        # Do not cut an escape sequence in two.
        while stop < end and data[stop - 1] == _BACKSLASH:
            stop += 1
        plain = data[start:stop].replace(b"\\\\", b"").replace(b'\\"', b"")
        parts = plain.split(b'"')
        outside = b"".join(parts[is_inside::2])
        found += _count_marks(outside, 0, len(outside))
        is_inside ^= len(parts) % 2 == 0
        start = stop
    return found > most


def check_values(data: bytes, most: int = MOST_VALUES) -> None:
    """Refuse JSON text that would take too much memory to decode.

    Raises:
        ValueError: it has more than `most` values.
    """
    if has_more_values(data, most):
        raise ValueError(f"more than {most:,} JSON values")


def _count_marks(data: bytes | bytearray, start: int, end: int) -> int:
    return sum(data.count(mark, start, end) for mark in (b",", b"[", b"{"))
