"""Groups whose commands are loaded when they are used, so that `--help` stays fast."""

import gc
import importlib
import keyword
from collections.abc import Mapping

import click


class CommandTable(click.Group):
    """A group that knows its commands by name and first line; PACKAGE.NAME holds each."""

    package: str
    commands_by_name: Mapping[str, str]
    """Every command and the first line of its help, in the order that they are listed."""
    unlisted: frozenset[str] = frozenset()
    """Other names of commands, which no list shows."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names in the order of the table."""
        return list(self.commands_by_name)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of that name, if there is one."""
        if cmd_name not in self.commands_by_name and cmd_name not in self.unlisted:
            return None
        # What modules define stays: to look for garbage among it takes a tenth of the loading.
        gc.disable()
        try:
            module = importlib.import_module(f"{self.package}.{_module_name(cmd_name)}")
        finally:
            gc.freeze()
            gc.enable()
        command: click.Command = module.command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list of commands, without loading any."""
        with formatter.section("Commands"):
            formatter.write_dl(list(self.commands_by_name.items()))


def _module_name(command: str) -> str:
    """The module that holds a command: `import` is a word of Python's, and needs another one."""
    return f"{command}_" if keyword.iskeyword(command) else command.replace("-", "_")
