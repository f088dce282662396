"""The result of a check."""

from collections import Counter
from collections.abc import Iterable

import msgspec

from proctor.audit.file_kind import FileKind
from proctor.diagnostic import Diagnostic

# Diagnostics kept per code; a file can have one on each of a million lines.
_SHOWN = 20


class Checked(msgspec.Struct, frozen=True, kw_only=True):
    """The result of checking one file or directory."""

    path: str
    thing: FileKind
    summary: str
    """Short description of its contents."""
    diagnostics: tuple[Diagnostic, ...] = ()
    """Problems and notes; the first few of each code."""
    more: dict[str, int] = {}
    """How many more of each code there are."""
    unchecked: tuple[str, ...] = ()
    """What could not be checked."""

    @property
    def is_sound(self) -> bool:
        """Whether no problem was found."""
        return self.n_problems == 0

    @property
    def n_problems(self) -> int:
        """Number of problems, including those that were not kept."""
        kept = [found.code for found in self.diagnostics if found.is_problem]
        return len(kept) + sum(self.more.get(code, 0) for code in set(kept))


class Tally:
    """Collects diagnostics: the first of each code, and the number of others."""

    def __init__(self) -> None:
        self._kept: list[Diagnostic] = []
        self._counts: Counter[str] = Counter()

    def add(self, diagnostics: Iterable[Diagnostic]) -> None:
        """Add diagnostics."""
        for found in diagnostics:
            self._counts[found.code] += 1
            if self._counts[found.code] <= _SHOWN:
                self._kept.append(found)

    @property
    def kept(self) -> tuple[Diagnostic, ...]:
        """The first diagnostics of each code, in order of arrival."""
        return tuple(self._kept)

    @property
    def more(self) -> dict[str, int]:
        """How many of each code were not kept."""
        return {code: n - _SHOWN for code, n in self._counts.items() if n > _SHOWN}
