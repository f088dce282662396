"""Secrets that must not be sealed, named by their environment variables."""

import os
from collections.abc import Sequence

from proctor.errors import InputError
from proctor.ledger.sealing import SHORTEST_SECRET, Secrets


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
