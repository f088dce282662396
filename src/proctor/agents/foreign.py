"""A class by import path with harbor's agent interface: one written for harbor runs unchanged.

It is made with the keywords that harbor gives, and only those: `logger`, `logs_dir`, `model_name`
and `extra_env` always, `mcp_servers` and `skills_dir` where there are any, and the job's kwargs. It
works on our environments and our AgentContext; nothing is wrapped around it.
"""

from typing import Any, cast

from pydantic import BaseModel

from proctor.errors import AgentError
from proctor.plugin import load_class
from proctor.task.environment import McpServer, Transport
from proctor.trial.agent import Agent
from proctor.trial.order import AgentOrder

AGENT_METHODS = ("name", "version", "setup", "run")
"""harbor's interface."""


class Server(BaseModel):
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
    kind = load_class(import_path, "agent", AGENT_METHODS)
    given = _arguments(order)
    if twice := sorted(given.keys() & order.config.kwargs.keys()):
        raise AgentError(
            f"{import_path}: kwarg {', '.join(twice)} is given to every agent by proctor; "
            "leave it out of --ak"
        )
    return cast(Agent, kind(**order.config.kwargs, **given))


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
    return arguments


def _as_server(server: McpServer) -> Server:
    return Server(
        name=server.name,
        transport=server.transport,
        url=server.url,
        command=server.command,
        args=list(server.args),
    )
