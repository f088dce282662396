"""Load MCP servers from a file: a Claude-style .mcp.json, or harbor's format in JSON, YAML or TOML.

Fields that harbor does not have, such as a server's variables, are dropped as in harbor; headers,
which only harbor 0.25 has, are refused. Does not connect to servers.
"""

import json
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from proctor.errors import ConfigError
from proctor.files import read_small
from proctor.sentence import reason_of, shown
from proctor.task.environment import McpServer

_PARSERS: dict[str, Callable[[str], object]] = {
    ".json": json.loads,
    ".yaml": yaml.safe_load,
    ".yml": yaml.safe_load,
    ".toml": tomllib.loads,
}
_KEYS = frozenset({"name", "transport", "type", "url", "command", "args"})


def load_mcp_servers(path: Path) -> list[McpServer]:
    """Load the servers in a file.

    Raises:
        ConfigError: the file is unreadable, or a server's description is unusable.
    """
    document = _load(path)
    claude = "mcpServers" in document
    environment = document.get("environment")
    servers = document.get("mcpServers") or document.get("mcp_servers")
    if servers is None and isinstance(environment, dict):
        servers = environment.get("mcp_servers")
    if isinstance(servers, dict):
        servers = [
            {"name": name, **server} if isinstance(server, dict) else server
            for name, server in servers.items()
        ]
    if not isinstance(servers, list):
        raise ConfigError(f"{path}: no MCP servers; expected a table mcpServers or mcp_servers")
    return [_make_server(path, server, claude=claude) for server in servers]


def _load(path: Path) -> dict[str, Any]:
    suffix = path.suffix.lower()
    if suffix not in _PARSERS:
        found = f"ends in {suffix}" if suffix else "has no suffix"
        raise ConfigError(f"{path}: its name {found}; expected {', '.join(_PARSERS)}")
    try:
        text = read_small(str(path)).decode()
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"{path}: cannot be read: {reason_of(error)}; expected a file with MCP servers"
        ) from error
    try:
        document = _PARSERS[suffix](text)
    except (ValueError, yaml.YAMLError, RecursionError) as error:
        reason = " ".join(str(error).split())
        raise ConfigError(f"{path}: not {suffix[1:].upper()}: {reason}") from error
    if not isinstance(document, dict):
        raise ConfigError(f"{path}: {shown(document)}; expected a table with MCP servers")
    return document


def _make_server(path: Path, server: object, *, claude: bool) -> McpServer:
    if not isinstance(server, dict):
        raise ConfigError(f"{path}: a server is {shown(server)}; expected a table")
    kept = {key: value for key, value in server.items() if key in _KEYS}
    for key, later in McpServer.later_keys.items():
        if later.changes(server.get(key)):
            raise ConfigError(
                f"{path}: server {kept.get('name', '?')!s:.60}: {key} is a key of harbor 0.25 that "
                f"proctor does not support: {later.effect}"
            )
    if "type" in kept:
        kept.setdefault("transport", kept.pop("type"))
    if claude and kept.get("command"):
        kept.setdefault("transport", "stdio")
    try:
        return McpServer.model_validate(kept)
    except ValidationError as error:
        fault = error.errors()[0]
        where = ".".join(map(str, fault["loc"])) or "it"
        what = fault["msg"].removeprefix("Value error, ")
        raise ConfigError(
            f"{path}: server {kept.get('name', '?')!s:.60}: {where}: {what}"
        ) from error
