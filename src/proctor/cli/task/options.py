"""Options of the commands that run a task in its environment, and the task itself."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import click

from proctor.cli.options import PATH
from proctor.cli.running.config import is_task
from proctor.cli.running.images import find_default_base
from proctor.cli.running.options import OFFLINE_HELP
from proctor.errors import InputError
from proctor.harbor.configs import EnvironmentConfig

_OPTIONS = (
    click.argument("task", type=PATH),
    click.option(
        "-e",
        "--env",
        "environment",
        type=click.Choice(["sandbox", "docker"]),
        default="sandbox",
        show_default=True,
        help="Environment.",
    ),
    click.option(
        "--base",
        metavar="host|IMAGE",
        help="Root file system of the sandbox, also if the task's image was neither pulled nor "
        "imported; then none is pulled.  [default: PROCTOR_BASE]",
    ),
    click.option("--offline", is_flag=True, help=OFFLINE_HELP),
    click.option(
        "--builder",
        type=click.Choice(["auto", "sandbox", "buildah", "docker"]),
        help="Program that builds a Dockerfile for the sandbox.  [default: auto, the sandbox]",
    ),
    click.option(
        "-y", "--yes", is_flag=True, help="Allow the task to read the host variables it names."
    ),
)


def task_options[F: Callable[..., Any]](function: F) -> F:
    """Add the task, and the options of its environment."""
    for add in reversed(_OPTIONS):
        function = add(function)
    return function


def find_task(path: str) -> Path:
    """The directory of one task, valid or not.

    Raises:
        InputError: the path is no task.
    """
    directory = Path(path)
    if is_task(directory, verifying=True):
        return directory
    if not directory.is_dir():
        found = "not a directory" if directory.exists() else "no such directory"
        raise InputError(f"{path}: {found}; expected a task; `proctor task new NAME` creates one")
    inner = sorted(each.parent for each in directory.glob("*/task.toml"))
    meant = f", such as {inner[0]}" if inner else "; `proctor task new NAME` creates one"
    raise InputError(f"{path}: no task.toml in it; expected one task{meant}")


def make_environment(
    name: str, base: str | None, builder: str | None, env: Mapping[str, str]
) -> EnvironmentConfig:
    """The environment that the options and PROCTOR_BASE select.

    Raises:
        UsageError: an option of the sandbox for another environment.
    """
    given = {"base": base, "builder": builder}
    kwargs = {option: value for option, value in given.items() if value is not None}
    if kwargs and name != "sandbox":
        raise click.UsageError(f"--{next(iter(kwargs))} requires --env sandbox")
    default = find_default_base(env) if name == "sandbox" else None
    if default is not None:
        kwargs.setdefault("base", default)
    return EnvironmentConfig.model_validate({"type": name, "kwargs": kwargs})
