"""The command table and the outermost error handler: errors become messages and exit codes.

    0    done
    1    the check that was asked for failed
    2    wrong use or bad input
    3    done, but some trials are unscored or some tasks were refused
    130  interrupted

A command's module is loaded when the command is used, so that `--help` stays fast.
"""

import gc
import importlib
import keyword
import sys
import traceback
from collections.abc import Mapping, Sequence
from difflib import get_close_matches

import click

from proctor import __version__
from proctor.cli.removed import command_path, explain_removed, find_removed
from proctor.cli.stdout import (
    discard_stdout,
    keep_descriptors_free,
    leave_streams,
    print_stderr,
    render_failure,
)
from proctor.errors import DamageError, ProctorError
from proctor.sentence import printable

# Groups whose commands are imported on use, so that `--help` stays fast


class CommandTable(click.Group):
    """A group that lists its commands without importing them; PACKAGE.NAME implements each."""

    package: str
    commands_by_name: Mapping[str, str]
    """Every command and the first line of its help, in the order of the list."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names in the order of the table."""
        return list(self.commands_by_name)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the command of that name, if there is one."""
        if cmd_name not in self.commands_by_name:
            return None
        # Modules stay loaded: collecting garbage meanwhile takes a tenth of the import time.
        gc.disable()
        try:
            module = importlib.import_module(f"{self.package}.{_module_name(cmd_name)}")
        finally:
            # Objects of modules are never freed: later collections need not visit them.
            gc.freeze()
            gc.enable()
        command: click.Command = module.command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command that was typed; the error suggests another for a misspelled one."""
        # click suggests too, but knows only commands that are imported.
        if not args[0].startswith("-") and args[0] not in self.commands_by_name:
            if removed := find_removed(f"{command_path(ctx)} {args[0]}"):
                raise removed
            raise no_such_command(ctx, args[0], self.suggest(ctx, args[0]))
        return super().resolve_command(ctx, args)

    def suggest(self, ctx: click.Context, cmd_name: str) -> list[str]:
        """Names that are spelled alike."""
        return get_close_matches(cmd_name, self.commands_by_name)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands without importing any."""
        with formatter.section("Commands"):
            formatter.write_dl(list(self.commands_by_name.items()))


def no_such_command(ctx: click.Context, cmd_name: str, alike: Sequence[str]) -> click.UsageError:
    """Make the error about an unknown command, with the commands that may have been meant."""
    meant = " or ".join(f"`{ctx.command_path} {name}`" for name in alike)
    tail = f" Did you mean {meant}?" if meant else ""
    return click.UsageError(f"No such command {printable(cmd_name)!r}.{tail}", ctx)


def _module_name(command: str) -> str:
    """The module of a command: `import` is a Python keyword and needs another name."""
    return f"{command}_" if keyword.iskeyword(command) else command.replace("-", "_")


# Every command and the first line of its help, by group; implemented in proctor.cli.NAME.
GROUPS = {
    "Everyday commands": {
        "run": "Run an agent on tasks: many trials in one job.",
        "view": "View a ledger, a job, or a directory of jobs in a browser.",
        "show": "Show a trial, its trace, one step, a record, or a job's trials.",
        "compare": "Compare two runs, task by task.",
        "audit": "Check whether published numbers follow from the evidence.",
    },
    "Prepare and run": {
        "init": "Create a task, an agent and a ledger to start from.",
        "resume": "Resume a stopped job.",
        "task": "Create tasks, try them out, check them, and print their digests.",
        "dataset": "List and fetch datasets of tasks by name.",
        "image": "Pull, import, list and remove images for the sandbox, and layers of builds.",
        "clean": "Remove what killed runs left behind.",
    },
    "Score and check": {
        "score": "Recompute a job's scores from its evidence.",
        "check": "Check a trace, record, ledger, proof or claim on its own.",
        "gate": "Fail CI when a run misses a threshold.",
        "outcome": "Print a result line, judge a run by it, or find a reason code.",
    },
    "Report and search": {
        "board": "Show every agent's score on a dataset, and what it is based on.",
        "report": "Write a report about runs, as one document or a site of pages.",
        "search": "Search all sealed traces for words, with the step of each match.",
        "trace": "Summarize, classify or convert traces.",
    },
    "Ledger and exchange": {
        "ledger": "Manage the sealed log: append-only, and verifiable by anyone.",
        "serve": "Serve a ledger to many machines, over HTTP or HTTPS.",
        "import": "Import runs into the ledger: from other systems, or from bundles.",
        "import-prime-eval": "Alias of `proctor import prime`, named as in aec-bench.",
        "export": "Export sealed trials in a format that other tools read.",
    },
}
COMMANDS = {name: summary for group in GROUPS.values() for name, summary in group.items()}
# Commands with commands of their own: someone who types `proctor verify` wants `ledger verify`.
_WITH_COMMANDS = ("ledger", "trace", "import", "task", "dataset", "image", "serve")
# Width of the names in the help; the text of a longer one begins on the next line.
_COLUMN = 9
_EXAMPLES = """\
\b
Examples:
  proctor init my-benchmark
  proctor run -p tasks --agent-tree my-agent --command /installed-agent/run.sh
  proctor audit jobs/2026-11-15__10-00-00
"""


class Commands(CommandTable):
    """All commands of the program."""

    package = "proctor.cli"
    commands_by_name = COMMANDS

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write a list for each group, all with the same column."""
        for title, commands in GROUPS.items():
            with formatter.section(title):
                rows = [(name.ljust(_COLUMN), summary) for name, summary in commands.items()]
                formatter.write_dl(rows, col_max=_COLUMN)

    def suggest(self, ctx: click.Context, cmd_name: str) -> list[str]:
        """Names that are spelled alike, or a group's command of exactly this name."""
        return super().suggest(ctx, cmd_name) or [
            f"{group} {cmd_name}"
            for group in _WITH_COMMANDS
            if cmd_name in _list_below(ctx, self.get_command(ctx, group))
        ]


def _list_below(ctx: click.Context, command: click.Command | None) -> list[str]:
    return command.list_commands(ctx) if isinstance(command, click.Group) else []


@click.group(
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog=_EXAMPLES,
)
@click.version_option(__version__, prog_name="proctor")
def cli() -> None:
    """Run agents on benchmark tasks, score them exactly, and verify published numbers."""


def main() -> None:
    """Run a command and exit with its code."""
    keep_descriptors_free()
    try:
        code = cli.main(prog_name="proctor", standalone_mode=False)
    except SystemExit:
        # click raises this when the reader of a help page closes the pipe, which is no error.
        code = 0
    except (KeyboardInterrupt, Exception) as error:  # noqa: BLE001 - the outermost handler
        code = _explain(error)
    leave_streams()
    sys.exit(code if isinstance(code, int) else 0)


def _explain(error: BaseException) -> int:
    """Print why a command ended; returns the exit code."""
    if _was_interrupted(error):
        # Python marks an interrupt inside exec() as unhandled and would die of it at exit, although
        # it is handled here; the next exec() clears the mark.
        exec("")  # noqa: S102
        _say("interrupted")
        return 130
    if isinstance(error, click.ClickException):
        error = explain_removed(error)
        error.show()
        return error.exit_code
    if isinstance(error, ProctorError):
        _say(str(error))
        # Damage is the negative result of a check, anything else is bad input.
        return 1 if isinstance(error, DamageError) else 2
    _report(error)
    return 2


def _was_interrupted(error: BaseException | None) -> bool:
    """Whether an interrupt caused an error, such as that of a half-closed file."""
    while error is not None:
        if isinstance(error, KeyboardInterrupt | click.Abort):
            return True
        # Cleaning up after Ctrl-C may raise another error: the interrupt is then its context.
        error = error.__context__
    return False


def _say(sentence: str) -> None:
    print_stderr(f"proctor: {printable(sentence)}")


def _report(error: BaseException) -> None:
    """Report an unexpected error: a defect of proctor, or a help page that could not be printed."""
    # Errors of files have a name; only those of streams have none.
    if isinstance(error, OSError) and error.filename is None:
        discard_stdout()
        _say(render_failure(error))
        return
    traceback.print_exception(error)
    _say("the error above is a defect of proctor; please report it")
