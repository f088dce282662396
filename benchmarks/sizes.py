"""How sizes are named in rows (1k, 10k, 445), and what counts as growing with them."""

LINEAR = 2.0
"""Time at a larger size over the time in proportion to it, at most.

More than 1, because what fits the processor's cache at one size does not at the next; far less than
what any power of the size would give.
"""


def name_of_size(size: int) -> str:
    """A count in thousands or millions where it is one."""
    if size % 1_000_000 == 0:
        return f"{size // 1_000_000}m"
    return f"{size // 1000}k" if size % 1000 == 0 else str(size)
