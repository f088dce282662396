"""The steps of a Dockerfile, as values."""

from collections.abc import Mapping
from dataclasses import dataclass

DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""PATH of an image that sets none, as in Docker."""


@dataclass(frozen=True, slots=True)
class Start:
    """Settings of a base image."""

    env: Mapping[str, str]
    workdir: str = "/"
    user: str = "root"


@dataclass(frozen=True, slots=True)
class Run:
    """A command to run."""

    line: int
    text: str
    """The instruction, for messages."""
    argv: tuple[str, ...]
    cwd: str
    env: Mapping[str, str]
    user: str
    script: str | None = None
    """A here-document with a `#!` line, which is run as a file instead of `argv`."""


@dataclass(frozen=True, slots=True)
class Copy:
    """Files to copy."""

    line: int
    text: str
    sources: tuple[str, ...]
    """Patterns, relative to the task's environment directory."""
    inline: tuple[tuple[str, str], ...]
    """(name, content) of here-documents."""
    target: str
    """Absolute path."""
    is_directory: bool
    """Whether the target is a directory into which the sources are copied."""
    is_add: bool
    chown: str | None
    chmod: int | None


@dataclass(frozen=True, slots=True)
class MakeDirectory:
    """A working directory, created if missing."""

    line: int
    text: str
    path: str
    user: str


type Step = Run | Copy | MakeDirectory


@dataclass(frozen=True, slots=True)
class Recipe:
    """A parsed Dockerfile: its steps, and the settings of the result."""

    steps: tuple[Step, ...]
    env: Mapping[str, str]
    workdir: str
    user: str
    notes: tuple[str, ...]
