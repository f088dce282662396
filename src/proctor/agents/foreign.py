"""A class by import path with harbor's agent interface: one written for harbor runs unchanged.

It is made with the keywords that harbor gives, and only those: `logger`, `logs_dir`, `model_name`
and `extra_env` always, `mcp_servers` and `skills_dir` where there are any, and the job's kwargs. It
works on our environments and our AgentContext; nothing is wrapped around it.
"""

import os
from collections.abc import Collection
from typing import Any, cast

from pydantic import BaseModel

from proctor.errors import AgentError
from proctor.harbor.agents import AGENTS
from proctor.plugin import load_class
from proctor.task.environment import McpServer, Transport
from proctor.trial.agent import Agent
from proctor.trial.order import AgentOrder

AGENT_METHODS = ("name", "version", "setup", "run")
"""harbor's interface."""
LOCAL_PRICES = "LITELLM_LOCAL_MODEL_COST_MAP"
"""Whether harbor's agents take prices from a list that is installed, not from the network."""


class Server(BaseModel, defer_build=True):
    """An MCP server as harbor's agents know it: they append to its list of arguments."""

    name: str
    transport: Transport
    url: str | None
    command: str | None
    args: list[str]


def make_foreign_agent(import_path: str, order: AgentOrder) -> Agent:
    """The agent that an import path names.

    Whatever its constructor raises comes out as it is.

    Raises:
        PluginError: there is no such class, or it is no agent.
        AgentError: a kwarg has the name of something that it is given anyway.
    """
    kind = load_agent_class(import_path)
    given = _arguments(order)
    check_kwargs(import_path, given, order.config.kwargs)
    return cast(Agent, kind(**order.config.kwargs, **given))


def load_agent_class(import_path: str) -> type:
    """The class of an agent.

    Raises:
        PluginError: there is no such class, or it is no agent.
    """
    if import_path.startswith("harbor."):
        # Else the library in which harbor asks models fetches a list of prices when it is loaded,
        # and waits for it: what a trial cost would depend on the day.
        os.environ.setdefault(LOCAL_PRICES, "True")
    return load_class(import_path, "agent", AGENT_METHODS)


def check_kwargs(whose: str, given: Collection[str], kwargs: Collection[str]) -> None:
    """Refuse kwargs by the names of what an agent is given anyway.

    Raises:
        AgentError: names them.
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
    if order.config.name in AGENTS and order.config.override_setup_timeout_sec is not None:
        # Of agents by name alone, as harbor does it.
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
