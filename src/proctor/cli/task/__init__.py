"""`proctor task`: commands about task directories, one module each.

new      creates a task to start from
try_     runs a task with and without its solution, and reports what is wrong with it
lint     checks tasks without running them
shell    `try --shell`: a shell in a task's environment
digest   prints the digests that pin tasks and datasets
options  the task and its environment
"""

import click

from proctor.cli.main import CommandTable

# Every command and the first line of its help; implemented in proctor.cli.task.NAME.
COMMANDS = {
    "new": "Create a task that passes with its solution and fails without it.",
    "try": "Run a task with and without its solution, or open a shell in its environment.",
    "lint": "Check tasks without running them.",
    "digest": "Print the digests of tasks and datasets.",
}


class TaskCommands(CommandTable):
    """The commands about tasks."""

    package = "proctor.cli.task"
    commands_by_name = COMMANDS


@click.group("task", cls=TaskCommands)
def command() -> None:
    """Create tasks, try them out, check them, and print their digests.

    Example: proctor task new fix-bug
    """
