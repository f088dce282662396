"""The machine a task runs in, as [environment] describes it. Does not build or start one."""

import math
import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    ModelWrapValidatorHandler,
    PlainValidator,
    model_validator,
)
from pydantic_core import PydanticCustomError

from proctor.task.network import EnvironmentNetwork, NetworkMode
from proctor.task.table import LaterKey, Table

ENDS_HARBOR = "ends_harbor"
"""Error type for values at which harbor does not skip the task but aborts the whole job."""

_TOPOLOGY = re.compile(r"^[1-9]\d*(x[1-9]\d*)+$")
_MEGABYTES = {"G": 1024.0, "M": 1.0, "K": 1 / 1024}


class TaskOS(StrEnum):
    """The operating system inside the environment."""

    LINUX = "linux"
    WINDOWS = "windows"

    @property
    def script_suffix(self) -> str:
        """File extension of its test and solution scripts."""
        return ".bat" if self is TaskOS.WINDOWS else ".sh"


class Healthcheck(Table):
    """A command that is repeated until it succeeds."""

    command: str
    """Shell command; exit code 0 is healthy."""
    interval_sec: float = 5.0
    """Seconds between two attempts."""
    timeout_sec: float = 30.0
    """Time limit of one attempt in seconds."""
    start_period_sec: float = 0.0
    """Seconds after the start in which a failed attempt does not count."""
    start_interval_sec: float = 5.0
    """Seconds between two attempts in that period."""
    retries: int = 3
    """Consecutive failures that make it unhealthy."""


def _parse_topology(text: str) -> str:
    topology = text.strip()
    if not _TOPOLOGY.match(topology):
        raise ValueError(f"{text!r}; expected whole numbers joined by x, such as '2x4' or '2x2x1'")
    return topology


class Tpu(Table):
    """A slice of TPU chips."""

    type: str = Field(min_length=1)
    """Kind of accelerator, such as 'v6e' or 'tpu-v6e-slice'."""
    topology: Annotated[str, AfterValidator(_parse_topology)]
    """Chips along each axis, such as '2x4'."""


def _name_transport(value: object) -> object:
    return "streamable-http" if value == "http" else value


type Transport = Literal["stdio", "sse", "streamable-http"]


class McpServer(Table):
    """An MCP server that the agent may use."""

    later_keys: ClassVar[Mapping[str, LaterKey]] = {
        "headers": LaterKey("the agent would send requests to the server without them")
    }

    name: str
    """Its name, as the agent sees it."""
    transport: Annotated[Transport, BeforeValidator(_name_transport)] = "sse"
    """Transport protocol; 'http' is accepted for 'streamable-http'."""
    url: str | None = None
    """Its URL; required unless the transport is 'stdio'."""
    command: str | None = None
    """The program to start; required when the transport is 'stdio'."""
    args: tuple[str, ...] = ()
    """Arguments of that program."""

    @model_validator(mode="after")
    def _can_be_reached(self) -> Self:
        if self.transport == "stdio":
            if not self.command:
                raise ValueError("no command; transport 'stdio' needs one")
        elif not self.url:
            raise ValueError(f"no url; transport {self.transport!r} needs one")
        return self


def parse_megabytes(size: str) -> int:
    """Parse a size such as '2G', '512M' or '64K' to megabytes, rounded down.

    Raises:
        ValueError: it is not such a size.
        OverflowError: it is infinite.
    """
    text = size.strip().upper()
    unit = _MEGABYTES.get(text[-1:])
    if unit is None:
        raise ValueError(f"{size!r}; expected a number with G, M or K, such as '2G'")
    return int(float(text[:-1]) * unit)


def _lower(value: object) -> object:
    return value.lower() if isinstance(value, str) else value


def _with_megabytes(data: dict[str, Any], old: str, new: str) -> dict[str, Any]:
    """Copy the size under the old key to the current key."""
    size = data.get(old)
    # harbor reads only text here; it drops a bare number.
    if not isinstance(size, str):
        return data
    try:
        megabytes = parse_megabytes(size)
    except OverflowError as error:
        message = "{old} is {size}, which is infinite; harbor aborts the whole job on it"
        raise PydanticCustomError(ENDS_HARBOR, message, {"old": old, "size": repr(size)}) from error
    if data.get(new, megabytes) != megabytes:
        raise ValueError(f"{old} is {size!r}, {megabytes} MiB, and {new} is {data[new]!r}")
    return {new: megabytes, **data}


def parse_processors(value: object) -> int | float:
    """Parse a number of processors; whole numbers are integers, as harbor 0.13.1 has them.

    Raises:
        ValueError: it is not a number.
    """
    try:
        number = float(value) if isinstance(value, str) else value
    except ValueError:
        number = None
    if isinstance(number, float) and number.is_integer():
        return int(number)
    if isinstance(number, int) or (isinstance(number, float) and math.isfinite(number)):
        return +number  # an int, also if it was a bool
    raise ValueError("expected a number of processors, such as 2 or 0.5")


type Processors = Annotated[int | float, PlainValidator(parse_processors)]
"""Processors of an environment; fractions came with schema version 1.4."""


class EnvironmentConfig(EnvironmentNetwork):
    """[environment], and [verifier.environment]."""

    other_spellings: ClassVar[Mapping[str, str]] = {"memory": "memory_mb", "storage": "storage_mb"}

    build_timeout_sec: float = 600.0
    """Time limit of building and starting together, in seconds."""
    docker_image: str | None = None
    """A prebuilt image; then no Dockerfile is needed."""
    os: Annotated[TaskOS, BeforeValidator(_lower)] = TaskOS.LINUX
    """Operating system inside; upper or lower case."""
    cpus: Processors | None = None
    """Processors, also a fraction of one; None: the environment's default."""
    memory_mb: int | None = None
    """Memory in MiB; None: the environment's default."""
    storage_mb: int | None = None
    """Disk in MiB; None: the environment's default."""
    gpus: int | None = None
    """GPUs; None: the environment's default."""
    gpu_types: tuple[str, ...] | None = None
    """Accepted GPU types, such as 'H100'; None: any."""
    tpu: Tpu | None = None
    """TPU chips, if the task needs them."""
    mcp_servers: tuple[McpServer, ...] = ()
    """MCP servers offered to the agent."""
    env: dict[str, str] = Field(default_factory=dict)
    """Variables of every command; `${NAME}` or `${NAME:-default}` is read from the host."""
    skills_dir: str | None = None
    """Directory inside the environment that holds skills for the agent."""
    healthcheck: Healthcheck | None = None
    """Must pass before the agent is set up."""
    workdir: str | None = None
    """Working directory of commands; None: the image's."""
    allow_internet: bool | None = Field(default=None, exclude=True)
    """The old spelling of network_mode; converted to it when read, then always None."""

    @model_validator(mode="before")
    @classmethod
    def _take_old_sizes(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        data = _with_megabytes(data, "memory", "memory_mb")
        return _with_megabytes(data, "storage", "storage_mb")

    @model_validator(mode="wrap")
    @classmethod
    def _take_old_network(cls, data: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        config = handler(data)
        if config.allow_internet is None:
            return config
        update: dict[str, object] = {"allow_internet": None}
        if "network_mode" not in config.model_fields_set and config.allowed_hosts is None:
            mode = NetworkMode.PUBLIC if config.allow_internet else NetworkMode.NO_NETWORK
            update["network_mode"] = mode
        return config.model_copy(update=update)
