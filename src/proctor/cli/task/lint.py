"""`proctor task lint`: checks task directories and datasets without running anything."""

import click

from proctor.audit.checks.checked import Checked
from proctor.audit.checks.tasks import check_dataset_directory, check_task_directory
from proctor.audit.file_kind import FileKind, find_file_kind
from proctor.cli.check import print_checked
from proctor.cli.options import PATH
from proctor.cli.output import json_option
from proctor.errors import InputError


@click.command("lint")
@click.argument("paths", nargs=-1, required=True, type=PATH)
@json_option
def command(paths: tuple[str, ...], as_json: bool) -> int:
    """Check tasks without running them: what is invalid, and what would be ignored.

    A PATH is a task, or a dataset: a directory of tasks, of which every one that harbor would
    silently skip is reported. `proctor task try` runs a task too.

    Exit code 1: a problem was found. 2: something is neither a task nor a dataset.

    Example: proctor task lint tasks
    """
    checked: list[Checked] = []
    refused: list[str] = []
    for path in paths:
        try:
            checked.append(_check(path))
        except InputError as error:
            refused.append(str(error))
    return print_checked(checked, refused, as_json=as_json)


def _check(path: str) -> Checked:
    match find_file_kind(path):
        case FileKind.TASK:
            return check_task_directory(path)
        case FileKind.DATASET:
            return check_dataset_directory(path)
        case other:
            raise InputError(f"{path}: a {other}; expected a task or a dataset of tasks")
