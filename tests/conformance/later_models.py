"""The keys of every file that a person writes for harbor, and the options of its commands.

    python -m tests.conformance.later_models

Prints those of the harbor in this process as JSON. For harbor 0.25.0 that is
tests/data/harbor-0.25/keys.json: see `tests.conformance.later.run_with`.
"""

import json
import sys
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from tests.conformance.theirs import harbor_module

KEYS = Path(__file__).resolve().parent.parent / "data" / "harbor-0.25" / "keys.json"

type Keys = dict[str, list[str]]


def list_keys(model: Any) -> Keys:
    """The keys of a model by table: its place without indices, "" for the whole."""
    found: dict[str, set[str]] = {}
    _collect(model, "", found)
    return {place: sorted(names) for place, names in sorted(found.items())}


def _collect(model: Any, place: str, found: dict[str, set[str]]) -> None:
    fields = _fields(model)
    found.setdefault(place, set()).update(fields)
    for name, annotation in fields.items():
        for inner in _tables(annotation):
            _collect(inner, f"{place}.{name}".lstrip("."), found)


def _fields(model: Any) -> dict[str, Any]:
    if typing.is_typeddict(model):
        return typing.get_type_hints(model)
    # pydantic leaves names of later classes in its own annotations as text.
    hints = typing.get_type_hints(model)
    return {name: hints[name] for name in model.model_fields}


def _tables(annotation: Any) -> Iterator[Any]:
    """The models and typed dicts in an annotation: alone, optional, or as elements."""
    is_model = isinstance(annotation, type) and issubclass(annotation, BaseModel)
    if is_model or typing.is_typeddict(annotation):
        yield annotation
    for part in typing.get_args(annotation):
        yield from _tables(part)


def list_options(*words: str) -> list[str]:
    """The options of one of harbor's commands, hidden ones too."""
    command = harbor_module("typer.main").get_command(harbor_module("harbor.cli.main").app)
    for word in words:
        command = command.commands[word]
    return sorted(
        {option for each in command.params for option in (*each.opts, *each.secondary_opts)}
        - {each.name for each in command.params}
    )


def describe() -> dict[str, Any]:
    """Everything of the harbor in this process."""
    return {
        # A hosted job has all keys of a job, and those that harbor's own servers read.
        "job": list_keys(harbor_module("harbor.hosted.config").HostedJobConfig),
        "trial": list_keys(harbor_module("harbor.models.trial.config").TrialConfig),
        "task": list_keys(harbor_module("harbor.models.task.config").TaskConfig),
        "options": {
            "run": list_options("run"),
            "job start": list_options("job", "start"),
            "job resume": list_options("job", "resume"),
        },
    }


def main() -> None:
    """Print it."""
    json.dump(describe(), sys.stdout, indent=1)
    sys.stdout.write("\n")


if __name__ == "__main__":
    main()
