"""Checks for harbor's own agents, which the extra `harbor` installs.

Each is a class of harbor's wheel, which proctor.agents.foreign makes like any other class by import
path. Only this package imports harbor, and only when one of its agents is to run.
"""

import logging
import tempfile
from importlib import metadata
from pathlib import Path

from proctor.agents.foreign import check_kwargs, load_agent_class
from proctor.errors import AgentError, PluginError, UnsupportedError
from proctor.harbor.agents import (
    ALL_AGENTS,
    LATER_AGENTS,
    VERSION,
    find_import_path,
    is_harbors,
)
from proctor.harbor.configs import AgentConfig

INSTALL = "pip install 'proctor[harbor]'"


def find_version() -> str | None:
    """Return the installed version of harbor, or None, without importing it."""
    try:
        return metadata.version("harbor")
    except metadata.PackageNotFoundError:
        return None


def find_carrier(config: AgentConfig) -> str | None:
    """Return the package of a harbor agent, such as `harbor==0.13.1`; None for other agents."""
    version = find_version() if is_harbors(config) else None
    return f"harbor=={version}" if version else None


def find_note(config: AgentConfig) -> str | None:
    """Return a note if the installed harbor is not the version that proctor was tested with."""
    carrier = find_carrier(config)
    if carrier is None or carrier == f"harbor=={VERSION}":
        return None
    return (
        f"harbor's agents were tested with harbor=={VERSION}; {carrier} is installed, and the "
        "records say so"
    )


def check_makeable(config: AgentConfig) -> None:
    """Make and discard an agent of harbor's, to find out before the job whether it can be made.

    Raises:
        UnsupportedError: harbor is not installed, or has no such agent; the message says which
            version is installed.
        AgentError: the class does not accept this model and these kwargs.
    """
    import_path = find_import_path(config)
    if import_path is None or config.name not in ALL_AGENTS:
        return
    if find_version() is None:
        raise UnsupportedError(
            f"agent {config.name!r} is one of harbor's, which is not installed; run: {INSTALL}"
        )
    kind = _load(config.name, import_path)
    with tempfile.TemporaryDirectory(prefix="proctor-agent-") as folder:
        given = {
            "logs_dir": Path(folder),
            "model_name": config.model_name,
            "extra_env": dict(config.env),
            "logger": logging.getLogger(__name__),
        }
        check_kwargs(config.name, given, config.kwargs)
        try:
            kind(**config.kwargs, **given)
        # The constructor is harbor's, and can raise anything.
        except Exception as error:
            raise AgentError(
                f"agent {config.name!r} cannot be made: {error} ({type(error).__name__}); its "
                "model is given as -m PROVIDER/NAME, its arguments as --ak NAME=VALUE"
            ) from error


def _load(name: str, import_path: str) -> type:
    try:
        return load_agent_class(import_path)
    except PluginError as error:
        later = ", which came with a later release" if name in LATER_AGENTS else ""
        raise UnsupportedError(
            f"agent {name!r}{later}: harbor {find_version()}, which is installed, does not have it "
            f"({error})"
        ) from error
