"""The files that a shell command writes: redirections, tee, cp, mv, sed -i.

A reader of words, not a shell: quotes, comments and here-documents are seen for what they are, but
nothing is expanded, and what runs inside `$(…)` or `sh -c '…'` is text. Nothing is run.
"""

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Final

LONGEST: Final = 1 << 16
"""Characters of a command that are looked at."""
_REMEMBERED: Final = 1500
"""Characters of a command up to which it is remembered what it writes."""
_WORD = r"(?:[^\s'\"\\|&;()<>]|\\.|'[^']*'|\"(?:[^\"\\]|\\.)*\")+"
_TOKEN = re.compile(
    r"(?P<blank>[ \t]+|\\\n)"
    r"|(?P<here><<-?[ \t]*(?P<quote>['\"]?)(?P<end>[\w.-]+)(?P=quote))"
    r"|(?P<redirect>(?:&|\d*)>>?[|&]?)"
    r"|(?P<operator>\n|\|\|?|&&?|;;?|[()]|<+)"
    r"|(?P<comment>(?<![^\s;&|(])#[^\n]*)"
    rf"|(?P<word>{_WORD})"
    r"|(?P<other>.)",
    re.DOTALL,
)
# Each alternative begins with a plain character: what lies between is then skipped fast.
_REDIRECT = re.compile(
    rf">(>?[|&]?)[ \t]*({_WORD})?"
    r"|<<-?[ \t]*(['\"]?)([\w.-]+)\3"
    r"|'[^']*'|\"(?:[^\"\\]|\\.)*\"|\\."
    r"|\#(?<![^\s;&|(]\#)[^\n]*"
    r"|\n",
    re.DOTALL,
)
_BARE_REDIRECT = re.compile(r">(>?[|&]?)[ \t]*([^\s|&;()<>]+)?")
_WRITERS: Final = ("tee ", "cp ", "mv ", "sed -", "sudo ")
_NO_FILES: Final = ("/dev/", "/proc/self/fd/")
_PREFIXES: Final = frozenset({"sudo", "env", "nohup", "time", "exec", "command", "then", "do"})
_ASSIGNED = re.compile(r"\w+=")
_COPIERS: Final = frozenset({"cp", "mv"})
_QUOTES = re.compile(r"'([^']*)'|\"((?:[^\"\\]|\\.)*)\"|\\(.)", re.DOTALL)


def find_shell_writes(command: str) -> Sequence[str]:
    """The files it writes, in their order, as they are named; devices are left out."""
    if ">" not in command and not _may_write(command):
        return ()
    return _find_again(command) if len(command) <= _REMEMBERED else _find_named(command)


def _may_write(command: str) -> bool:
    """Whether a program may be in it that writes files by its own doing."""
    return "tee" in command or "cp" in command or "mv" in command or "-i" in command


def _find_named(command: str) -> Sequence[str]:
    if command.startswith(_WRITERS) or _holds_writer(command):
        found = list(_find(command[:LONGEST]))
    elif ">" in command:
        is_bare = not ("'" in command or '"' in command or "<<" in command or "\\" in command)
        find = _find_bare_redirects if is_bare and "#" not in command else _find_redirects
        found = find(command[:LONGEST])
    else:
        return ()
    return tuple([name for name in found if name and not name.startswith(_NO_FILES)])


# The runs of one experiment give many of their commands word for word.
_find_again = lru_cache(maxsize=4096)(_find_named)


def _holds_writer(command: str) -> bool:
    """Whether a command that writes may stand behind another; single characters are found fast."""
    if not (
        "|" in command
        or "&" in command
        or ";" in command
        or "\n" in command
        or "=" in command  # a variable may be set before it
    ):
        return False
    return "tee " in command or "cp " in command or "mv " in command or "sed -" in command


def _find_bare_redirects(command: str) -> list[str]:
    """The targets of redirections where nothing is quoted."""
    return [name for mark, name in _BARE_REDIRECT.findall(command) if not mark.endswith("&")]


def _find_redirects(command: str) -> list[str]:
    """The targets of redirections; what is quoted, or the body of a here-document, is none."""
    found: list[str] = []
    at, ends = 0, []
    search = _REDIRECT.search
    while (match := search(command, at)) is not None:
        at = match.end()
        mark = match[0][0]
        if mark == ">":
            if not match[1].endswith("&"):
                found.append(_bare(match[2] or ""))
        elif mark == "<":
            ends.append(match[4] or "")
        elif mark == "\n" and ends:
            at, ends = _step_over(command, at, ends), []
    return found


def _find(command: str) -> Iterator[str]:
    words: list[str] = []
    is_target = False
    for kind, text in _tokens(command):
        if kind == "word":
            if is_target:
                yield _bare(text)
            else:
                words.append(text)
            is_target = False
        elif kind == "redirect":
            # `2>&1` copies a descriptor; `>&2` too.
            is_target = not text.endswith("&") or text == "&"
        elif kind == "operator":
            yield from _written_by(words)
            words, is_target = [], False
    yield from _written_by(words)


def _tokens(command: str) -> Iterator[tuple[str, str]]:
    """Words, redirections and operators; the bodies of here-documents are stepped over."""
    at, size = 0, len(command)
    ends: list[str] = []
    match = _TOKEN.match
    while at < size:
        found = match(command, at)
        if found is None:
            return
        kind, text = found.lastgroup or "", found[0]
        at = found.end()
        if found["here"] is not None:
            ends.append(found["end"])
        elif kind == "operator" and text == "\n" and ends:
            at = _step_over(command, at, ends)
            ends = []
            yield "operator", text
        elif kind in ("word", "redirect", "operator"):
            yield kind, text


def _step_over(command: str, at: int, ends: list[str]) -> int:
    """Where the bodies of here-documents end that begin at a line."""
    for end in ends:
        while True:
            found = command.find("\n", at)
            line = command[at : found if found >= 0 else len(command)]
            at += len(line)
            if found < 0 or line.strip("\t ") == end:
                break
            at += 1
    return at


def _bare(word: str) -> str:
    """A word without its quotes."""
    if "'" not in word and '"' not in word and "\\" not in word:
        return word
    return _QUOTES.sub(lambda found: found[1] or found[2] or found[3] or "", word)


def _written_by(words: list[str]) -> Iterator[str]:
    """What a simple command writes by its own doing."""
    at = 0
    while at < len(words) and (words[at] in _PREFIXES or _ASSIGNED.match(words[at])):
        at += 1
    if at == len(words):
        return
    name, arguments = words[at].rpartition("/")[2], words[at + 1 :]
    plain = [_bare(word) for word in arguments if not word.startswith("-")]
    if name == "tee":
        yield from plain
    elif name in _COPIERS and len(plain) > 1:
        yield plain[-1]
    elif name == "sed" and any(word.startswith(("-i", "--in-place")) for word in arguments):
        yield from plain[1:]
