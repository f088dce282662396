"""The command table and the outermost door: every error leaves here as a sentence and an exit code.

    0    done
    1    the check that was asked for failed
    2    wrong use or bad input
    3    done, but some trials are unscored or some tasks were refused
    130  interrupted

A command's module is loaded when the command is used, so that `--help` stays fast.
"""

import gc
import importlib
import sys
import traceback

import click

from proctor import __version__
from proctor.cli.printable import printable
from proctor.cli.stdout import (
    discard_stdout,
    keep_descriptors_free,
    leave_streams,
    render_failure,
    tell,
)
from proctor.errors import ProctorError

COMMANDS = {
    "run": "Run an agent at tasks, many trials as one job.",
    "resume": "Go on with a job that was stopped.",
    "clean": "Remove what killed runs left behind.",
    "score": "Recompute a job's numbers from its evidence.",
    "check": "Check a trace, record, task, dataset or certificate by itself.",
    "audit": "See whether published numbers follow from the evidence.",
    "outcome": "The result line, what its reader makes of it, and reason codes.",
    "show": "Show a trace or a record, readable.",
    "trace": "What an agent did: follow, convert, and the writer a harness needs.",
    "record": "What is kept of one trial: make a record, and its schema.",
    "task": "Task directories: the digests that pin them.",
    "image": "Root file systems for the sandbox: import, list, remove.",
}
"""Every command and the first line of its help; proctor.cli.NAME holds it."""


class CommandTable(click.Group):
    """A group whose commands are loaded when they are used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names in the order of the table."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of that name, if there is one."""
        if cmd_name not in COMMANDS:
            return None
        # What modules define stays: to look for garbage among it takes a tenth of the loading.
        gc.disable()
        try:
            command: click.Command = importlib.import_module(f"proctor.cli.{cmd_name}").command
        finally:
            gc.freeze()
            gc.enable()
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list of commands, without loading any."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(
    cls=CommandTable,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Example: proctor score jobs/2026-11-15__10-00-00",
)
@click.version_option(__version__, prog_name="proctor")
def cli() -> None:
    """Runs agents at benchmark tasks, marks them exactly, checks that published numbers follow."""


def main() -> None:
    """Run a command and leave with its exit code."""
    keep_descriptors_free()
    try:
        code = cli.main(standalone_mode=False)
    except click.ClickException as error:
        error.show()
        code = error.exit_code
    except ProctorError as error:
        _say(str(error))
        code = 2
    except (KeyboardInterrupt, click.Abort):
        _say("interrupted")
        code = 130
    except SystemExit:
        # click leaves so when the reader of a help page has gone, which is its right.
        code = 0
    except Exception as error:  # noqa: BLE001 - the outermost door
        _report(error)
        code = 2
    leave_streams()
    sys.exit(code if isinstance(code, int) else 0)


def _say(sentence: str) -> None:
    tell(f"proctor: {printable(sentence)}")


def _report(error: Exception) -> None:
    """Whatever gets here is our own defect, but for a help page that click could not print."""
    # Every file that is read or written has a name; only a stream's error has none.
    if isinstance(error, OSError) and error.filename is None:
        discard_stdout()
        _say(render_failure(error))
        return
    traceback.print_exception(error)
    _say("the error above is a defect of proctor; please report it")
