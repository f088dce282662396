"""Parse task.toml to a config, or to the problems that prevent it.

Each problem is a `Diagnostic`. At a first problem whose code is in `ENDS_JOB`, harbor aborts the
whole job; at any other it skips the task.
"""

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
from pydantic import ValidationError
from pydantic_core import ErrorDetails

from proctor.diagnostic import Diagnostic
from proctor.errors import TaskError
from proctor.files import read_small
from proctor.sentence import render_limit
from proctor.task.config import TaskConfig
from proctor.task.environment import ENDS_HARBOR
from proctor.task.presence import is_file
from proctor.task.table import UnreadKey, find_unread_keys

ENDS_JOB = frozenset(
    {"config-not-utf8", "config-not-parsable", "config-endless-size", "unreadable"}
)
"""Codes of problems at which harbor does not skip the task but aborts the whole job."""
LATER_KEY = "later-key"
"""Code of a note about a key that changes what a run does and is not supported: `proctor run`
refuses the task, everything else reads it."""

_LARGEST = 1 << 20
# Parts of one dotted key or header: tomllib takes quadratic time in them.
_MOST_PARTS = 64
_LONG_KEY = re.compile(
    r"""(?:^|[{,])[ \t]*+\[{0,2}[ \t]*+"""
    r"""(?:(?:[\w-]++|"(?:[^"\\\n]|\\.)*+"|'[^'\n]*+')[ \t]*+\.[ \t]*+)"""
    rf"""{{{_MOST_PARTS}}}""",
    re.MULTILINE,
)
# Problems and keys that are listed one by one, and characters shown of a value or key.
_MOST_SHOWN = 100
_LONGEST_SHOWN = 300
_PLACE = re.compile(r" \(at (?:line (\d+), column \d+|end of document)\)$")


class ParsedConfig(msgspec.Struct, frozen=True):
    """The result of parsing task.toml."""

    config: TaskConfig | None
    """None if there is a problem."""
    diagnostics: tuple[Diagnostic, ...] = ()
    """The problems; or, for a valid config, notes about what is ignored in it."""


def read_text(path: Path, largest: int | None = None) -> str:
    """Read a text file as harbor does: UTF-8, every kind of line end becomes a newline.

    Raises:
        OSError: unreadable, not a regular file, or too large.
        UnicodeDecodeError: not UTF-8.
    """
    if not is_file(path):
        # Reading a pipe would give no bytes and no error.
        raise OSError(0, "is not a regular file", str(path))
    data = read_small(str(path))
    if largest is not None and len(data) > largest:
        raise OSError(0, f"is larger than {render_limit(largest)}", str(path))
    return data.decode().replace("\r\n", "\n").replace("\r", "\n")


def load_config(path: Path) -> ParsedConfig:
    """Load the config in a file."""
    try:
        text = read_text(path, _LARGEST)
    except OSError as error:
        return _fault("config-unreadable", f"task.toml cannot be read: it {_reason(error)}")
    except UnicodeDecodeError as error:
        found = f"byte 0x{error.object[error.start]:02x} at offset {error.start}"
        message = f"task.toml is not UTF-8 ({found}); harbor aborts the whole job on it"
        return _fault("config-not-utf8", message)
    return parse_config(text)


def parse_config(text: str) -> ParsedConfig:
    """Parse the text of task.toml."""
    try:
        _check_keys(text)
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        place = _PLACE.search(str(error))
        what = _PLACE.sub("", str(error))
        line = int(place[1]) if place and place[1] else None
        return _fault("config-not-toml", f"task.toml is not TOML: {what}", line)
    except TaskError as error:
        return _fault("config-too-large", str(error))
    except (ValueError, RecursionError):
        message = (
            "task.toml has a number too long or values nested too deep to parse; "
            "harbor aborts the whole job on it"
        )
        return _fault("config-not-parsable", message)
    return _validate(data)


def _validate(data: dict[str, Any]) -> ParsedConfig:
    try:
        config = TaskConfig.model_validate(data)
    except ValidationError as error:
        details = error.errors(include_url=False, include_context=False)
        # harbor checks these first, so they decide what happens to the job.
        details.sort(key=lambda detail: detail["type"] != ENDS_HARBOR)
        return ParsedConfig(None, tuple(map(_render_detail, details[:_MOST_SHOWN])))
    return ParsedConfig(config, tuple(_find_unread(data)))


def _check_keys(text: str) -> None:
    if found := _LONG_KEY.search(text):
        line = text.count("\n", 0, found.start()) + 1
        raise TaskError(f"task.toml has a key of more than {_MOST_PARTS} parts in line {line}")


def _render_detail(detail: ErrorDetails) -> Diagnostic:
    path = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in detail["loc"])
    what = _shorten(detail["msg"].removeprefix("Value error, "))
    if detail["type"] == ENDS_HARBOR:
        return Diagnostic("config-endless-size", f"task.toml: {what}")
    found = _render_input(detail["input"])
    return Diagnostic("config-bad-value", f"task.toml: {path.lstrip('.') or 'it'}{found}: {what}")


def _shorten(text: str) -> str:
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}…"


def _render_input(value: object) -> str:
    """Show the value found, if it is short; tables can be long and deep."""
    if isinstance(value, str | int | float) and len(text := repr(value)) <= _LONGEST_SHOWN:
        return f" is {text}"
    return ""


def _find_unread(data: dict[str, Any]) -> Iterator[Diagnostic]:
    unread = list(find_unread_keys(TaskConfig, data))
    for key in unread:
        # All are listed, however many unknown ones there are: they decide whether a task is run.
        if key.effect is not None:
            yield Diagnostic(LATER_KEY, _render_later(key), is_problem=False)
    unknown = [key for key in unread if key.effect is None]
    for key in unknown[:_MOST_SHOWN]:
        hint = f"; did you mean {key.meant}?" if key.meant else ""
        message = f"task.toml: {_shorten(key.path)} is not a key that harbor knows and is ignored"
        yield Diagnostic("unknown-key", f"{message}{hint}", is_problem=False)
    if rest := len(unknown[_MOST_SHOWN:]):
        message = f"task.toml: {rest} more keys are unknown to harbor and ignored"
        yield Diagnostic("unknown-key", message, is_problem=False)
    yield from _find_old(data)


def _render_later(key: UnreadKey) -> str:
    return (
        f"task.toml: {_shorten(key.path)} is a key of harbor 0.25 (schema version 1.4) that "
        f"proctor does not support: {key.effect}"
    )


def _find_old(data: dict[str, Any]) -> Iterator[Diagnostic]:
    if "version" in data and "schema_version" in data:
        message = "task.toml: version is ignored, because schema_version is set too"
        yield Diagnostic("unknown-key", message, is_problem=False)
    for path, table in _find_environments(data):
        yield from _find_old_in(table, path)


def _find_environments(data: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """List every environment of a valid config, with its dotted path."""
    places = [("", data), *((f"steps[{n}].", step) for n, step in enumerate(data.get("steps", ())))]
    for prefix, place in places:
        if "environment" in place.get("verifier", {}):
            yield f"{prefix}verifier.environment", place["verifier"]["environment"]
    if "environment" in data:
        yield "environment", data["environment"]


def _find_old_in(table: dict[str, Any], path: str) -> Iterator[Diagnostic]:
    old = {"memory": "memory_mb", "storage": "storage_mb", "allow_internet": "network_mode"}
    for key, new in old.items():
        if key not in table:
            continue
        ignored = key != "allow_internet" and not isinstance(table[key], str)
        what = "is ignored, because it is not text such as '2G'" if ignored else "is an old key"
        message = f"task.toml: {path}.{key} {what}; use {new}"
        yield Diagnostic("deprecated-key", message, is_problem=False)


def _fault(code: str, message: str, line: int | None = None) -> ParsedConfig:
    return ParsedConfig(None, (Diagnostic(code, message, line),))


def _reason(error: OSError) -> str:
    text = error.strerror or "cannot be read"
    return text if error.errno == 0 else f"gives {text!r}"
