"""Parses an agent's kwargs (`--ak`, or `kwargs` of a config); opens the trajectory it writes."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, StringConstraints, ValidationError

from proctor.errors import AgentError
from proctor.files import read_small
from proctor.harbor.configs import AgentConfig
from proctor.harbor.env import is_sensitive
from proctor.traces.writer import Redactor, TrajectoryWriter
from proctor.trial.agent import AgentOrder


class Settings(BaseModel):
    """The kwargs of one built-in agent."""

    # Unknown kwargs are errors: a typo would silently run the agent with defaults.
    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)


def _as_typed(value: object) -> object:
    # The command line parses `--ak command=true` as a boolean, but `true` is a command here.
    return str(value).lower() if isinstance(value, bool) else value


type ShellCommand = Annotated[
    str, BeforeValidator(_as_typed), StringConstraints(min_length=1, pattern=r"\S")
]
"""Text for a shell."""


def parse_settings[S: Settings](kind: type[S], config: AgentConfig) -> S:
    """Parse an agent's kwargs.

    Raises:
        AgentError: one is missing, unknown or of the wrong type; the message lists all kwargs.
    """
    try:
        return kind.model_validate(config.kwargs)
    except ValidationError as error:
        faults = "; ".join(
            _describe(fault["loc"], fault["type"], fault["msg"], config.kwargs)
            for fault in error.errors()
        )
        raise AgentError(
            f"agent {config.name!r}: {faults}; its kwargs are {_list_fields(kind)}, given as "
            "--ak NAME=VALUE"
        ) from error


def _describe(
    where: tuple[int | str, ...], kind: str, message: str, kwargs: dict[str, object]
) -> str:
    name = ".".join(map(str, where))
    if not name:
        return message.removeprefix("Value error, ")
    if kind == "missing":
        return f"{name} is missing"
    if kind == "extra_forbidden":
        return f"{name} is unknown"
    return f"{name} is {kwargs.get(name)!r}: {message}"


def _list_fields(kind: type[Settings]) -> str:
    fields = kind.model_fields.items()
    return ", ".join(
        f"{name} (required)" if field.is_required() else name for name, field in fields
    )


def load_text(path: Path) -> str:
    """Load the text of a file that a kwarg names.

    Raises:
        AgentError: it cannot be read, or is not UTF-8.
    """
    try:
        return read_small(str(path)).decode()
    except OSError as error:
        raise AgentError(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise AgentError(f"{path}: not UTF-8: {error.reason} at offset {error.start}") from error


def warn_of_kwargs(order: AgentOrder, name: str) -> None:
    """Log a warning that kwargs have no effect. They are no error: harbor ignores them too."""
    if order.config.kwargs:
        given = ", ".join(sorted(order.config.kwargs))
        order.logger.warning("agent %s takes no kwargs; ignored: %s", name, given)


TRAJECTORY = "trajectory.jsonl"


def open_trace(logs_dir: Path, redactor: Redactor) -> TrajectoryWriter:
    """Open an agent's trajectory in <trial>/agent, to create it or append to it."""
    path = logs_dir / TRAJECTORY
    # If the environment mounts this directory, the agent may have left a symlink to a host file.
    if path.is_symlink():
        path.unlink()
    return TrajectoryWriter(path, secrets=redactor)


# Characters. Replacing shorter values would garble the text, and they are hardly secrets.
_SHORTEST = 4


def redact_env(env: Mapping[str, str]) -> Redactor:
    """Return a redactor for the values of variables with secret names, such as *_API_KEY."""
    return Redactor(
        {
            name: value
            for name, value in env.items()
            # harbor decides by the name which variables are secret.
            if is_sensitive(name) and len(value) >= _SHORTEST
        }
    )
