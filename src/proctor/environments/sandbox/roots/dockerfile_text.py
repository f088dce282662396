"""Splits the text of a Dockerfile into statements: comments, directives, here-documents.

Does not know what instructions mean.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from proctor.environments.sandbox.roots.dockerfile_words import parse_list, split_words
from proctor.errors import ImageError

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
    """Split a Dockerfile into statements; `where` names it in messages."""
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
