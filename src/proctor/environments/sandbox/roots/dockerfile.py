"""Parses a Dockerfile into steps. Does not run them or read files.

Supported: FROM, ARG, ENV, RUN, COPY, ADD of local files, WORKDIR, USER, SHELL. Ignored, because
they have no effect on a task: CMD, LABEL, EXPOSE, MAINTAINER, STOPSIGNAL; ignored with a note:
ENTRYPOINT, HEALTHCHECK, VOLUME. Everything else is refused: build the image elsewhere and import
it.
"""

import posixpath
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from proctor.environments.sandbox.roots.dockerfile_words import expand, parse_list, split_words
from proctor.environments.sandbox.roots.recipe import (
    DEFAULT_PATH,
    Copy,
    MakeDirectory,
    Recipe,
    Run,
    Start,
    Step,
)
from proctor.errors import ImageError

# Splitting the text into statements: comments, directives, continued lines and here-documents


_DIRECTIVE = re.compile(r"#\s*([a-zA-Z][a-zA-Z0-9]*)\s*=\s*(.+?)\s*")
_KNOWN_DIRECTIVES = ("syntax", "escape", "check")
_HEREDOC = re.compile(r"[0-9]*<<(-?)([^<]+)")
_FLAG = re.compile(r"--([a-z-]+)(?:=(.*))?", re.DOTALL)
_WITH_HEREDOCS = ("RUN", "COPY", "ADD")


@dataclass(frozen=True, slots=True)
class Heredoc:
    """A here-document."""

    name: str
    content: str
    is_chomped: bool
    """`<<-`: leading tabs of its lines are removed."""
    is_quoted: bool
    """`<<"EOF"`: variables in it are not expanded."""

    @property
    def text(self) -> str:
        """Content, without leading tabs if `is_chomped`."""
        return (
            re.sub(r"^\t+", "", self.content, flags=re.MULTILINE)
            if self.is_chomped
            else self.content
        )


@dataclass(frozen=True, slots=True)
class Statement:
    """One instruction of a Dockerfile."""

    line: int
    keyword: str
    """In upper case."""
    flags: tuple[tuple[str, str], ...]
    """`--name=value`, in order; a flag without a value has an empty one."""
    rest: str
    """Everything after the flags, on one line."""
    heredocs: tuple[Heredoc, ...] = ()

    def __str__(self) -> str:
        """Return the instruction without its here-documents, for messages."""
        flags = [f"--{name}={value}" if value else f"--{name}" for name, value in self.flags]
        return " ".join([self.keyword, *flags, self.rest])


@dataclass(frozen=True, slots=True)
class DockerfileText:
    """The statements of a Dockerfile."""

    statements: tuple[Statement, ...]
    escape: str


def parse_text(text: str, where: str) -> DockerfileText:
    """Split a Dockerfile into statements; `where` names it in messages.

    Raises:
        ImageError: it is invalid; the message names file and line.
    """
    # Docker ignores a byte order mark and accepts Windows line ends, too.
    lines = [line.removesuffix("\r") for line in text.removeprefix("\ufeff").split("\n")]
    escape = _find_escape(lines, where)
    return DockerfileText(tuple(_Reader(lines, escape, where).read()), escape)


def _find_escape(lines: Sequence[str], where: str) -> str:
    """Return the escape character; directives come before everything else, even comments."""
    for number, line in enumerate(lines, 1):
        found = _DIRECTIVE.fullmatch(line.strip())
        if found is None or found[1].lower() not in _KNOWN_DIRECTIVES:
            break
        if found[1].lower() == "escape":
            if found[2] not in ("\\", "`"):
                raise ImageError(f"{where}:{number}: escape is {found[2]!r}; expected \\ or `")
            return found[2]
    return "\\"


class _Reader:
    """Reads lines and makes statements."""

    def __init__(self, lines: Sequence[str], escape: str, where: str) -> None:
        self._lines = lines
        self._escape = escape
        self._continued = re.compile(re.escape(escape) + r"[ \t]*$")
        self._where = where
        self._next = 0

    def read(self) -> Iterator[Statement]:
        while self._next < len(self._lines):
            first = self._next + 1
            text = self._join_lines()
            if text:
                try:
                    yield self._make_statement(first, text)
                except ImageError as error:
                    raise ImageError(f"{self._where}:{first}: {error}") from error

    def _join_lines(self) -> str:
        """Return the next line joined with its continuation, skipping comments and empty lines."""
        text, is_continued = "", True
        while is_continued and self._next < len(self._lines):
            line = self._lines[self._next]
            self._next += 1
            is_skipped = line.lstrip().startswith("#") or not line.strip()
            if is_skipped and not text:
                return ""
            if not is_skipped:
                is_continued = bool(self._continued.search(line))
                text += (
                    self._continued.sub("", line)
                    if text
                    else self._continued.sub("", line.lstrip())
                )
        return text

    def _make_statement(self, line: int, text: str) -> Statement:
        keyword, *following = text.split(maxsplit=1)
        keyword = keyword.upper()
        flags, rest = _take_flags("".join(following).strip(), self._escape)
        heredocs = tuple(self._read_heredocs(rest)) if keyword in _WITH_HEREDOCS else ()
        return Statement(line, keyword, flags, rest, heredocs)

    def _read_heredocs(self, rest: str) -> Iterator[Heredoc]:
        if "<<" not in rest or parse_list(rest) is not None:
            return
        for word in split_words(rest, self._escape):
            if found := _HEREDOC.fullmatch(word):
                name = found[2].strip("'\"")
                is_quoted = name != found[2]
                yield self._read_heredoc(name, is_chomped=bool(found[1]), is_quoted=is_quoted)

    def _read_heredoc(self, name: str, *, is_chomped: bool, is_quoted: bool) -> Heredoc:
        content = ""
        while self._next < len(self._lines):
            line = self._lines[self._next]
            self._next += 1
            if (line.lstrip("\t") if is_chomped else line) == name:
                return Heredoc(name, content, is_chomped, is_quoted)
            content += f"{line}\n"
        raise ImageError(f"the here-document has no end; expected a line {name!r}")


def _take_flags(rest: str, escape: str) -> tuple[tuple[tuple[str, str], ...], str]:
    flags: list[tuple[str, str]] = []
    while rest.startswith("--"):
        word = split_words(rest, escape)[0]
        found = _FLAG.fullmatch(word)
        if found is None:
            break
        flags.append((found[1], (found[2] or "").strip("'\"")))
        rest = rest[len(word) :].lstrip()
    return tuple(flags), rest


_INSTEAD = "build the image elsewhere and import it with `proctor image import`"
# Instructions that are ignored, and those that are ignored with a note.
_SILENT = ("LABEL", "EXPOSE", "MAINTAINER", "STOPSIGNAL", "CMD")
_NOTED = {
    "ENTRYPOINT": "is not run: commands run in the environment directly",
    "HEALTHCHECK": "has no effect; use [environment.healthcheck] of task.toml",
    "VOLUME": "has no effect: it is a directory like any other",
}
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")
_OCTAL = re.compile(r"[0-7]{3,4}")
_URL = re.compile(r"(https?|ftp|git)://|git@")


@dataclass(frozen=True, slots=True)
class Dockerfile:
    """A parsed Dockerfile, before its base is known."""

    where: str
    """Name of the file in messages."""
    image: str
    """Image of FROM, with variables expanded."""
    from_line: int
    platform: str | None
    """--platform of FROM."""
    arguments: Mapping[str, str]
    """ARGs before FROM, and those that Docker predefines."""
    statements: tuple[Statement, ...]
    """Statements after FROM."""
    escape: str


def parse_dockerfile(text: str, where: str, machine: str = "amd64") -> Dockerfile:
    """Parse a Dockerfile.

    Raises:
        ImageError: it is not supported; the message names file, line, and what to do instead.
    """
    parsed = parse_text(text, where)
    arguments = _platform_arguments(machine)
    for number, statement in enumerate(parsed.statements):
        with_place = _Place(where, statement)
        if statement.keyword == "ARG":
            for name, value in with_place(_arguments, statement, arguments, parsed.escape):
                arguments[name] = arguments.get(name, "") if value is None else value
        elif statement.keyword == "FROM":
            image, platform = with_place(_from, statement, arguments, parsed.escape)
            rest = parsed.statements[number + 1 :]
            return Dockerfile(
                where, image, statement.line, platform, arguments, rest, parsed.escape
            )
        else:
            raise ImageError(
                f"{where}:{statement.line}: {statement.keyword} before FROM; expected FROM first"
            )
    raise ImageError(f"{where}: contains no FROM; expected one, such as `FROM debian:12`")


def plan_recipe(dockerfile: Dockerfile, start: Start) -> Recipe:
    """Return the steps of a Dockerfile on a base with these settings.

    Raises:
        ImageError: it is not supported; the message names file, line, and what to do instead.
    """
    planner = _Planner(dockerfile, start)
    for statement in dockerfile.statements:
        _Place(dockerfile.where, statement)(planner.add, statement)
    return Recipe(
        tuple(planner.steps), planner.env, planner.workdir, planner.user, tuple(planner.notes)
    )


@dataclass(frozen=True, slots=True)
class _Place:
    """Adds file and line to errors."""

    where: str
    statement: Statement

    def __call__[**P, T](self, act: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return act(*args, **kwargs)
        except ImageError as error:
            place = f"{self.where}:{self.statement.line}: {self.statement.keyword}"
            raise ImageError(f"{place}: {error}") from error


def _platform_arguments(machine: str) -> dict[str, str]:
    facts = {"PLATFORM": f"linux/{machine}", "OS": "linux", "ARCH": machine, "VARIANT": ""}
    return {f"{who}{name}": value for who in ("TARGET", "BUILD") for name, value in facts.items()}


def _arguments(
    statement: Statement, variables: Mapping[str, str], escape: str
) -> list[tuple[str, str | None]]:
    """Return names and defaults of an ARG."""
    words = split_words(statement.rest, escape)
    if not words:
        raise ImageError("has no name; expected NAME or NAME=default")
    found: list[tuple[str, str | None]] = []
    for name, sign, value in (word.partition("=") for word in words):
        so_far = {**variables, **{key: text for key, text in found if text is not None}}
        found.append((_check_name(name), expand(value, so_far, escape) if sign else None))
    return found


def _check_name(name: str) -> str:
    if not _VARIABLE.fullmatch(name):
        raise ImageError(f"{name!r} is not a name of a variable; expected letters, digits and _")
    return name


def _from(
    statement: Statement, variables: Mapping[str, str], escape: str
) -> tuple[str, str | None]:
    words = split_words(statement.rest, escape)
    is_named = len(words) == 3 and words[1].upper() == "AS"
    if len(words) != 1 and not is_named:
        raise ImageError(f"{statement.rest!r}; expected IMAGE or IMAGE AS NAME")
    image = expand(words[0], variables, escape)
    if not image:
        raise ImageError(f"{words[0]} is empty: give its ARG a default")
    flags = dict(statement.flags)
    platform = flags.pop("platform", None)
    if flags:
        raise ImageError(f"--{next(iter(flags))} is not supported; {_INSTEAD}")
    return image, expand(platform, variables, escape) if platform else None


@dataclass(slots=True)
class _Planner:
    """Turns statements into steps, and keeps the state that later ones depend on."""

    dockerfile: Dockerfile
    start: Start
    env: dict[str, str] = field(init=False)
    arguments: dict[str, str] = field(default_factory=dict)
    shell: tuple[str, ...] = ("/bin/sh", "-c")
    workdir: str = field(init=False)
    user: str = field(init=False)
    steps: list[Step] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.env = {"PATH": DEFAULT_PATH, **self.start.env}
        self.workdir, self.user = self.start.workdir, self.start.user

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
        }
        if act := acts.get(statement.keyword):
            act(statement)
        elif statement.keyword in _NOTED:
            self._note(statement, _NOTED[statement.keyword])
        elif statement.keyword not in _SILENT:
            raise ImageError(_refusal(statement.keyword))

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
        for name, value in _arguments(statement, self.variables, self.dockerfile.escape):
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
            self.env[_check_name(name)] = self._expand(values[0])
            return
        # All values of one ENV are expanded with the variables from before it, as in Docker.
        before = self.variables
        for word in words:
            name, sign, value = word.partition("=")
            if not sign:
                raise ImageError(f"{word!r} has no `=`; expected NAME=value")
            key = expand(name, before, self.dockerfile.escape)
            self.env[_check_name(key)] = expand(value, before, self.dockerfile.escape)

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

    def _run(self, statement: Statement) -> None:
        self._check_run_flags(statement)
        argv, script = self._command(statement)
        text = str(statement)
        env = self.variables
        self.steps.append(
            Run(statement.line, text, argv, self.workdir, env, self.user, script=script)
        )

    def _check_run_flags(self, statement: Statement) -> None:
        for name, value in statement.flags:
            kinds = [part for part in value.split(",") if part.startswith("type=")]
            if name == "mount" and kinds == ["type=cache"]:
                self._note(statement, "--mount=type=cache has no effect: nothing is cached")
            elif (name, value) not in (("network", "default"), ("security", "sandbox")):
                raise ImageError(f"--{name}={value} is not supported; {_INSTEAD}")

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
        chown, chmod = self._copy_flags(statement)
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
            )
        )

    def _inline(self, doc: Heredoc) -> tuple[str, str]:
        if doc.is_quoted:
            return doc.name, doc.text
        return doc.name, expand(doc.text, self.variables, self.dockerfile.escape, keep_quotes=True)

    def _copy_flags(self, statement: Statement) -> tuple[str | None, int | None]:
        flags = dict(statement.flags)
        chown, chmod = flags.pop("chown", None), flags.pop("chmod", None)
        flags.pop("link", None)  # only affects how Docker stores the layer
        if "from" in flags:
            raise ImageError(f"--from={flags['from']}: other images are not available; {_INSTEAD}")
        if flags:
            raise ImageError(f"--{next(iter(flags))} is not supported; {_INSTEAD}")
        if chmod is not None and not _OCTAL.fullmatch(chmod := self._expand(chmod)):
            raise ImageError(f"--chmod={chmod}; expected octal digits such as 755")
        return (
            self._expand(chown) if chown else None,
            None if chmod is None else int(chmod, 8),
        )


def _check_local(source: str, keyword: str) -> str:
    if keyword == "ADD" and (_URL.match(source) or source.endswith(".git")):
        raise ImageError(
            f"{source}: URLs are not fetched; use RUN with curl or git, or put the file next to "
            "the Dockerfile"
        )
    return source


def _refusal(keyword: str) -> str:
    if keyword == "FROM":
        return f"a second FROM: multi-stage builds are not supported; {_INSTEAD}"
    if keyword == "ONBUILD":
        return f"is not supported; {_INSTEAD}"
    return "is not a Dockerfile instruction; expected FROM, RUN, COPY, ENV, WORKDIR or another"
