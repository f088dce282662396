"""Secrets among an agent's variables, taken out of what is written down about its run."""

from collections.abc import Mapping

from proctor.harbor.env import is_sensitive
from proctor.traces.writer import Redactor

_SHORTEST = 4
"""Characters; to replace a shorter value would shred the text."""


def redact_env(env: Mapping[str, str]) -> Redactor:
    """What replaces the values of variables whose names say that they are secret."""
    return Redactor(
        {
            name: value
            for name, value in env.items()
            if is_sensitive(name) and len(value) >= _SHORTEST
        }
    )
