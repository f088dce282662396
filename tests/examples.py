"""How many examples a property is tried with: fewer in `make quick`, more in `make soak`."""

from hypothesis import settings

_USUAL = 100
"""What hypothesis asks for where nobody does."""


def examples(count: int) -> int:
    """What a test asks for, in proportion to the profile."""
    allowed = settings.default.max_examples if settings.default else _USUAL
    return max(5, count * allowed // _USUAL)
