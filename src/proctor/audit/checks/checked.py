"""The answer to a check."""

from collections import Counter
from collections.abc import Iterable

import msgspec

from proctor.audit.file_kind import FileKind
from proctor.diagnostic import Diagnostic

_SHOWN = 20
"""Diagnostics of one kind that are kept; a file can have one on each of a million lines."""


class Checked(msgspec.Struct, frozen=True, kw_only=True):
    """What was found about one thing."""

    path: str
    thing: FileKind
    summary: str
    """What is in it, in a few words."""
    diagnostics: tuple[Diagnostic, ...] = ()
    """What was noticed, problems and notes; of each kind the first few."""
    more: dict[str, int] = {}
    """How many of a kind there are beyond those."""
    unchecked: tuple[str, ...] = ()
    """What could not be checked."""

    @property
    def is_sound(self) -> bool:
        """Whether no problem was found."""
        return self.n_problems == 0

    @property
    def n_problems(self) -> int:
        """How many problems there are, those not kept among them."""
        kept = [found.code for found in self.diagnostics if found.is_problem]
        return len(kept) + sum(self.more.get(code, 0) for code in set(kept))


class Tally:
    """Diagnostics as they come in: the first of each kind, and how many more."""

    def __init__(self) -> None:
        self._kept: list[Diagnostic] = []
        self._counts: Counter[str] = Counter()

    def add(self, diagnostics: Iterable[Diagnostic]) -> None:
        """Take some more."""
        for found in diagnostics:
            self._counts[found.code] += 1
            if self._counts[found.code] <= _SHOWN:
                self._kept.append(found)

    @property
    def kept(self) -> tuple[Diagnostic, ...]:
        """The first of each kind, in the order they came."""
        return tuple(self._kept)

    @property
    def more(self) -> dict[str, int]:
        """How many of a kind were not kept."""
        return {code: n - _SHOWN for code, n in self._counts.items() if n > _SHOWN}
