"""The command table and the outermost door: every error leaves here as a sentence and an exit code.

    0    done
    1    the check that was asked for failed
    2    wrong use or bad input
    3    done, but some trials are unscored or some tasks were refused
    130  interrupted

A command's module is loaded when the command is used, so that `--help` stays fast.
"""

import sys
import traceback

import click

from proctor import __version__
from proctor.cli.commands import CommandTable
from proctor.cli.printable import printable
from proctor.cli.stdout import (
    discard_stdout,
    keep_descriptors_free,
    leave_streams,
    render_failure,
    tell,
)
from proctor.errors import DamageError, ProctorError

COMMANDS = {
    "run": "Run an agent at tasks, many trials as one job.",
    "resume": "Go on with a job that was stopped.",
    "clean": "Remove what killed runs left behind.",
    "score": "Recompute a job's numbers from its evidence.",
    "check": "Check a trace, record, task, ledger, proof or claim by itself.",
    "gate": "Hold runs against limits, for CI: an exit code for each miss.",
    "audit": "See whether published numbers follow from the evidence.",
    "outcome": "The result line, what its reader makes of it, and reason codes.",
    "show": "Show a trial, its trace, a step of it, or a record, readable.",
    "plan": "Seal what is to be run, before it is.",
    "board": "Show what every agent scored at a dataset, with all it rests on.",
    "view": "Look at runs in a browser: a ledger, a job, or a directory of jobs.",
    "compare": "Hold two runs against each other, task by task.",
    "report": "One document about runs, or a site of pages.",
    "search": "Find words in every sealed trace, with the step they are in.",
    "trace": "What an agent did: summary, classify, diff, follow, convert.",
    "ledger": "The sealed log: append-only, checkable by anyone.",
    "import": "Bring runs into the ledger: what other systems left, and bundles.",
    "export": "Take sealed trials out, in a form that others read.",
    "case": "Write one sealed trial as an HTML page that checks itself.",
    "record": "What is kept of one trial: make a record, and its schema.",
    "task": "Task directories: the digests that pin them.",
    "image": "Root file systems for the sandbox: import, list, remove.",
}
"""Every command and the first line of its help; proctor.cli.NAME holds it."""


class Commands(CommandTable):
    """All commands of the program."""

    package = "proctor.cli"
    commands_by_name = COMMANDS
    unlisted = frozenset({"import-prime-eval"})


@click.group(
    cls=Commands,
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
    except SystemExit:
        # click leaves so when the reader of a help page has gone, which is its right.
        code = 0
    except (KeyboardInterrupt, Exception) as error:  # noqa: BLE001 - the outermost door
        code = _say_why(error)
    leave_streams()
    sys.exit(code if isinstance(code, int) else 0)


def _say_why(error: BaseException) -> int:
    """Say why a command ended; its exit code."""
    if _was_interrupted(error):
        # Python marks an interrupt inside exec() as unhandled, though it is handled here, and
        # would die of it at the end; the next exec() takes the mark away.
        exec("")  # noqa: S102
        _say("interrupted")
        return 130
    if isinstance(error, click.ClickException):
        error.show()
        return error.exit_code
    if isinstance(error, ProctorError):
        _say(str(error))
        return 1 if isinstance(error, DamageError) else 2
    _report(error)
    return 2


def _was_interrupted(error: BaseException | None) -> bool:
    """Whether an interrupt is what led to an error, such as that of a file closed half-way."""
    while error is not None:
        if isinstance(error, KeyboardInterrupt | click.Abort):
            return True
        error = error.__context__
    return False


def _say(sentence: str) -> None:
    tell(f"proctor: {printable(sentence)}")


def _report(error: BaseException) -> None:
    """Whatever gets here is our own defect, but for a help page that click could not print."""
    # Every file that is read or written has a name; only a stream's error has none.
    if isinstance(error, OSError) and error.filename is None:
        discard_stdout()
        _say(render_failure(error))
        return
    traceback.print_exception(error)
    _say("the error above is a defect of proctor; please report it")
