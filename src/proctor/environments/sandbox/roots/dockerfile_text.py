"""Splits the text of a Dockerfile into statements: comments, directives, here-documents.

Does not know what instructions mean.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from proctor.errors import ImageError

# Splits Dockerfile instructions into words, and expands quotes and variables
#
# By Docker's rules, not a shell's: `${X:-d}`, `${X:+d}` and `${X:?m}`, each also without its colon.
# The patterns of newer Docker versions, `${X#…}`, `${X%…}` and `${X/…}`, are refused.


_NAME = re.compile(r"[0-9]+|[@*#?\-$!]|\w+")
_SPACE = " \t\r\n\v\f"


def split_words(text: str, escape: str = "\\") -> list[str]:
    """Split at blanks, except in quotes; quotes and escapes are kept."""
    words: list[str] = []
    word, quote, position = "", "", 0
    while position < len(text):
        char = text[position]
        if char == escape and quote != "'":
            word += text[position : position + 2]
            position += 2
            continue
        position += 1
        if char in _SPACE and not quote:
            words += [word] if word else []
            word = ""
            continue
        word += char
        if quote:
            quote = "" if char == quote else quote
        elif char in "'\"":
            quote = char
    return [*words, word] if word else words


def parse_list(text: str) -> list[str] | None:
    """Parse the exec form, `["a", "b"]`; None if the text is not one.

    Raises:
        ImageError: the list contains something other than strings.
    """
    if not text.lstrip().startswith("["):
        return None
    try:
        found = json.loads(text)
    except ValueError:
        return None
    if not isinstance(found, list) or not all(isinstance(one, str) for one in found):
        raise ImageError("the list contains something other than strings; expected only strings")
    return found


def expand(
    text: str, variables: Mapping[str, str], escape: str = "\\", *, keep_quotes: bool = False
) -> str:
    """Expand the variables of a word and remove its quotes."""
    return _Word(text, variables, escape, keep_quotes=keep_quotes).expand_to("")


class _Word:
    """A word that is being expanded."""

    def __init__(
        self, text: str, variables: Mapping[str, str], escape: str, *, keep_quotes: bool
    ) -> None:
        self._text = text
        self._variables = variables
        self._escape = escape
        self._keep_quotes = keep_quotes
        self._position = 0

    def expand_to(self, stop: str) -> str:
        """Expand up to and without the character `stop`, or to the end if it is empty."""
        result = ""
        while char := self._next():
            if stop and char == stop:
                return result
            if char == "$":
                result += self._dollar()
            elif char == "'" and not self._keep_quotes:
                end = self._text.find("'", self._position)
                if end < 0:
                    raise ImageError(f"{self._text!r}: a single quote is not closed")
                inside = self._text[self._position : end]
                self._position = end + 1
                result += inside
            elif char == '"' and not self._keep_quotes:
                result += self._double()
            elif char == self._escape:
                result += self._next()
            else:
                result += char
        if stop:
            raise ImageError(f"{self._text!r}: `{stop}` is missing")
        return result

    def _next(self) -> str:
        char = self._text[self._position : self._position + 1]
        self._position += len(char)
        return char

    def _peek(self) -> str:
        return self._text[self._position : self._position + 1]

    def _double(self) -> str:
        result = ""
        while char := self._next():
            if char == '"':
                return result
            if char == "$":
                result += self._dollar()
            elif char == self._escape and self._peek() in ('"', "$", self._escape):
                result += self._next()
            else:
                result += char
        raise ImageError(f"{self._text!r}: a double quote is not closed")

    def _name(self) -> str:
        found = _NAME.match(self._text, self._position)
        self._position = found.end() if found else self._position
        return found[0] if found else ""

    def _dollar(self) -> str:
        if self._peek() != "{":
            name = self._name()
            return self._variables.get(name, "") if name else "$"
        self._next()
        name, form = self._name(), self._next()
        if not name:
            raise ImageError(f"{self._text!r}: `${{` without a name after it")
        if form == "}":
            return self._variables.get(name, "")
        # With a colon, an empty variable counts as unset.
        with_colon = form == ":"
        form = self._next() if with_colon else form
        if form not in ("-", "+", "?") or not form:
            raise ImageError(
                f"{self._text!r}: `${{{name}{':' if with_colon else ''}{form}` is not supported; "
                "expected ${X}, ${X:-default}, ${X:+other} or ${X:?message}"
            )
        word = self.expand_to("}")
        value = self._variables.get(name)
        return _choose(form, name, word, None if with_colon and not value else value)


def _choose(form: str, name: str, word: str, value: str | None) -> str:
    if form == "+":
        return "" if value is None else word
    if value is not None:
        return value
    if form == "-":
        return word
    raise ImageError(f"{name}: {word or 'is not set, but required'}")


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
                    keyword, *following = text.split(maxsplit=1)
                    keyword = keyword.upper()
                    flags, rest = _take_flags("".join(following).strip(), self._escape)
                    heredocs = tuple(self._read_heredocs(rest)) if keyword in _WITH_HEREDOCS else ()
                    yield Statement(first, keyword, flags, rest, heredocs)
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
