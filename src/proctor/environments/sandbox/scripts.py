"""Where an interpreter takes its code from, by its command line and its standard input."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

_CODE = {"python": "c", "pypy": "c", "perl": "eE", "ruby": "e", "node": "ep", "nodejs": "ep"}
_SHELLS_CODE = "c"
"""Letters of options whose value is the code itself."""
_PYTHON = ("python", "pypy")


def find_scripts(
    place: str, executable: str, directory: str, words: Sequence[str]
) -> Iterator[str]:
    """Files that an interpreter may run: a script, a module by its name, or its input.

    `place` is where /proc shows it; its first word may be anything. Arguments after the code are
    not its code.
    """
    name = Path(executable).name.rstrip("0123456789.")
    letters, rest = _CODE.get(name, _SHELLS_CODE), iter(words[1:])
    for word in rest:
        if word in ("-", "-s", "/dev/stdin"):
            break
        if word.startswith("-"):
            short = "" if word.startswith("--") else word[1:]
            if name in _PYTHON and "m" in short:
                module = short.partition("m")[2] or next(rest, "")
                yield from _find_module(directory, module)
                return
            if any(letter in short for letter in letters):
                return
            continue
        path = join(directory, word)
        if Path(f"{place}/root{path}").is_file():
            yield path
            return
    # Without a script it reads what it is given.
    yield _read_link(f"{place}/fd/0")


def _find_module(directory: str, module: str) -> Iterator[str]:
    path = join(directory, module.replace(".", "/"))
    yield f"{path}.py"
    yield f"{path}/__main__.py"


def join(directory: str, word: str) -> str:
    """The path that a word of a command line names."""
    return os.path.normpath(Path(directory, word))


def _read_link(path: str) -> str:
    try:
        return str(Path(path).readlink())
    except OSError:
        return ""
