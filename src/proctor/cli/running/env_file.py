"""Text of a .env file to variables, as the library reads it that harbor uses.

Values may be quoted, `export` may stand before a name, `#` begins a comment. `${NAME}` is filled
in, also within single quotes. A line that is no variable is an error here; that library passes it
over with a warning.
"""

import re
from collections.abc import Mapping

from proctor.errors import InputError

_BLANK = re.compile(r"\s*")
_COMMENT_LINE = re.compile(r"#[^\r\n]*")
_NAME = re.compile(r"(?:export[^\S\r\n]+)?(?:'([^']+)'|(?!')([^=#\s]+))[^\S\r\n]*")
_EQUALS = re.compile(r"=([^\S\r\n]*)")
_SINGLE = re.compile(r"'((?:\\.|[^'\\])*)'", re.DOTALL)
_DOUBLE = re.compile(r'"((?:\\.|[^"\\])*)"', re.DOTALL)
_PLAIN = re.compile(r"[^\r\n]*")
_END = re.compile(r"(?:[^\S\r\n]*#[^\r\n]*)?[^\S\r\n]*(?:\r\n|\n|\r|$)")
_SINGLE_ESCAPE = re.compile(r"\\([\\'])")
_DOUBLE_ESCAPE = re.compile(r"\\([\\'\"abfnrtv])")
_ESCAPED = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_REFERENCE = re.compile(r"\$\{([^}:]*)(?::-([^}]*))?\}")


def parse_env_file(text: str, host: Mapping[str, str], where: str) -> dict[str, str]:
    """The variables of a text; `${NAME}` in a value is an earlier one, else the host's, else empty.

    Raises:
        InputError: a line is no variable.
    """
    text = text.removeprefix("\ufeff")
    variables: dict[str, str] = {}
    at = _skip(_BLANK, text, 0)
    while at < len(text):
        at = _read_line(text, at, variables, host, where)
        at = _skip(_BLANK, text, at)
    return variables


def _read_line(
    text: str, at: int, variables: dict[str, str], host: Mapping[str, str], where: str
) -> int:
    """Read one line, put its variable among the others, and say where the next line begins."""
    if comment := _COMMENT_LINE.match(text, at):
        return comment.end()
    name = _NAME.match(text, at)
    if name is None:
        raise _refuse(text, at, where)
    value, after = _read_value(text, name.end())
    end = _END.match(text, after)
    if end is None:
        raise _refuse(text, at, where)
    if value is not None:
        known = {**host, **variables}
        variables[name[1] or name[2]] = _REFERENCE.sub(
            lambda found: known.get(found[1], found[2] or ""), value
        )
    return end.end()


def _read_value(text: str, at: int) -> tuple[str | None, int]:
    """A value and where it ends; None for a name that stands alone."""
    equals = _EQUALS.match(text, at)
    if equals is None:
        return None, at
    at = equals.end()
    if equals[1] and text[at : at + 1] == "#":
        return "", at
    if quoted := _SINGLE.match(text, at):
        return _SINGLE_ESCAPE.sub(r"\1", quoted[1]), quoted.end()
    if quoted := _DOUBLE.match(text, at):
        return _DOUBLE_ESCAPE.sub(lambda e: _ESCAPED.get(e[1], e[1]), quoted[1]), quoted.end()
    if text[at : at + 1] in ("'", '"'):
        return None, at  # a quote that never ends; what follows is no end of a line
    end = _skip(_PLAIN, text, at)
    return re.sub(r"\s+#.*", "", text[at:end]).rstrip(), end


def _skip(pattern: re.Pattern[str], text: str, at: int) -> int:
    found = pattern.match(text, at)
    return found.end() if found else at


def _refuse(text: str, at: int, where: str) -> InputError:
    # The line may hold a secret, so that only its number is told.
    line = text.count("\n", 0, at) + 1
    return InputError(f"{where}:{line}: not a variable; expected NAME=VALUE")
