"""What a Dockerfile makes of its base, as steps: values alone."""

from collections.abc import Mapping
from dataclasses import dataclass

DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""PATH of an image that says nothing of it, as in Docker."""


@dataclass(frozen=True, slots=True)
class Start:
    """What a base brings along."""

    env: Mapping[str, str]
    workdir: str = "/"
    user: str = "root"


@dataclass(frozen=True, slots=True)
class Run:
    """A command that is run."""

    line: int
    text: str
    """The instruction, for people."""
    argv: tuple[str, ...]
    cwd: str
    env: Mapping[str, str]
    user: str
    script: str | None = None
    """A here-document with a `#!` line, which is run as a file instead of argv."""


@dataclass(frozen=True, slots=True)
class Copy:
    """Files that are put in."""

    line: int
    text: str
    sources: tuple[str, ...]
    """Patterns, from the top of the task's environment directory."""
    inline: tuple[tuple[str, str], ...]
    """(name, content) of here-documents."""
    target: str
    """Absolute."""
    is_directory: bool
    """The target is one into which the sources are put."""
    is_add: bool
    chown: str | None
    chmod: int | None


@dataclass(frozen=True, slots=True)
class MakeDirectory:
    """A working directory, made where it is missing."""

    line: int
    text: str
    path: str
    user: str


type Step = Run | Copy | MakeDirectory


@dataclass(frozen=True, slots=True)
class Recipe:
    """What a Dockerfile makes of its base."""

    steps: tuple[Step, ...]
    env: Mapping[str, str]
    workdir: str
    user: str
    notes: tuple[str, ...]
