"""A command whose help lists options in sections."""

from collections.abc import Callable, Sequence
from typing import Any

import click

type Decorator = Callable[[Callable[..., int]], Callable[..., int]]


class SectionedOption(click.Option):
    """An option in a section of the help."""

    def __init__(self, declarations: Sequence[str], *, section: str, **attributes: Any) -> None:
        super().__init__(declarations, **attributes)
        self.section = section


class SectionedCommand(click.Command):
    """A command whose help has a list of options for each section."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the lists, sections in the order of their first option."""
        sections: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            name = parameter.section if isinstance(parameter, SectionedOption) else "Options"
            record = parameter.get_help_record(ctx)
            if record is not None:
                sections.setdefault(name, []).append(record)
        for name, records in sections.items():
            with formatter.section(name):
                formatter.write_dl(records)


def option(*declarations: str, **attributes: Any) -> Callable[[str], Decorator]:
    """An option that gets its section from `section`."""

    def place(section: str) -> Decorator:
        return click.option(*declarations, cls=SectionedOption, section=section, **attributes)

    return place


def section(name: str, *options: Callable[[str], Decorator]) -> Decorator:
    """Add all options of a section, in order."""

    def decorate(function: Callable[..., int]) -> Callable[..., int]:
        for place in reversed(options):
            function = place(name)(function)
        return function

    return decorate
