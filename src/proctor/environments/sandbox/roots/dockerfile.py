"""Parses a Dockerfile into stages. Does not run them or read files.

Only the stages that the last one needs are looked at: those that it is FROM, and those that it
copies files from, directly or through another stage.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from proctor.environments.sandbox.roots.dockerfile_text import (
    Statement,
    expand,
    parse_text,
    split_words,
)
from proctor.errors import ImageError

NOTHING = "scratch"
"""The name of an empty image, which no registry has."""
INSTEAD = "build it with `--builder buildah` or `--builder docker`"
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")
_STAGE = re.compile(r"[a-z][a-z0-9_.-]*")


@dataclass(frozen=True, slots=True)
class Source:
    """Where files come from: an earlier stage, or an image."""

    image: str | None = None
    stage: int | None = None


@dataclass(frozen=True, slots=True)
class Stage:
    """A FROM and the statements after it."""

    number: int
    name: str | None
    """In lower case."""
    source: Source
    """What it is FROM, with variables expanded."""
    line: int
    """Line of FROM."""
    platform: str | None
    """--platform of FROM."""
    statements: tuple[Statement, ...]
    """Statements after FROM."""


@dataclass(frozen=True, slots=True)
class Dockerfile:
    """A parsed Dockerfile, before its images are known."""

    where: str
    """Name of the file in messages."""
    arguments: Mapping[str, str]
    """ARGs before the first FROM, and those that Docker predefines."""
    stages: tuple[Stage, ...]
    escape: str

    @property
    def needed(self) -> tuple[Stage, ...]:
        """The stages that the last one needs, and the last one, in order."""
        waiting, found = [self.stages[-1]], {self.stages[-1].number}
        while waiting:
            stage = waiting.pop()
            for source in (stage.source, *self._copied(stage)):
                if source.stage is not None and source.stage not in found:
                    found.add(source.stage)
                    waiting.append(self.stages[source.stage])
        return tuple(stage for stage in self.stages if stage.number in found)

    @property
    def images(self) -> tuple[str, ...]:
        """The images of the stages that are needed, each once; that of the last stage first."""
        stage = self.stages[-1]
        while stage.source.stage is not None:
            stage = self.stages[stage.source.stage]
        sources = [stage.source]
        for stage in self.needed:
            sources += [stage.source, *self._copied(stage)]
        names = [source.image for source in sources if source.image not in (None, NOTHING)]
        return tuple(dict.fromkeys(map(str, names)))

    def copy_source(self, stage: Stage, name: str) -> Source:
        """Return what `COPY --from=name` means in a stage.

        Raises:
            ImageError: it is not an earlier stage, or not a name.
        """
        if "$" in name:
            raise ImageError(
                f"--from={name}: variables are not expanded there, as in Docker; write "
                f"`FROM {name} AS other` above, and --from=other"
            )
        if not name:
            raise ImageError("--from= is empty; expected a stage or an image")
        if name.isdecimal():
            if int(name) < stage.number:
                return Source(stage=int(name))
            raise ImageError(f"--from={name}: not the number of an earlier stage")
        return self._find_source(stage, name)

    def _find_source(self, stage: Stage, name: str) -> Source:
        named = [one.number for one in self.stages if one.name == name.lower()]
        if earlier := [number for number in named if number < stage.number]:
            return Source(stage=earlier[-1])
        if named:
            raise ImageError(f"--from={name}: not an earlier stage; expected one, or an image")
        return Source(image=name)

    def _copied(self, stage: Stage) -> Iterator[Source]:
        for statement in stage.statements:
            name = dict(statement.flags).get("from")
            if statement.keyword == "COPY" and name is not None:
                yield Place(self.where, statement)(self.copy_source, stage, name)


def parse_dockerfile(text: str, where: str, machine: str = "amd64") -> Dockerfile:
    """Parse a Dockerfile.

    Raises:
        ImageError: it is not supported; the message names file, line, and what to do instead.
    """
    parsed = parse_text(text, where)
    facts = {"PLATFORM": f"linux/{machine}", "OS": "linux", "ARCH": machine, "VARIANT": ""}
    arguments = {
        f"{who}{name}": value for who in ("TARGET", "BUILD") for name, value in facts.items()
    }
    stages: list[Stage] = []
    first = _find_first(parsed.statements)
    for number, statement in enumerate(parsed.statements):
        with_place = Place(where, statement)
        if statement.keyword == "FROM":
            end = number + 1 + _find_first(parsed.statements[number + 1 :])
            rest = parsed.statements[number + 1 : end]
            make = _StageMaker(arguments, parsed.escape, stages)
            stages.append(with_place(make, statement, rest))
        elif number < first and statement.keyword == "ARG":
            for name, value in with_place(parse_arguments, statement, arguments, parsed.escape):
                arguments[name] = arguments.get(name, "") if value is None else value
        elif number < first:
            raise ImageError(
                f"{where}:{statement.line}: {statement.keyword} before FROM; expected FROM first"
            )
    if not stages:
        raise ImageError(f"{where}: contains no FROM; expected one, such as `FROM debian:12`")
    return Dockerfile(where, arguments, tuple(stages), parsed.escape)


def _find_first(statements: tuple[Statement, ...]) -> int:
    """Return the position of the first FROM; the end if there is none."""
    found = (number for number, one in enumerate(statements) if one.keyword == "FROM")
    return next(found, len(statements))


@dataclass(frozen=True, slots=True)
class Place:
    """Adds file and line to errors."""

    where: str
    statement: Statement

    def __call__[**P, T](self, act: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a function; errors name the statement."""
        try:
            return act(*args, **kwargs)
        except ImageError as error:
            place = f"{self.where}:{self.statement.line}: {self.statement.keyword}"
            raise type(error)(f"{place}: {error}") from error


def parse_arguments(
    statement: Statement, variables: Mapping[str, str], escape: str
) -> list[tuple[str, str | None]]:
    """Return names and defaults of an ARG.

    Raises:
        ImageError: it has no name, or an invalid one.
    """
    words = split_words(statement.rest, escape)
    if not words:
        raise ImageError("has no name; expected NAME or NAME=default")
    found: list[tuple[str, str | None]] = []
    for name, sign, value in (word.partition("=") for word in words):
        so_far = {**variables, **{key: text for key, text in found if text is not None}}
        found.append((check_name(name), expand(value, so_far, escape) if sign else None))
    return found


def check_name(name: str) -> str:
    """Return the name of a variable.

    Raises:
        ImageError: it is not one.
    """
    if not _VARIABLE.fullmatch(name):
        raise ImageError(f"{name!r} is not a name of a variable; expected letters, digits and _")
    return name


@dataclass(frozen=True, slots=True)
class _StageMaker:
    """Makes the stage of a FROM."""

    variables: Mapping[str, str]
    escape: str
    earlier: list[Stage]

    def __call__(self, statement: Statement, rest: tuple[Statement, ...]) -> Stage:
        words = split_words(statement.rest, self.escape)
        is_named = len(words) == 3 and words[1].upper() == "AS"
        if len(words) != 1 and not is_named:
            raise ImageError(f"{statement.rest!r}; expected IMAGE or IMAGE AS NAME")
        image = expand(words[0], self.variables, self.escape)
        if not image:
            raise ImageError(f"{words[0]} is empty: give its ARG a default")
        flags = dict(statement.flags)
        asked = flags.pop("platform", None)
        if flags:
            raise ImageError(f"--{next(iter(flags))} is not supported; {INSTEAD}")
        return Stage(
            number=len(self.earlier),
            name=_check_stage(words[2]) if is_named else None,
            source=self._find_source(image),
            line=statement.line,
            platform=expand(asked, self.variables, self.escape) if asked else None,
            statements=rest,
        )

    def _find_source(self, image: str) -> Source:
        named = [stage.number for stage in self.earlier if stage.name == image.lower()]
        return Source(stage=named[-1]) if named else Source(image=image)


def _check_stage(name: str) -> str:
    if not _STAGE.fullmatch(name.lower()):
        raise ImageError(
            f"AS {name}: not a name of a stage; expected a letter, then letters, digits, _, . or -"
        )
    return name.lower()
