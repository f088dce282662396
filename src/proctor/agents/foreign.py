"""Agents by import path, with harbor's agent interface: one written for harbor runs unchanged.

The class is called with the keyword arguments that harbor passes, and no others: `logger`,
`logs_dir`, `model_name` and `extra_env` always, `mcp_servers` and `skills_dir` if there are any,
and the job's kwargs. It works on proctor's environments and AgentContext, without a wrapper.

harbor's own agents are such classes, of its wheel, which the extra `harbor` installs. Only this
module imports harbor, and only when one of its agents is to run.
"""

import logging
import os
import tempfile
from collections.abc import Collection
from importlib import metadata
from pathlib import Path
from typing import Any, cast

from pydantic import BaseModel

from proctor.errors import AgentError, PluginError, UnsupportedError
from proctor.harbor.agents import ALL_AGENTS, LATER_AGENTS, VERSION, find_import_path, is_harbors
from proctor.harbor.configs import AgentConfig
from proctor.plugin import load_class
from proctor.task.environment import McpServer, Transport
from proctor.trial.agent import Agent, AgentOrder

AGENT_METHODS = ("name", "version", "setup", "run")
"""Methods of harbor's agent interface."""
LOCAL_PRICES = "LITELLM_LOCAL_MODEL_COST_MAP"
"""Variable that makes LiteLLM, which harbor's agents use, read prices from its installed list."""


class Server(BaseModel, defer_build=True):
    """An MCP server as harbor's agents expect it: mutable, because they append to `args`."""

    name: str
    transport: Transport
    url: str | None
    command: str | None
    args: list[str]


def make_foreign_agent(import_path: str, order: AgentOrder) -> Agent:
    """Make an agent by its import path. Exceptions of its constructor are not wrapped."""
    kind = load_agent_class(import_path)
    arguments: dict[str, Any] = {
        "logs_dir": order.logs_dir,
        "model_name": order.config.model_name,
        "extra_env": dict(order.extra_env),
        "logger": order.logger,
    }
    if order.mcp_servers:
        arguments["mcp_servers"] = [_as_server(server) for server in order.mcp_servers]
    if order.skills_dir:
        arguments["skills_dir"] = order.skills_dir
    if order.config.name in ALL_AGENTS and order.config.override_setup_timeout_sec is not None:
        # harbor passes this only to agents that are selected by name.
        arguments["override_setup_timeout_sec"] = order.config.override_setup_timeout_sec
    given = arguments
    check_kwargs(import_path, given, order.config.kwargs)
    return cast(Agent, kind(**order.config.kwargs, **given))


def load_agent_class(import_path: str) -> type:
    """Import the class of an agent."""
    if import_path.startswith("harbor."):
        # Otherwise LiteLLM downloads a list of prices when it is imported: slow, and the cost of
        # a trial would depend on the day.
        os.environ.setdefault(LOCAL_PRICES, "True")
    return load_class(import_path, "agent", AGENT_METHODS)


def check_kwargs(whose: str, given: Collection[str], kwargs: Collection[str]) -> None:
    """Check that no kwarg has the name of an argument that proctor passes itself.

    Raises:
        AgentError: some do; the message names them.
    """
    if twice := sorted({*given} & {*kwargs}):
        raise AgentError(
            f"{whose}: kwarg {', '.join(twice)} is given to every agent by proctor; leave it out "
            "of --ak"
        )


def _as_server(server: McpServer) -> Server:
    return Server(
        name=server.name,
        transport=server.transport,
        url=server.url,
        command=server.command,
        args=list(server.args),
    )


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
