"""Renders what failed in a trial: its exceptions, and what its verifier reported."""

from collections.abc import Callable, Iterator
from itertools import zip_longest

from proctor.traces.failures import Failure, TrialFailures, name_exception

type Locate = Callable[[str], str]
"""Says where a file of the trial can be read: its path, or the command that prints it."""


def list_failures(found: TrialFailures, locate: Locate) -> Iterator[tuple[str, list[str]]]:
    """Each failure as a label and lines, the exceptions first."""
    for each in found.exceptions:
        shown = name_exception(each.title)
        is_error = shown == each.title
        lines = _exception_lines(each) if is_error else list(each.lines)
        yield _label("errored" if is_error else shown, each), [*lines, *_whole(each, locate)]
    for each, after in zip_longest(found.tests, found.tests[1:]):
        # An exception's class is in its line already.
        name = [each.title] if each.title and each.title not in each.line else []
        what = "failed test" if name else "verifier says"
        # Tests of one output name it once, below the last of them.
        is_last = after is None or after.file != each.file
        whole = _whole(each, locate) if is_last else []
        yield _label(what, each), [*name, *each.lines, *whole]
    if found.more_tests:
        yield "failed tests", [f"{found.more_tests:,} more, not listed"]


def render_failures(found: TrialFailures, locate: Locate) -> Iterator[str]:
    """The failures as lines, each with its label and the rest indented."""
    for label, (first, *rest) in list_failures(found, locate):
        yield f"{label}: {first}"
        yield from (f"    {line}" for line in rest)


def _label(what: str, failure: Failure) -> str:
    return f"step {failure.step}, {what}" if failure.step else what


def _exception_lines(failure: Failure) -> list[str]:
    first, *rest = failure.lines or ("",)
    return [": ".join(filter(None, (failure.title, first))), *rest]


def _whole(failure: Failure, locate: Locate) -> list[str]:
    return [f"whole text: {locate(failure.file)}"] if failure.file else []
