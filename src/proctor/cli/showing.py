"""The options of `proctor show`, and the output of a trial: its head, its traces, its digests."""

import contextlib
import importlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from proctor.cli.options import check_unused
from proctor.cli.pager import page
from proctor.cli.selection import Selection
from proctor.cli.show_trace import Source, View, render_trace
from proctor.cli.stdout import print_stderr
from proctor.errors import InputError
from proctor.sentence import printable


@dataclass(frozen=True, slots=True)
class ShowOptions:
    """The options of `proctor show`."""

    selection: Selection
    full: bool
    raw: bool
    as_json: bool
    paged: bool
    evidence: str | None = None
    """One evidence file of a sealed trial to print instead."""
    changes: bool = False
    """Whether to show only what the agent changed."""
    failed: bool = False
    """Whether to show only the trials of a job that did not pass."""

    def view(self) -> View:
        """A new view."""
        return View(self.selection, self.full)

    def check_unused_for(self, what: str) -> None:
        """Check that no options for traces were given."""
        self.check_unchosen(what)
        check_unused(what, part=self.selection.part)

    def check_unchosen(self, what: str) -> None:
        """Check that no steps were selected; a part of a trial may be."""
        chosen = self.selection
        check_unused(what, step=chosen.steps, errors=chosen.errors, tool=chosen.tool)
        check_unused(what, grep=chosen.grep)


type Sources = Callable[[], contextlib.AbstractContextManager[list[Source]]]
"""Opens the traces of a trial for reading."""


@dataclass(slots=True)
class Showing:
    """The output of a trial."""

    name: str
    sources: Sources
    options: ShowOptions
    head: Callable[[], Iterable[str]] = tuple
    """Makes the lines before the traces; omitted if steps are selected."""
    tail: Callable[[], Iterable[str]] = tuple
    """Makes the lines after the traces; omitted if steps are selected."""
    is_lone: bool = False
    """Whether it is a single file, which needs no title."""
    _view: View | None = field(default=None, init=False)
    _has_traces: bool = field(default=False, init=False)

    def print(self) -> None:
        """Print it, with a note if there is no trace or no matching step."""
        page(self._lines, is_wanted=self.options.paged)
        if self._view is None or self._view.selection.is_all:
            return
        if self._has_traces:
            warn_if_empty(self.name, self._view)
        else:
            print_stderr(f"proctor: {printable(self.name)}: has no trace")

    def _lines(self) -> Iterator[str]:
        self._view = view = self.options.view()
        if view.selection.is_all:
            yield from self.head()
        with self.sources() as found:
            self._has_traces = bool(found)
            for source in choose_part(self.name, found, self.options.selection.part):
                lines = render_trace(source, view)
                # A title without content below it would be misleading.
                if not self.is_lone and (first := next(lines, None)) is not None:
                    yield from ["", printable(_title(source)), first]
                yield from lines
        if view.selection.is_all and (last := list(self.tail())):
            yield from ["", *last]


def choose_part(name: str, sources: list[Source], part: str | None) -> list[Source]:
    """The traces of one part of a trial, or all of them.

    Raises:
        InputError: there is no such step.
    """
    chosen = [source for source in sources if part in (None, source.part)]
    if sources and not chosen:
        names = ", ".join(source.part for source in sources if source.part)
        there = f"its parts are {names}" if names else "it has no parts"
        raise InputError(f"{name}: no part {part!r}; {there}")
    return chosen


def _title(source: Source) -> str:
    part = f"part {source.part}, " if source.part else ""
    return f"{part}{source.name} ({source.kind})"


def print_document(document: object) -> None:
    """Print a JSON document. Imported late: most calls print text."""
    importlib.import_module("proctor.cli.output").print_json(document)


def warn_if_empty(name: str, view: View) -> None:
    """Report that no step matches, if steps were selected."""
    if not view.shown and not view.selection.is_all:
        print_stderr(f"proctor: {printable(name)}: no step matches")
