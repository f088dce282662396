"""What a reader noticed about a file: one value for every kind of file.

A strict reader raises the first problem; a salvaging one returns all of them beside what it kept.
Nothing here knows what was read.
"""

import msgspec


class Diagnostic(msgspec.Struct, frozen=True, gc=False):
    """One thing a reader noticed."""

    code: str
    """What kind of thing, in kebab-case; stable, for programs."""
    message: str
    """A sentence for a person: what was found, what was expected. No path and no line in it."""
    line: int | None = None
    """Counted from 1, where the file has lines."""
    is_problem: bool = True
    """False for what is worth knowing and breaks nothing: a check does not fail for it."""

    def __str__(self) -> str:
        at = "" if self.line is None else f"line {self.line}: "
        return f"{at}{self.message}"
