"""The options of `proctor audit --rerun`."""

from collections.abc import Callable

import click

from proctor.cli.options import PATH

_OPTIONS = (
    click.option(
        "--rerun",
        type=click.IntRange(min=1),
        metavar="N",
        help="Run N trials of a job, or of a claim, again.",
    ),
    click.option(
        "--seed",
        default="0",
        show_default=True,
        help="With --rerun: which ones; any text. Choose it after the results were handed in.",
    ),
    click.option(
        "-e", "--env", "environment", help="With --rerun: another environment than the recorded."
    ),
    click.option(
        "--tasks",
        "task_dirs",
        multiple=True,
        type=PATH,
        metavar="DIR",
        help="With --rerun: where the tasks are now.",
    ),
    click.option(
        "-o",
        "--jobs-dir",
        type=PATH,
        default="reruns",
        show_default=True,
        metavar="DIR",
        help="With --rerun: where the new jobs are kept.",
    ),
    click.option(
        "--ledger",
        "ledger_dir",
        type=PATH,
        help="With --plan, or --rerun of a claim: the ledger.  [default: PROCTOR_LEDGER, ./ledger]",
    ),
    click.option(
        "-y", "--yes", is_flag=True, help="With --rerun: tasks may take variables of the host."
    ),
)


def rerun_options(function: Callable[..., int]) -> Callable[..., int]:
    """All of them, in their order."""
    for option in reversed(_OPTIONS):
        function = option(function)
    return function
