"""Files that `proctor run` is given: a job's config and variables. Nothing is written.

Keys that nobody reads are named.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from types import UnionType
from typing import get_args, get_origin

from pydantic import BaseModel

from proctor.cli.running.env_file import parse_env_file
from proctor.errors import InputError
from proctor.files import read_small
from proctor.harbor.configs import JobConfig
from proctor.job.config_file import load_job_config, make_job_config
from proctor.sentence import reason_of

_OLD_KEYS = frozenset(
    {
        "orchestrator",
        "datasets.registry",
        "environment.mounts_json",
        "environment.suppress_override_warnings",
    }
)
"""Keys that no field has, and that are read all the same."""


def load_base_config(path: Path, default_name: str) -> tuple[JobConfig, list[str]]:
    """The job that a file describes, and what the person should know of the file.

    Raises:
        ConfigError: unreadable, or no such description.
    """
    notes: list[str] = []
    values = load_job_config(path, notes)
    config = make_job_config({"job_name": default_name, **values}, where=str(path))
    notes += [f"{path}: {key} is no key of a job; ignored" for key in find_unread(values)]
    return config, notes


def load_env_file(path: Path, host: Mapping[str, str]) -> dict[str, str]:
    """The variables in a .env file.

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


def find_unread(values: Mapping[str, object]) -> list[str]:
    """The keys of a job's config that nobody reads; most are slips of the pen."""
    return [key for key in _find_unread(JobConfig, values) if key not in _OLD_KEYS]


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
    """The model that a field holds, alone or in a list; None for anything else."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    if get_origin(annotation) not in (list, UnionType):
        return None
    models = filter(None, map(_find_model, get_args(annotation)))
    return next(models, None)
