"""Numbers as harbor treats them: `1` is not `1.0`, and a sum is the sum of CPython 3.12.

The builtin `sum` differs between interpreters: up to 3.11 it folds, 3.12 and 3.13 compensate
floats but not the ints between them, 3.14 compensates those too. `exact_sum` is the
3.12 result on all of them.
"""

import math
import struct
import sys
from collections.abc import Iterable, Sequence
from decimal import Decimal

type Number = int | float
type Rewards = dict[str, Number]

_INT64_MIN = -(2**63)
_INT64_MAX = 2**63 - 1

_BUILTIN_IS_EXACT = sys.implementation.name == "cpython" and (3, 12) <= sys.version_info < (3, 14)


def find_primary(rewards: Rewards) -> Number | None:
    """Return the reward called `reward`, or the only one; None if there are several others."""
    if "reward" in rewards:
        return rewards["reward"]
    return next(iter(rewards.values())) if len(rewards) == 1 else None


def exact_sum(values: Iterable[Number]) -> Number:
    """The sum that CPython 3.12 computes, bit for bit and of the same type."""
    if _BUILTIN_IS_EXACT:
        return sum(values)
    return portable_sum(values)


def sum_counts(counts: Sequence[int | None]) -> int | None:
    """Add up counts; None if one of them is unknown."""
    known = [count for count in counts if count is not None]
    return sum(known) if known and len(known) == len(counts) else None


def portable_sum(values: Iterable[Number]) -> Number:
    """`exact_sum`, written so that every interpreter gives the same result.

    (1) Ints are added exactly while each item and the total fit 64 bits.
    (2) From the first float on the total is a float: floats are added with Neumaier's
        compensation, ints that fit 64 bits without. The correction is added once, at the end,
        if it is finite and not zero.
    (3) An int beyond 64 bits, or a total that leaves them, ends compensation for good: a left fold.
    """
    items = iter(values)
    total = 0
    for item in items:  # (1)
        if isinstance(item, float):
            return _sum_floats(float(total + item), items)
        total += item
        if not (_fits(item) and _fits(total)):
            return _fold(total, items)
    return total


def _sum_floats(total: float, items: Iterable[Number]) -> Number:
    items = iter(items)
    correction = 0.0
    for item in items:  # (2)
        if isinstance(item, float):
            larger = total + item
            if abs(total) >= abs(item):
                correction += (total - larger) + item
            else:
                correction += (item - larger) + total
            total = larger
        elif _fits(item):
            total += float(item)
        else:
            return _fold(_corrected(total, correction) + item, items)
    return _corrected(total, correction)


def _fold(total: Number, items: Iterable[Number]) -> Number:
    for item in items:  # (3)
        total = total + item
    return total


def _corrected(total: float, correction: float) -> float:
    # An infinite or nan correction would turn an honest infinity into nan.
    return total + correction if correction and math.isfinite(correction) else total


def _fits(value: int) -> bool:
    return _INT64_MIN <= value <= _INT64_MAX


def is_finite(value: Number) -> bool:
    """Whether a number is neither nan nor infinite. math.isfinite overflows for a huge int."""
    return isinstance(value, int) or math.isfinite(value)


def same_number(left: Number, right: Number) -> bool:
    """Whether both have one type and one value: nan equals nan; 0.0 and -0.0, 1 and 1.0 differ."""
    if isinstance(left, float) and isinstance(right, float):
        return (math.isnan(left) and math.isnan(right)) or bits(left) == bits(right)
    return type(left) is type(right) and left == right


def bits(value: float) -> int:
    """The 64 bits of a double as an unsigned int."""
    (pattern,) = struct.unpack(">Q", struct.pack(">d", value))
    return int(pattern)


def json_number(value: Number) -> str:
    """Format a number as harbor's result.json does; nan and the infinities become null.

    Uses the shortest digits that read back exactly; fixed notation from 1e-5 up to 1e16, else an
    exponent without padding.
    """
    if isinstance(value, int):
        return _digits(value)
    if not math.isfinite(value):
        return "null"
    text = repr(value)
    # repr() pads exponents to two digits and uses them below 1e-4; harbor's JSON does neither.
    mantissa, mark, exponent = text.partition("e-0")
    if not mark:
        return text
    if exponent != "5":
        return f"{mantissa}e-{exponent}"
    sign = "-" if mantissa.startswith("-") else ""
    return f"{sign}0.0000{mantissa.lstrip('-').replace('.', '')}"


def _digits(value: int) -> str:
    # str() refuses more than 4300 digits; harbor prints sums of any length.
    return str(value) if _fits(value) else str(Decimal(value))
