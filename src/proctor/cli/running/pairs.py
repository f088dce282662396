"""`NAME=VALUE` as it is written on the command line, read as harbor reads it."""

import json
import re
from collections.abc import Sequence

import click

from proctor.errors import InputError
from proctor.task.environment import Tpu

_NAME = re.compile(r"[A-Za-z_]\w{0,63}")
_VARIABLES = ("--ae", "--ve")
"""Options whose values are environment variables."""
_WORDS = {"True": True, "False": False, "None": None}


def parse_arguments(option: str, pairs: Sequence[str]) -> dict[str, object]:
    """Arguments for a class: each value JSON, else True, False or None, else text.

    Raises:
        UsageError: one is no pair.
    """
    return {name: _parse_value(value) for name, value in _split(option, pairs)}


def parse_variables(option: str, pairs: Sequence[str]) -> dict[str, str]:
    """Environment variables: each value is text, whatever it looks like.

    Raises:
        UsageError: one is no pair.
    """
    return dict(_split(option, pairs))


def parse_tpu(text: str) -> Tpu:
    """A TPU slice.

    Raises:
        InputError: it is none.
    """
    kind, _, topology = (part.strip() for part in text.partition("="))
    try:
        return Tpu(type=kind, topology=topology)
    except ValueError as error:
        raise InputError(
            f"--override-tpu is {text!r}; expected TYPE=TOPOLOGY, such as v6e=2x4"
        ) from error


def _split(option: str, pairs: Sequence[str]) -> list[tuple[str, str]]:
    found = []
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name.strip():
            said = _describe(name, is_variable=option in _VARIABLES)
            raise click.UsageError(f"{option}: {said}; expected {option} NAME=VALUE")
        found.append((name.strip(), value.strip()))
    return found


def _describe(text: str, *, is_variable: bool) -> str:
    # A lone text may be a secret: only what looks like a name is shown.
    if _NAME.fullmatch(text):
        hint = f" ({text}='${{{text}}}' would pass on the host's)" if is_variable else ""
        return f"{text} has no value{hint}"
    return "a text without = after a name"


def _parse_value(text: str) -> object:
    try:
        value: object = json.loads(text)
    except (ValueError, RecursionError):
        return _WORDS.get(text, text)
    return value
