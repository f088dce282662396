"""Tables of environment variables: templates for host variables, and redaction of secrets.

The rules are harbor's. Only writing a table reads the host's variables, because a secret that
equals one of them is written as a template.
"""

import os
import re
from collections.abc import Mapping
from typing import Annotated, Final, NamedTuple

from pydantic import PlainSerializer, SerializationInfo

WITH_SECRETS: Final = "with secrets"
"""Serialization context for passing a config to another process instead of a file."""

_TEMPLATE = re.compile(r"\$\{([^}:]+)(?::-(.*))?\}")
_REDACTED = re.compile(r"\*{4}|.{4}\*{4}.{3}", re.DOTALL)
_SENSITIVE = re.compile(r"KEY|SECRET|TOKEN|PASSWORD|CREDENTIAL|AUTH", re.IGNORECASE)


def is_template(value: str) -> bool:
    """Whether a value refers to a host variable: `${NAME}` or `${NAME:-default}`."""
    return _TEMPLATE.fullmatch(value) is not None


class Template(NamedTuple):
    """A reference to a host variable."""

    name: str
    default: str | None


def find_template(value: str) -> Template | None:
    """Parse a template; None for any other value."""
    found = _TEMPLATE.fullmatch(value)
    return Template(found[1], found[2]) if found else None


def is_sensitive(name: str) -> bool:
    """Whether a variable with this name is treated as a secret."""
    return _SENSITIVE.search(name) is not None


def resolve_env(env: Mapping[str, str], host: Mapping[str, str]) -> dict[str, str]:
    """Replace each template with the host's value, else with its default."""
    return {name: _resolve(value, host) for name, value in env.items()}


def _resolve(value: str, host: Mapping[str, str]) -> str:
    found = _TEMPLATE.fullmatch(value)
    if found is None:
        return value
    name, default = found.groups()
    if name in host:
        return host[name]
    if default is None:
        raise ValueError(f"Environment variable '{name}' not found in host environment")
    return default


def is_redacted(value: str) -> bool:
    """Whether a value is the redacted form of a secret."""
    return _REDACTED.fullmatch(value) is not None


def written_env(env: Mapping[str, str], host: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The variables as they may be written to a file."""
    return {name: written_value(name, value, host) for name, value in env.items()}


def written_value(name: str, value: str, host: Mapping[str, str]) -> str:
    """One value as it may be written to a file."""
    if is_template(value) or not is_sensitive(name):
        return value
    if host.get(name) == value:
        return f"${{{name}}}"
    return "****" if len(value) <= 8 else f"{value[:4]}****{value[-3:]}"


def _serialize(env: dict[str, str], info: SerializationInfo) -> dict[str, str]:
    return env if info.context == WITH_SECRETS else written_env(env)


type Env = Annotated[dict[str, str], PlainSerializer(_serialize)]


def written_assignment(text: str, host: Mapping[str, str] = os.environ) -> str:
    """`NAME=VALUE` as it may be written to a file; any other text is unchanged."""
    name, equals, value = text.partition("=")
    if not equals:
        return text
    name, value = name.strip(), value.strip()
    return f"{name}={written_value(name, value, host)}"
