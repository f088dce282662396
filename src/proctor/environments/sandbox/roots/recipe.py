"""The steps of a Dockerfile, as values."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from proctor.environments.sandbox.roots.dockerfile import Source
from proctor.task.environment import Healthcheck

DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""PATH of an image that sets none, as in Docker."""


@dataclass(frozen=True, slots=True)
class Start:
    """Settings of a base image or of an earlier stage."""

    env: Mapping[str, str]
    workdir: str = "/"
    user: str = "root"
    shell: tuple[str, ...] = ("/bin/sh", "-c")
    """SHELL of an earlier stage."""
    arguments: Mapping[str, str] = field(default_factory=dict)
    """ARGs of an earlier stage, which a stage that is FROM it inherits."""
    healthcheck: Healthcheck | None = None
    entrypoint: tuple[str, ...] = ()
    """Started with harbor's command as its arguments; empty: there is none."""


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
    """Patterns, relative to the task's environment directory or to the root of `source`."""
    inline: tuple[tuple[str, str], ...]
    """(name, content) of here-documents."""
    target: str
    """Absolute path."""
    is_directory: bool
    """Whether the target is a directory into which the sources are copied."""
    is_add: bool
    chown: str | None
    chmod: int | None
    source: Source | None = None
    """Where its files come from; None: the task's environment directory."""


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
    """A parsed stage: its steps, and the settings of the result."""

    steps: tuple[Step, ...]
    result: Start
    notes: tuple[str, ...]
