"""Redacts secret variables of an agent from what is recorded of its run."""

from collections.abc import Mapping

from proctor.harbor.env import is_sensitive
from proctor.traces.writer import Redactor

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
