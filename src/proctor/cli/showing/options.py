"""The options of `proctor show`, and which steps of a trace they select.

A step is shown whole if it matches all conditions: a call is useless without its result.
"""

import contextlib
import re
import signal
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import FrameType

import click

from proctor.cli.options import check_unused
from proctor.errors import InputError
from proctor.traces.entry import Entry
from proctor.traces.tool_errors import find_error

LAST = (1 << 63) - 1
"""The end of an open range."""
_WARMUP = "warmup"
# For one step; a regular expression can take exponential time.
_PATIENCE_SECONDS = 5.0
_RANGE = re.compile(r"(\d{1,18})(?:(-)(\d{1,18})?)?", re.ASCII)


class StepRange(click.ParamType[tuple[int, int]]):
    """`7`, `3-7`, or `3-` for an open range."""

    name = "N[-M]"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, int]:
        """The first and the last step, inclusive."""
        if isinstance(value, tuple):
            return value
        found = _RANGE.fullmatch(str(value))
        if found is None:
            self.fail(
                f"{value!r} is not a step; expected a number or a range such as 3-7", param, ctx
            )
        first = int(found[1])
        last = int(found[3]) if found[3] else LAST if found[2] else first
        if last < first:
            self.fail(f"{value!r} ends before it begins", param, ctx)
        return first, last


class Expression(click.ParamType[re.Pattern[str]]):
    """A Python regular expression."""

    name = "RE"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> re.Pattern[str]:
        """Compile the expression."""
        if isinstance(value, re.Pattern):
            return value
        try:
            return re.compile(str(value))
        except (re.error, RecursionError, OverflowError) as error:
            self.fail(f"{value!r} is not a regular expression: {error}", param, ctx)


@dataclass(frozen=True, slots=True)
class Selection:
    """The conditions for steps; empty: all steps."""

    steps: tuple[int, int] | None = None
    """The first and the last step, inclusive."""
    errors: bool = False
    """Only steps with an error in a tool's result."""
    tool: str | None = None
    """Only steps in which this tool was called or returned."""
    grep: re.Pattern[str] | None = None
    """Only steps with a text that matches."""
    part: str | None = None
    """Only this part of a trial with several steps."""

    @property
    def is_all(self) -> bool:
        """Whether all entries are selected."""
        return (self.steps, self.errors, self.tool, self.grep) == (None, False, None, None)

    @property
    def last(self) -> int:
        """The last step that can be selected."""
        return LAST if self.steps is None else self.steps[1]

    def wants(self, entries: Sequence[Entry]) -> bool:
        """Whether the entries of one step are selected."""
        return (self.steps is None or self.steps[0] <= entries[0].step <= self.steps[1]) and (
            (not self.errors or any(map(is_failed, entries)))
            and (self.tool is None or any(each.tool_name == self.tool for each in entries))
            and (self.grep is None or self._is_found(self.grep, entries))
        )

    def _is_found(self, grep: re.Pattern[str], entries: Sequence[Entry]) -> bool:
        with _patience(f"--grep {grep.pattern!r}: step {entries[0].step}"):
            return any(grep.search(text) for each in entries for text in texts_of(each))


def is_failed(entry: Entry) -> bool:
    """Whether an entry is an error in a tool's result; warm-ups are excluded, as in summaries."""
    is_result = entry.role == "tool_result" and entry.call_type != _WARMUP
    return is_result and find_error(entry) is not None


def texts_of(entry: Entry) -> Iterator[str]:
    """Every text of an entry that is searched: messages, commands, output and arguments."""
    texts = (entry.content, entry.command, entry.stdout, entry.stderr, entry.output_summary)
    yield from (text for text in texts if text)
    for found in (entry.arguments, entry.metadata):
        if found:
            yield from _texts_in(found)


def _texts_in(value: object) -> Iterator[str]:
    waiting = [value]
    while waiting:
        found = waiting.pop()
        if isinstance(found, str):
            yield found
        elif isinstance(found, dict):
            waiting += found.values()
        elif isinstance(found, list):
            waiting += found


@contextlib.contextmanager
def _patience(what: str) -> Iterator[None]:
    """Raise if it takes too long; `re` checks for signals while it runs."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(_signal: int, _frame: FrameType | None) -> None:
        seconds = f"{_PATIENCE_SECONDS:g} seconds"
        raise InputError(f"{what} took longer than {seconds}; use a simpler expression")

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, _PATIENCE_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


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

    def check_unused_for(self, what: str) -> None:
        """Check that no options for traces were given."""
        self.check_unchosen(what)
        check_unused(what, part=self.selection.part)

    def check_unchosen(self, what: str) -> None:
        """Check that no steps were selected; a part of a trial may be."""
        chosen = self.selection
        check_unused(what, step=chosen.steps, errors=chosen.errors, tool=chosen.tool)
        check_unused(what, grep=chosen.grep)
