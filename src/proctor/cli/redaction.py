"""Secrets named on the command line by their environment variables."""

import os
from collections.abc import Sequence

import click

from proctor.errors import InputError
from proctor.ledger.sealing import SHORTEST_SECRET, Secrets
from proctor.traces.writer import Redactor

secret_option = click.option(
    "--secret-env",
    "secret_names",
    multiple=True,
    metavar="NAME",
    help="Environment variable whose value must not be written; can be repeated.",
)


def make_redactor(names: Sequence[str], salt: bytes | None = None) -> Redactor:
    """A redactor for the values of environment variables.

    Raises:
        InputError: there is no such variable, or its value is too short to be taken out.
    """
    for name in names:
        if name not in os.environ:
            raise InputError(f"--secret-env {name}: there is no such environment variable")
    try:
        return Redactor({name: os.environ[name] for name in names}, salt)
    except ValueError as error:
        raise InputError(f"--secret-env: {error}") from error


def read_secrets(names: Sequence[str]) -> Secrets:
    """The values of environment variables, none of which may be sealed.

    Raises:
        InputError: there is no such variable, or its value is too short to be a secret.
    """
    for name in names:
        if name not in os.environ:
            raise InputError(f"--secret-env {name}: there is no such environment variable")
        if len(os.environ[name]) < SHORTEST_SECRET:
            raise InputError(
                f"--secret-env {name}: its value has fewer than {SHORTEST_SECRET} characters, "
                "which occur everywhere"
            )
    return Secrets({name: os.environ[name] for name in names})
