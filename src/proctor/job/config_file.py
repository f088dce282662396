"""Load a job's configuration: from `-c config.yaml`, `-c config.json`, or a job's config.json.

    load_job_config(path)      the file's values, checked, for flags to override
    make_job_config(values)    a JobConfig from such values
    make_settings(table)       our own settings in such a file
    find_redacted(config)      placeholders for secrets

As in harbor, `.yaml` is YAML, `.json` is JSON, and no other extension is accepted. Does not prompt
for secrets.
"""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pydantic_core
import yaml
from pydantic import ValidationError
from pydantic_core import ErrorDetails

from proctor.errors import ConfigError
from proctor.files import read_small
from proctor.harbor.configs import JobConfig
from proctor.harbor.env import is_redacted, is_sensitive
from proctor.harbor.later import JOB_KEYS
from proctor.job.settings import Settings
from proctor.sentence import count_of, reason_of, shown
from proctor.task.config import MAIN_SERVICE

# Most errors that are listed individually.
_MOST_SHOWN = 5
# Values that mean the same as no value, by key.
_SAME = {"service": (MAIN_SERVICE,)}


class RedactedValue(msgspec.Struct, frozen=True):
    """A variable whose value is redacted."""

    where: str
    """The table that contains it, such as `agents[0].env`."""
    name: str
    """The variable."""


def load_job_config(path: Path, notes: list[str] | None = None) -> dict[str, Any]:
    """Load and check a file; `notes` collects a sentence for every deprecated spelling."""
    values = _parse(path, _read(path))
    _check_later_keys(path, values)
    found: list[str] = []
    # A job without a name gets a generated one later.
    make_job_config({"job_name": "unnamed", **values}, where=str(path), notes=found)
    if notes is not None:
        notes.extend(f"{path}: {note}" for note in found)
    return values


def _check_later_keys(path: Path, values: Mapping[str, Any]) -> None:
    """Refuse keys of later releases of harbor: ignoring one would run another job."""
    for place, kind, table in _list_tables(values):
        for name, instead in JOB_KEYS[kind].items():
            # Their defaults change nothing.
            if table.get(name) not in (None, False, [], {}, *_SAME.get(name, ())):
                key = f"{place}.{name}" if place else name
                raise ConfigError(
                    f"{path}: {key} is a key of harbor 0.25 that proctor does not support; "
                    f"{instead or 'take it out'}"
                )


def _list_tables(
    value: object, place: str = "", kind: str = ""
) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    """List the tables that may have such keys: place, place without indices, and table."""
    if not isinstance(value, dict):
        return
    yield place, kind, value
    for below in JOB_KEYS:
        above, _, name = below.rpartition(".")
        if above != kind or not below:
            continue
        where = f"{place}.{name}" if place else name
        found = value.get(name)
        items = enumerate(found) if isinstance(found, list) else ()
        tables = {f"{where}[{index}]": item for index, item in items} or {where: found}
        for inner, table in tables.items():
            yield from _list_tables(table, inner, below)


def make_job_config(
    values: Mapping[str, Any], *, where: str, notes: list[str] | None = None
) -> JobConfig:
    """Make a configuration from values; `where` is the prefix of error messages.

    Raises:
        ConfigError: a value is invalid for its key.
    """
    try:
        return JobConfig.model_validate(dict(values), context=notes)
    except ValidationError as error:
        raise ConfigError(f"{where}: {_render_faults(error)}") from error


def make_settings(table: Mapping[str, Any], where: str) -> Settings:
    """Make our own settings from the table `proctor` of a job file.

    Raises:
        ConfigError: a key is unknown, or a value is invalid for its key.
    """
    try:
        settings = Settings.model_validate(dict(table))
    except ValidationError as error:
        raise ConfigError(f"{where}: {_render_faults(error)}") from error
    # What it does not have again was not read.
    written = settings.model_dump(mode="json")
    unknown = [key for key in _list_keys(table) if key not in set(_list_keys(written))]
    if unknown:
        raise ConfigError(f"{where}: {unknown[0]} is not a setting; docs/guide/run.md lists them")
    return settings


def _list_keys(table: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    for key, value in table.items():
        yield f"{prefix}{key}"
        if key in ("models", "trial_limits", "job_limits") and isinstance(value, dict):
            yield from _list_keys(value, f"{prefix}{key}.")


def find_redacted(config: JobConfig) -> list[RedactedValue]:
    """Find the variables whose value is a placeholder for a secret, which must never be used."""
    return [
        RedactedValue(where, name)
        for where, env in _env_tables(config)
        for name, value in env.items()
        if is_sensitive(name) and is_redacted(value)
    ]


def fill_redacted(config: JobConfig, secrets: Mapping[str, str]) -> JobConfig:
    """Replace redacted values by those in `secrets`, as far as it has them."""
    filled = config.model_copy(deep=True)
    tables = dict(_env_tables(filled))
    for redacted in find_redacted(filled):
        if redacted.name in secrets:
            tables[redacted.where][redacted.name] = secrets[redacted.name]
    return filled


def _env_tables(config: JobConfig) -> Iterator[tuple[str, dict[str, str]]]:
    for index, agent in enumerate(config.agents):
        yield f"agents[{index}].env", agent.env
    yield "environment.env", config.environment.env
    yield "verifier.env", config.verifier.env


def _read(path: Path) -> str:
    try:
        return read_small(str(path)).decode("utf-8-sig")
    except FileNotFoundError as error:
        raise ConfigError(f"{path}: no such file; expected a job configuration") from error
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path}: cannot be read: {reason_of(error)}") from error


def _parse(path: Path, text: str) -> dict[str, Any]:
    if path.suffix not in _PARSERS:
        found = f"ends in {path.suffix!r}" if path.suffix else "has no suffix"
        raise ConfigError(f"{path}: its name {found}; expected .yaml or .json, as harbor does")
    try:
        values = _PARSERS[path.suffix](text)
    except yaml.YAMLError as error:
        raise ConfigError(f"{path}: not YAML: {_render_yaml_fault(error)}") from error
    except (ValueError, RecursionError) as error:
        kind = path.suffix[1:].upper()
        raise ConfigError(f"{path}: not {kind}: {_first_line(error)}") from error
    if not isinstance(values, dict) or not all(isinstance(key, str) for key in values):
        raise ConfigError(
            f"{path}: holds {shown(values)}; expected a table of keys such as n_attempts, agents "
            "and datasets"
        )
    return values


def _render_yaml_fault(error: yaml.YAMLError) -> str:
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or _first_line(error)
    return f"{problem} in line {mark.line + 1}, column {mark.column + 1}" if mark else problem


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0] or type(error).__name__


_PARSERS: dict[str, Callable[[str], Any]] = {
    ".yaml": yaml.safe_load,
    ".json": pydantic_core.from_json,
}


def _render_faults(error: ValidationError) -> str:
    faults = error.errors(include_url=False, include_context=False)
    sentences = [_render_fault(fault) for fault in faults[:_MOST_SHOWN]]
    if len(faults) > _MOST_SHOWN:
        sentences.append(f"and {count_of(len(faults) - _MOST_SHOWN, 'more fault')}")
    return "; ".join(sentences)


def _render_fault(fault: ErrorDetails) -> str:
    what = fault["msg"].removeprefix("Value error, ")
    key = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in fault["loc"])
    key = key.removeprefix(".") or "the whole of it"
    if fault["type"] in ("missing", "value_error"):
        return f"{key}: {what}"
    hint = "; write it in quotes" if _wants_quotes(fault) else ""
    return f"{key} is {_render_input(key, fault['input'])}: {what}{hint}"


def _render_input(key: str, value: object) -> str:
    # The message must not reveal a secret that has the wrong type.
    return f"a {type(value).__name__}" if is_sensitive(key) else shown(value)


def _wants_quotes(fault: ErrorDetails) -> bool:
    return fault["type"] == "string_type" and isinstance(fault["input"], bool | int | float)
