"""Options that mean something only together. One without its companion is refused, not ignored."""

from collections.abc import Mapping

import click
from click.core import ParameterSource


def check_companions(companions: Mapping[str, str]) -> None:
    """See that every parameter of the current command that was given has its companion.

    Raises:
        UsageError: names the first that has not.
    """
    context = click.get_current_context()
    for name, companion in companions.items():
        if _is_given(context, name) and not _is_given(context, companion):
            raise click.UsageError(
                f"{_shown(context, name)} goes with {_shown(context, companion)}"
            )


def _is_given(context: click.Context, name: str) -> bool:
    return context.get_parameter_source(name) is ParameterSource.COMMANDLINE


def _shown(context: click.Context, name: str) -> str:
    """A parameter as a person writes it: --exit-code, JOB."""
    parameter = next(found for found in context.command.params if found.name == name)
    return parameter.opts[0] if isinstance(parameter, click.Option) else name.upper()
