"""Agents by import path, with harbor's agent interface: one written for harbor runs unchanged.

The class is called with the keyword arguments that harbor passes, and no others: `logger`,
`logs_dir`, `model_name` and `extra_env` always, `mcp_servers` and `skills_dir` if there are any,
and the job's kwargs. It works on proctor's environments and AgentContext, without a wrapper.
"""

import os
from collections.abc import Collection
from typing import Any, cast

from pydantic import BaseModel

from proctor.errors import AgentError
from proctor.harbor.agents import ALL_AGENTS
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
    given = _arguments(order)
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


def _arguments(order: AgentOrder) -> dict[str, Any]:
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
    return arguments


def _as_server(server: McpServer) -> Server:
    return Server(
        name=server.name,
        transport=server.transport,
        url=server.url,
        command=server.command,
        args=list(server.args),
    )
