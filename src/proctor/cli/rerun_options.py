"""The options of `proctor audit --rerun`."""

from collections.abc import Callable

import click

from proctor.cli.options import PATH

_OPTIONS = (
    click.option(
        "--rerun",
        type=click.IntRange(min=1),
        metavar="N",
        help="Run N trials of a job or of a claim again.",
    ),
    click.option(
        "--seed",
        default="0",
        show_default=True,
        help="With --rerun: seed that selects the trials, any text. Choose it after the "
        "results were submitted.",
    ),
    click.option(
        "-e",
        "--env",
        "environment",
        help="With --rerun: use this environment instead of the recorded one.",
    ),
    click.option(
        "--tasks",
        "task_dirs",
        multiple=True,
        type=PATH,
        metavar="DIR",
        help="With --rerun: directory where the tasks are now.",
    ),
    click.option(
        "-o",
        "--jobs-dir",
        type=PATH,
        default="reruns",
        show_default=True,
        metavar="DIR",
        help="With --rerun: directory for the new jobs.",
    ),
    click.option(
        "--ledger",
        "ledger_dir",
        type=PATH,
        help="With --plan, or --rerun of a claim: ledger directory.  [default: PROCTOR_LEDGER,"
        " ./ledger]",
    ),
    click.option(
        "-y",
        "--yes",
        is_flag=True,
        help="With --rerun: allow tasks to read host environment variables.",
    ),
)


def rerun_options(function: Callable[..., int]) -> Callable[..., int]:
    """All of them, in their order."""
    for option in reversed(_OPTIONS):
        function = option(function)
    return function
