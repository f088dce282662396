"""Parses `NAME=VALUE` on the command line as harbor does."""

import json
import re
from collections.abc import Sequence

import click

from proctor.errors import InputError
from proctor.task.environment import Tpu

_NAME = re.compile(r"[A-Za-z_]\w{0,63}")
# Options whose values are environment variables.
_VARIABLES = ("--ae", "--ve")
_WORDS = {"True": True, "False": False, "None": None}


def parse_arguments(option: str, pairs: Sequence[str]) -> dict[str, object]:
    """Parse arguments for a class: each value is JSON, else True, False or None, else text."""
    return {name: _parse_value(value) for name, value in _split(option, pairs)}


def parse_variables(option: str, pairs: Sequence[str]) -> dict[str, str]:
    """Parse environment variables: each value is text."""
    return dict(_split(option, pairs))


def parse_tpu(text: str) -> Tpu:
    """Parse a TPU slice.

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
            problem = _describe(name, is_variable=option in _VARIABLES)
            raise click.UsageError(f"{option}: {problem}; expected {option} NAME=VALUE")
        # harbor strips both as well.
        found.append((name.strip(), value.strip()))
    return found


def _describe(text: str, *, is_variable: bool) -> str:
    # A text without `=` may be a secret: only what looks like a name is shown.
    if _NAME.fullmatch(text):
        hint = f" ({text}='${{{text}}}' would pass on the host's)" if is_variable else ""
        return f"{text} has no value{hint}"
    return "a text without = after a name"


def _parse_value(text: str) -> object:
    try:
        value: object = json.loads(text)
    except (ValueError, RecursionError):
        # Python spellings of constants, which harbor accepts as well as JSON.
        return _WORDS.get(text, text)
    return value
