"""The text of a line to its JSON value, with everything noticed that a value alone cannot say.

A plain JSON reader lets the last of two equal keys win, takes NaN, makes an infinity of a number
that is too large, and leaves half characters that no file can hold. Here each of them is found.
What is kept of such a line is for the caller to decide.
"""

import json
import math
import re
from collections.abc import Iterable
from itertools import islice
from typing import Any, Final, NoReturn

from msgspec import UNSET

from proctor.diagnostic import Diagnostic
from proctor.sentence import shown
from proctor.trajectory.entry import Object

_ESCAPE: Final = re.compile(
    r"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
    r"|u([dD][89a-fA-F][0-9a-fA-F]{2})|.)",
    re.DOTALL,
)
"""Any escape in a string; the group is there when it is half of a pair, and its other half is not.

Read from the left, so that an escaped backslash before a `u` is not taken for the start of one.
"""
_MARK: Final = b"\xef\xbb\xbf"
_SHOWN: Final = 60
_NAMED: Final = 5


class Decoding:
    """One line while it is decoded."""

    def __init__(self, line: int) -> None:
        self.line = line
        self.diagnostics: list[Diagnostic] = []
        self.shadowed: list[tuple[str, Any]] = []
        """Values that a later key of the same name in the same object hides."""
        self._strange: dict[str, None] = {}

    def report(self, code: str, message: str) -> None:
        """Notice a problem."""
        self.diagnostics.append(Diagnostic(code, message, self.line))

    def note(self, code: str, message: str) -> None:
        """Notice something that breaks nothing."""
        self.diagnostics.append(Diagnostic(code, message, self.line, is_problem=False))

    def decode(self, data: bytes, *, torn: bool = False) -> Any:
        """The value, UNSET when there is none. `torn` when the file stops before the line end."""
        text = self._mend(self._text(data))
        try:
            value = self._load(text)
        except RecursionError:
            self.report("too-deep", "brackets nested deeper than can be read")
        except ValueError as error:
            self._report_broken(data, error, torn=torn)
        else:
            self._report_strange()
            return value
        return UNSET

    def _text(self, data: bytes) -> str:
        if data.startswith(_MARK):
            self.report("byte-order-mark", "starts with a byte order mark; expected plain UTF-8")
            data = data[len(_MARK) :]
        try:
            return data.decode()
        except UnicodeDecodeError as error:
            what = f"byte {error.start + 1} is {data[error.start]:#04x}; expected UTF-8"
            self.report("invalid-utf-8", f"{what}, and what is not is shown as U+FFFD")
            return data.decode(errors="replace")

    def _mend(self, text: str) -> str:
        if not _has_halves(text):
            return text
        self.note("half-character", "half a surrogate pair; shown as U+FFFD")
        return _ESCAPE.sub(lambda found: "\\ufffd" if found[1] else found[0], text)

    def _load(self, text: str) -> Any:
        try:
            return self._loads(text, strict=True)
        except ValueError:
            self._strange.clear()
            self.shadowed.clear()
            value = self._loads(text, strict=False)
        self.report("control-character", "a raw control character in a string; expected an escape")
        return value

    def _loads(self, text: str, *, strict: bool) -> Any:
        return json.loads(
            text,
            object_pairs_hook=self._pair,
            parse_constant=self._constant,
            parse_float=self._float,
            strict=strict,
        )

    def _report_broken(self, data: bytes, error: ValueError, *, torn: bool) -> None:
        if torn:
            message = f"the file ends inside a line, after {len(data):,} bytes of it"
            self.report("torn-line", message)
        elif not data.strip(b"\0"):
            self.report("garbage", f"{len(data):,} zero bytes; expected a JSON object")
        elif isinstance(error, json.JSONDecodeError):
            why = f"not JSON at character {error.pos + 1}: {error.msg}"
            self.report("garbage", f"{why}; expected a JSON object")
        else:
            self.report("garbage", f"not readable: {error}; expected a JSON object")

    def _report_strange(self) -> None:
        if self._strange:
            names = some_of(self._strange)
            self.report("not-a-json-number", f"{names}, which no JSON number can say")
        if self.shadowed:
            names = some_of(map(shown, dict(self.shadowed)))
            self.report("duplicate-key", f"key {names} more than once; the last one counts")

    def _pair(self, pairs: list[tuple[str, Any]]) -> Object:
        made = dict(pairs)
        if len(made) < len(pairs):
            last = {key: at for at, (key, _) in enumerate(pairs)}
            self.shadowed += [pair for at, pair in enumerate(pairs) if last[pair[0]] != at]
        return made

    def _constant(self, name: str) -> float:
        self._strange[name] = None
        return float(name)

    def _float(self, digits: str) -> float:
        value = float(digits)
        if math.isinf(value):
            self._strange[digits[:_SHOWN]] = None
        return value


def parse_whole(text: str) -> Any:
    """The value of a JSON text that parsing keeps whole.

    Raises:
        ValueError: it is not JSON, or its value would not be all that is written.
    """
    if _has_halves(text):
        raise ValueError("half a surrogate pair")
    try:
        return json.loads(
            text, object_pairs_hook=_distinct, parse_constant=_refuse, parse_float=_finite
        )
    except RecursionError as error:
        raise ValueError("nested deeper than can be read") from error


def _distinct(pairs: list[tuple[str, Any]]) -> Object:
    made = dict(pairs)
    if len(made) < len(pairs):
        raise ValueError("a key more than once")
    return made


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"{name}, which JSON does not have")


def _finite(digits: str) -> float:
    value = float(digits)
    return _refuse(digits) if math.isinf(value) else value


def _has_halves(text: str) -> bool:
    if "\\ud" not in text and "\\uD" not in text:
        return False
    return any(found[1] for found in _ESCAPE.finditer(text))


def some_of(names: Iterable[str]) -> str:
    """The first few of many names: a stranger's line can have a million of them."""
    first = list(islice(names, _NAMED + 1))
    return ", ".join(first[:_NAMED]) + (" and more" if len(first) > _NAMED else "")
