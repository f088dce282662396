"""Turns the instructions of a stage into steps. Does not run them or read files.

Supported: ARG, ENV, RUN, COPY, ADD of local files and archives, WORKDIR, USER, SHELL. Ignored,
because they have no effect on a task: CMD, LABEL, EXPOSE, MAINTAINER, STOPSIGNAL; ignored with a
note: VOLUME. HEALTHCHECK and ENTRYPOINT are settings of the result. Everything else is refused,
with the name of a program that can build it.
"""

import math
import posixpath
import re
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from proctor.environments.image_config import CHECK_DEFAULTS
from proctor.environments.sandbox.roots.dockerfile import (
    INSTEAD,
    Dockerfile,
    Place,
    Source,
    Stage,
    check_name,
    parse_arguments,
)
from proctor.environments.sandbox.roots.dockerfile_text import (
    Heredoc,
    Statement,
    expand,
    parse_list,
    split_words,
)
from proctor.errors import ImageError, UnbuiltError
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


# Instructions that are ignored, and those that are ignored with a note.
_SILENT = ("LABEL", "EXPOSE", "MAINTAINER", "STOPSIGNAL", "CMD")
_NOTED = {"VOLUME": "has no effect: it is a directory like any other"}
_DURATION = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(ns|us|µs|ms|s|m|h)")
_SECONDS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_OCTAL = re.compile(r"[0-7]{3,4}")
_URL = re.compile(r"(https?|ftp|git)://|git@")


def find_unbuilt(dockerfile: Dockerfile) -> str | None:
    """Return why the sandbox does not build a Dockerfile that other programs may build, or None."""
    try:
        for stage in dockerfile.needed:
            plan_recipe(dockerfile, stage, Start({}))
    except UnbuiltError as error:
        return str(error)
    except ImageError:
        # It depends on the image, or no program builds it: found out when it is built.
        return None
    return None


def plan_recipe(dockerfile: Dockerfile, stage: Stage, start: Start) -> Recipe:
    """Return the steps of a stage on a base with these settings."""
    planner = _Planner(dockerfile, stage, start)
    for statement in stage.statements:
        Place(dockerfile.where, statement)(planner.add, statement)
    result = Start(
        env=planner.env,
        workdir=planner.workdir,
        user=planner.user,
        shell=planner.shell,
        arguments=planner.arguments,
        healthcheck=planner.healthcheck,
        entrypoint=planner.entrypoint,
    )
    return Recipe(tuple(planner.steps), result, tuple(planner.notes))


@dataclass(slots=True)
class _Planner:
    """Turns statements into steps, and keeps the state that later ones depend on."""

    dockerfile: Dockerfile
    stage: Stage
    start: Start
    env: dict[str, str] = field(init=False)
    arguments: dict[str, str] = field(init=False)
    shell: tuple[str, ...] = field(init=False)
    healthcheck: Healthcheck | None = field(init=False)
    entrypoint: tuple[str, ...] = field(init=False)
    workdir: str = field(init=False)
    user: str = field(init=False)
    steps: list[Step] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.env = {"PATH": DEFAULT_PATH, **self.start.env}
        self.arguments, self.shell = dict(self.start.arguments), self.start.shell
        self.workdir, self.user = self.start.workdir, self.start.user
        self.healthcheck, self.entrypoint = self.start.healthcheck, self.start.entrypoint

    def add(self, statement: Statement) -> None:
        """Add one statement."""
        acts: dict[str, Callable[[Statement], None]] = {
            "ARG": self._arg,
            "ENV": self._env,
            "RUN": self._run,
            "COPY": self._copy,
            "ADD": self._copy,
            "WORKDIR": self._workdir,
            "USER": self._user,
            "SHELL": self._shell,
            "HEALTHCHECK": self._healthcheck,
            "ENTRYPOINT": self._entrypoint,
        }
        if act := acts.get(statement.keyword):
            act(statement)
        elif statement.keyword in _NOTED:
            self._note(statement, _NOTED[statement.keyword])
        elif statement.keyword not in _SILENT:
            if statement.keyword == "ONBUILD":
                raise UnbuiltError(f"is not supported; {INSTEAD}")
            raise ImageError(
                "is not a Dockerfile instruction; expected FROM, RUN, COPY, ENV, WORKDIR or another"
            )

    @property
    def variables(self) -> dict[str, str]:
        """Variables for expansion; ENV overrides ARG."""
        return {**self.arguments, **self.env}

    def _expand(self, word: str) -> str:
        return expand(word, self.variables, self.dockerfile.escape)

    def _note(self, statement: Statement, what: str) -> None:
        place = f"{self.dockerfile.where}:{statement.line}"
        self.notes.append(f"{place}: {statement.keyword} {what}")

    def _arg(self, statement: Statement) -> None:
        outer = self.dockerfile.arguments
        for name, value in parse_arguments(statement, self.variables, self.dockerfile.escape):
            # An ARG without a default takes the value of the same ARG before FROM.
            if value is None and name in outer:
                value = outer[name]
            if value is not None:
                self.arguments[name] = value

    def _env(self, statement: Statement) -> None:
        words = split_words(statement.rest, self.dockerfile.escape)
        if not words:
            raise ImageError("has no variable; expected NAME=value")
        if "=" not in words[0]:
            # The old form, ENV NAME value, in which the value extends to the end of the line.
            name, *values = statement.rest.split(maxsplit=1)
            if not values:
                raise ImageError(f"{name} has no value; expected {name}=value")
            self.env[check_name(name)] = self._expand(values[0])
            return
        # All values of one ENV are expanded with the variables from before it, as in Docker.
        before = self.variables
        for word in words:
            name, sign, value = word.partition("=")
            if not sign:
                raise ImageError(f"{word!r} has no `=`; expected NAME=value")
            key = expand(name, before, self.dockerfile.escape)
            self.env[check_name(key)] = expand(value, before, self.dockerfile.escape)

    def _workdir(self, statement: Statement) -> None:
        path = self._expand(statement.rest)
        if not path:
            raise ImageError("has no directory; expected WORKDIR /path")
        self.workdir = posixpath.normpath(posixpath.join(self.workdir, path)).replace("//", "/")
        self.steps.append(MakeDirectory(statement.line, str(statement), self.workdir, self.user))

    def _user(self, statement: Statement) -> None:
        self.user = self._expand(statement.rest)
        if not self.user or len(self.user.split()) != 1:
            raise ImageError(f"{statement.rest!r}; expected the name or number of a user")

    def _shell(self, statement: Statement) -> None:
        words = parse_list(statement.rest)
        if not words:
            raise ImageError(f'{statement.rest!r}; expected a list such as ["/bin/bash", "-c"]')
        self.shell = tuple(words)

    def _healthcheck(self, statement: Statement) -> None:
        keyword, _, command = statement.rest.partition(" ")
        if keyword.upper() not in ("CMD", "NONE") or bool(command.strip()) != (
            keyword.upper() == "CMD"
        ):
            raise ImageError(f"{statement.rest!r}; expected CMD and a command, or NONE")
        self.healthcheck = None
        if command:
            settings = parse_check_flags(dict(statement.flags))
            self.healthcheck = Healthcheck.model_validate(
                {"command": shlex.join(self._words_of(command)), **settings}
            )

    def _entrypoint(self, statement: Statement) -> None:
        if not statement.rest:
            raise ImageError('expected a command, or a list such as ["/start.sh"]')
        self.entrypoint = tuple(self._words_of(statement.rest))

    def _words_of(self, command: str) -> list[str]:
        listed = parse_list(command)
        return listed if listed is not None else [*self.shell, command.strip()]

    def _run(self, statement: Statement) -> None:
        for name, value in statement.flags:
            kinds = [part for part in value.split(",") if part.startswith("type=")]
            if name == "mount" and kinds == ["type=cache"]:
                self._note(statement, "--mount=type=cache has no effect: nothing is cached")
            elif (name, value) not in (("network", "default"), ("security", "sandbox")):
                raise UnbuiltError(f"--{name}={value} is not supported here; {INSTEAD}")
        argv, script = self._command(statement)
        text = str(statement)
        env = self.variables
        self.steps.append(
            Run(statement.line, text, argv, self.workdir, env, self.user, script=script)
        )

    def _command(self, statement: Statement) -> tuple[tuple[str, ...], str | None]:
        if not statement.rest:
            raise ImageError("has no command")
        if (listed := parse_list(statement.rest)) is not None:
            if not listed:
                raise ImageError("has an empty list; expected a command")
            return tuple(listed), None
        if not statement.heredocs:
            return (*self.shell, statement.rest), None
        # Only a here-document: it is the script itself, and with `#!` is run as a file.
        if len(split_words(statement.rest)) == 1:
            text = statement.heredocs[0].text
            return (*self.shell, text), text if text.startswith("#!") else None
        # The shell itself reads the here-documents of a command, so put them back.
        parts = [f"\n{doc.content}{doc.name}" for doc in statement.heredocs]
        return (*self.shell, statement.rest + "".join(parts)), None

    def _copy(self, statement: Statement) -> None:
        chown, chmod, source = self._copy_flags(statement)
        words = parse_list(statement.rest)
        if words is None:
            words = split_words(statement.rest, self.dockerfile.escape)
        *sources, target = [self._expand(word) for word in words] or [""]
        if not sources or not target:
            raise ImageError(f"{statement.rest!r}; expected sources and a target")
        inline = tuple(self._inline(doc) for doc in statement.heredocs)
        names = {doc.name for doc in statement.heredocs}
        patterns = [one for one in sources if not (names and one.lstrip("0123456789-<") in names)]
        is_directory = target.endswith(("/", "/.")) or target == "."
        if len(sources) > 1 and not is_directory:
            raise ImageError(
                f"several sources, and the target is {target!r}; expected it to end in /"
            )
        self.steps.append(
            Copy(
                line=statement.line,
                text=str(statement),
                sources=tuple(_check_local(one, statement.keyword) for one in patterns),
                inline=inline,
                target=posixpath.normpath(posixpath.join(self.workdir, target)),
                is_directory=is_directory,
                is_add=statement.keyword == "ADD",
                chown=chown,
                chmod=chmod,
                source=source,
            )
        )

    def _inline(self, doc: Heredoc) -> tuple[str, str]:
        if doc.is_quoted:
            return doc.name, doc.text
        return doc.name, expand(doc.text, self.variables, self.dockerfile.escape, keep_quotes=True)

    def _copy_flags(self, statement: Statement) -> tuple[str | None, int | None, Source | None]:
        flags = dict(statement.flags)
        chown, chmod = flags.pop("chown", None), flags.pop("chmod", None)
        flags.pop("link", None)  # only affects how Docker stores the layer
        named = flags.pop("from", None) if statement.keyword == "COPY" else None
        source = None if named is None else self.dockerfile.copy_source(self.stage, named)
        if source is not None and statement.heredocs:
            raise ImageError("a here-document with --from; expected paths")
        if flags:
            raise UnbuiltError(f"--{next(iter(flags))} is not supported; {INSTEAD}")
        if chmod is not None and not _OCTAL.fullmatch(chmod := self._expand(chmod)):
            raise ImageError(f"--chmod={chmod}; expected octal digits such as 755")
        return (
            self._expand(chown) if chown else None,
            None if chmod is None else int(chmod, 8),
            source,
        )


def parse_check_flags(flags: dict[str, str]) -> dict[str, float]:
    """Parse the flags of a HEALTHCHECK, with Docker's defaults.

    Raises:
        ImageError: one is unknown or invalid.
    """
    found = dict(CHECK_DEFAULTS)
    for name, value in flags.items():
        key = name.replace("-", "_") + ("" if name == "retries" else "_sec")
        if key not in found:
            raise ImageError(f"--{name} is not supported; {INSTEAD}")
        number = int(value) if name == "retries" and value.isdecimal() else _parse_duration(value)
        if number is None or (name == "retries" and not value.isdecimal()):
            raise ImageError(f"--{name}={value}; expected a number, or a time such as 1m30s")
        # As in Docker, 0 stands for the default. Commands have limits in whole seconds.
        found[key] = (math.ceil(number) if name == "timeout" else number) or found[key]
    return found


def _parse_duration(text: str) -> float | None:
    """Parse a time such as 1m30s or 500ms, in seconds; None if it is not one."""
    if text == "0":
        return 0
    parts = _DURATION.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        return None
    return sum(float(number) * _SECONDS[unit] for number, unit in parts)


def _check_local(source: str, keyword: str) -> str:
    if keyword == "ADD" and (_URL.match(source) or source.endswith(".git")):
        raise UnbuiltError(
            f"{source}: URLs are not fetched; use RUN with curl or git, put the file next to the "
            f"Dockerfile, or {INSTEAD}"
        )
    return source
