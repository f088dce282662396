"""Reads the files of `proctor run`: a job's config and .env files. Unknown keys are reported."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import UnionType
from typing import get_args, get_origin

from pydantic import BaseModel

from proctor.errors import ConfigError, InputError
from proctor.files import read_small
from proctor.harbor.configs import JobConfig
from proctor.harbor.later import JOB_KEYS
from proctor.job.config_file import load_job_config, make_job_config
from proctor.sentence import reason_of, shown

# Parsing of .env files as python-dotenv does, which harbor uses.
#
# Values may be quoted, `export` may precede a name, `#` begins a comment. `${NAME}` is expanded,
# also within single quotes. An invalid line is an error here, but only a warning in that library.


_BLANK = re.compile(r"\s*")
_COMMENT_LINE = re.compile(r"#[^\r\n]*")
_NAME = re.compile(r"(?:export[^\S\r\n]+)?(?:'([^']+)'|(?!')([^=#\s]+))[^\S\r\n]*")
_EQUALS = re.compile(r"=([^\S\r\n]*)")
_SINGLE = re.compile(r"'((?:\\.|[^'\\])*)'", re.DOTALL)
_DOUBLE = re.compile(r'"((?:\\.|[^"\\])*)"', re.DOTALL)
_PLAIN = re.compile(r"[^\r\n]*")
_END = re.compile(r"(?:[^\S\r\n]*#[^\r\n]*)?[^\S\r\n]*(?:\r\n|\n|\r|$)")
_SINGLE_ESCAPE = re.compile(r"\\([\\'])")
_DOUBLE_ESCAPE = re.compile(r"\\([\\'\"abfnrtv])")
_ESCAPED = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_REFERENCE = re.compile(r"\$\{([^}:]*)(?::-([^}]*))?\}")


def parse_env_file(text: str, host: Mapping[str, str], where: str) -> dict[str, str]:
    """Parse variables; `${NAME}` in a value is an earlier one, else the host's, else empty."""
    text = text.removeprefix("\ufeff")
    variables: dict[str, str] = {}
    at = _skip(_BLANK, text, 0)
    while at < len(text):
        at = _read_line(text, at, variables, host, where)
        at = _skip(_BLANK, text, at)
    return variables


def _read_line(
    text: str, at: int, variables: dict[str, str], host: Mapping[str, str], where: str
) -> int:
    """Parse one line into `variables`; returns where the next line begins."""
    if comment := _COMMENT_LINE.match(text, at):
        return comment.end()
    name = _NAME.match(text, at)
    if name is None:
        raise _refuse(text, at, where)
    value, after = _read_value(text, name.end())
    end = _END.match(text, after)
    if end is None:
        raise _refuse(text, at, where)
    if value is not None:
        known = {**host, **variables}
        variables[name[1] or name[2]] = _REFERENCE.sub(
            lambda found: known.get(found[1], found[2] or ""), value
        )
    return end.end()


def _read_value(text: str, at: int) -> tuple[str | None, int]:
    """A value and its end; None for a name without a value."""
    equals = _EQUALS.match(text, at)
    if equals is None:
        return None, at
    at = equals.end()
    if equals[1] and text[at : at + 1] == "#":
        return "", at
    if quoted := _SINGLE.match(text, at):
        return _SINGLE_ESCAPE.sub(r"\1", quoted[1]), quoted.end()
    if quoted := _DOUBLE.match(text, at):
        return _DOUBLE_ESCAPE.sub(lambda e: _ESCAPED.get(e[1], e[1]), quoted[1]), quoted.end()
    if text[at : at + 1] in ("'", '"'):
        return None, at  # an unterminated quote; what follows is not a line end
    end = _skip(_PLAIN, text, at)
    return re.sub(r"\s+#.*", "", text[at:end]).rstrip(), end


def _skip(pattern: re.Pattern[str], text: str, at: int) -> int:
    found = pattern.match(text, at)
    return found.end() if found else at


def _refuse(text: str, at: int, where: str) -> InputError:
    # The line may contain a secret: only its number is shown.
    line = text.count("\n", 0, at) + 1
    return InputError(f"{where}:{line}: not a variable; expected NAME=VALUE")


# Keys that no field has, but that are read.
_OLD_KEYS = frozenset(
    {
        "orchestrator",
        "datasets.registry",
        "environment.mounts_json",
        "environment.suppress_override_warnings",
    }
)
# Keys of later releases with a value that changes nothing; any other value is refused.
_LATER_KEYS = frozenset(
    f"{table}.{key}" if table else key for table, keys in JOB_KEYS.items() for key in keys
)


def load_base_config(
    path: Path, default_name: str
) -> tuple[JobConfig, dict[str, object], list[str]]:
    """Load the job that a file describes, its own settings (`proctor`), and notes about the file.

    Raises:
        ConfigError: its settings are not a table.
    """
    notes: list[str] = []
    values = load_job_config(path, notes)
    table = values.pop("proctor", {})
    if not isinstance(table, dict):
        raise ConfigError(f"{path}: proctor is {shown(table)}; expected a table of settings")
    config = make_job_config({"job_name": default_name, **values}, where=str(path))
    notes += [f"{path}: {key} is not a key of a job config; ignored" for key in list_unread(values)]
    return config, table, notes


def load_env_file(path: Path, host: Mapping[str, str]) -> dict[str, str]:
    """Load the variables of a .env file.

    Raises:
        InputError: unreadable, or a line that is no variable.
    """
    try:
        text = read_small(str(path)).decode()
    except (OSError, ValueError) as error:
        raise InputError(
            f"{path}: cannot be read: {reason_of(error)}; expected variables, NAME=VALUE"
        ) from error
    return parse_env_file(text, host, str(path))


def list_unread(values: Mapping[str, object]) -> list[str]:
    """Keys of a job's config that nothing reads; most are typing errors."""
    return [key for key in _find_unread(JobConfig, values) if key not in _OLD_KEYS | _LATER_KEYS]


def _find_unread(
    model: type[BaseModel], table: Mapping[str, object], prefix: str = ""
) -> Iterator[str]:
    for key, value in table.items():
        field = model.model_fields.get(key)
        if field is None:
            yield f"{prefix}{key}"
        elif inner := _find_model(field.annotation):
            values = value if isinstance(value, list) else [value]
            for each in values:
                if isinstance(each, dict):
                    yield from _find_unread(inner, each, f"{prefix}{key}.")


def _find_model(annotation: object) -> type[BaseModel] | None:
    """The model of a field, alone or in a list; None for anything else."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    if get_origin(annotation) not in (list, UnionType):
        return None
    models = filter(None, map(_find_model, get_args(annotation)))
    return next(models, None)
