"""Public keys of Ed25519 as points: which of them are no keys at all.

A key of small order, one of eight points, fits a signature to nearly any message; anybody can make
one. Pure numbers, from RFC 8032: no library says this of a key, and lists need not load one.
"""

from functools import lru_cache

_P = 2**255 - 19
_D = -121665 * pow(121666, -1, _P) % _P
_ROOT = pow(2, (_P - 1) // 4, _P)
"""A square root of -1."""


@lru_cache(maxsize=64)
def find_key_fault(public: bytes) -> str | None:
    """Why 32 bytes are no public key; None where they are one."""
    number = int.from_bytes(public, "little")
    sign, y = number >> 255, number & ((1 << 255) - 1)
    if y >= _P:
        return "not written as a public key is: its number is too large"
    x = _find_x(y)
    if x is None:
        return "no point of the curve"
    if x == 0 and sign:
        return "not written as a public key is: a sign without a number"
    if _has_small_order(x, y):
        return "a key of small order, which nearly any signature fits"
    return None


def _find_x(y: int) -> int | None:
    """One of the two numbers that make a point of this one."""
    above, below = (y * y - 1) % _P, (_D * y * y + 1) % _P
    x = above * pow(below, 3, _P) * pow(above * pow(below, 7, _P), (_P - 5) // 8, _P) % _P
    square = below * x * x % _P
    if square == above:
        return x
    return x * _ROOT % _P if square == -above % _P else None


def _has_small_order(x: int, y: int) -> bool:
    """Whether eight times the point is the neutral one, (0, 1)."""
    z = 1
    for _ in range(3):
        # Doubling on -x² + y² = 1 + d·x²·y², as fractions over z.
        xx, yy, both = x * x % _P, y * y % _P, 2 * x * y % _P
        down, up = (yy - xx) % _P, (yy + xx) % _P
        rest = (down - 2 * z * z) % _P
        x, y, z = both * rest % _P, down * -up % _P, down * rest % _P
    return x == 0 and (y - z) % _P == 0
