"""A finding about an input file, in one shape for every kind of file.

A strict reader raises the first problem; a lenient one returns all of them with what it kept.
"""

import msgspec


class Diagnostic(msgspec.Struct, frozen=True, gc=False):
    """One problem or note about an input file."""

    code: str
    """The kind, in kebab-case; stable, for programs."""
    message: str
    """A sentence for a person: what was found, what was expected. Without path and line."""
    line: int | None = None
    """Line number from 1, for files that have lines."""
    is_problem: bool = True
    """False for a note, which does not make a check fail."""

    def __str__(self) -> str:
        at = "" if self.line is None else f"line {self.line}: "
        return f"{at}{self.message}"
