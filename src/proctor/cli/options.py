"""`--sample`, and checks of combinations of options: those without effect are refused."""

import functools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

PATH = click.Path(readable=False)
"""Any path; commands report problems with it themselves."""
LEDGER_HELP = (
    "Ledger directory, or the address of a `proctor serve` or a published ledger.  [default: "
    "PROCTOR_LEDGER, ./ledger]"
)
"""Help of --ledger."""
SAMPLE = Path(__file__).resolve().parent.parent / "sample"
"""A stored ledger of made-up runs, which is only read."""
STDOUT = "-"
"""Means standard output where an output file is expected."""


class Numeric[Number](click.ParamType[Number]):
    """A number, or a word in its place, of which some are refused."""

    def __init__(
        self,
        name: str,
        expected: str,
        parse: Callable[[Any], Number],
        fits: Callable[[Number], bool],
    ) -> None:
        self.name = name
        self._expected = expected
        self._parse = parse
        self._fits = fits

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> Number:
        """Parse the number."""
        try:
            number = self._parse(value)
        except ValueError:
            number = None
        if number is None or not self._fits(number):
            self.fail(f"{value!r}; expected {self._expected}", param, ctx)
        return number


def sample_option(command: Callable[..., int]) -> Callable[..., int]:
    """Add --sample, which makes `directory` the sample ledger; stands below --ledger."""

    @click.option("--sample", is_flag=True, help="Read the sample ledger, which has made-up runs.")
    @functools.wraps(command)
    def run(*, sample: bool, directory: str | None, **values: Any) -> int:
        if sample:
            check_apart("sample", "directory")
        return command(directory=str(SAMPLE) if sample else directory, **values)

    return run


def name_ledger(directory: str | None) -> list[str]:
    """The words that make another command read the same ledger."""
    if directory is None:
        return []
    return ["--sample"] if directory == str(SAMPLE) else ["--ledger", directory]


def check_companions(companions: Mapping[str, str]) -> None:
    """Check that every given parameter is accompanied by the one that it needs.

    Raises:
        UsageError: names the first that has not.
    """
    context = click.get_current_context()
    for name, companion in companions.items():
        if _is_given(context, name) and not _is_given(context, companion):
            raise click.UsageError(f"{_shown(context, name)} requires {_shown(context, companion)}")


def check_apart(first: str, second: str) -> None:
    """Check that two parameters were not both given.

    Raises:
        UsageError: they were.
    """
    context = click.get_current_context()
    if _is_given(context, first) and _is_given(context, second):
        raise click.UsageError(
            f"{_shown(context, first)} cannot be combined with {_shown(context, second)}"
        )


def check_unused(what: str, **values: object) -> None:
    """Check that parameters without effect on what was found were not given.

    Raises:
        UsageError: names the first that was.
    """
    context = click.get_current_context()
    for name, value in values.items():
        if value not in (None, False, ()):
            raise click.UsageError(f"{_shown(context, name)} cannot be used with {what}")


def _is_given(context: click.Context, name: str) -> bool:
    return context.get_parameter_source(name) is ParameterSource.COMMANDLINE


def _shown(context: click.Context, name: str) -> str:
    """A parameter as written on the command line: --exit-code, JOB."""
    parameter = next(found for found in context.command.params if found.name == name)
    return parameter.opts[0] if isinstance(parameter, click.Option) else name.upper()
