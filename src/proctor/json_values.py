"""How many values JSON text holds, counted before anybody decodes it. Nothing here decodes."""

MOST_VALUES = 1_000_000
"""JSON values in what is decoded to plain objects: some 100 bytes each, however short the text."""
_BLOCK = 1 << 18
_BACKSLASH = ord("\\")


def has_more_values(
    data: bytes | bytearray, most: int, start: int = 0, end: int | None = None
) -> bool:
    """Whether JSON text holds more values than so many, before anybody decodes it.

    A decoder makes an object of 60 bytes or more for each pair of brackets, so a short text can
    take a multiple of its size. Commas and opening brackets are counted, outside of strings.
    """
    end = len(data) if end is None else end
    if end - start <= most or _count_marks(data, start, end) <= most:
        return False
    found, is_inside = 0, False
    while start < end and found <= most:
        stop = min(start + _BLOCK, end)
        # An escape must not be cut in two.
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
    """Refuse JSON text that would take much memory, before it is decoded to plain objects.

    Raises:
        ValueError: it holds more values than that.
    """
    if has_more_values(data, most):
        raise ValueError(f"more than {most:,} JSON values")


def _count_marks(data: bytes | bytearray, start: int, end: int) -> int:
    return sum(data.count(mark, start, end) for mark in (b",", b"[", b"{"))
