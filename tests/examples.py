"""How many examples a property is tried with: fewer in `make quick`, whose profile asks for few."""

from hypothesis import settings

_USUAL = 100
"""What hypothesis and the other profiles ask for."""


def examples(count: int) -> int:
    """As many as a test asks for, or as the profile allows where that is fewer than usual."""
    allowed = settings.default.max_examples if settings.default else _USUAL
    return count if allowed >= _USUAL else min(count, allowed)
