"""Prints lines, JSON and long texts, and writes files.

Long texts go through $PAGER on a terminal, else `less`, with LESS=FRX unless it is set: short ones
stay on the screen. If the pager is missing or fails, the text is printed. Leaving it early is not
an error.
"""

import contextlib
import itertools
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import click

from proctor.cli.stdout import send, send_lines
from proctor.errors import InputError
from proctor.files import read_small, write_atomic, write_new
from proctor.harbor.render import render_json
from proctor.sentence import printable

json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")

_BEYOND_ASCII = re.compile("[^\n -~]+")


def print_line(text: str = "") -> None:
    """Print one line on stdout."""
    send(printable(text))


def print_json(document: object) -> None:
    """Print one JSON document on stdout; numbers as harbor writes them, nan as null."""
    send(_BEYOND_ASCII.sub(_escaped, render_json(document, indent=2)))


def _escaped(match: re.Match[str]) -> str:
    return "".join(char if char.isprintable() else json.dumps(char)[1:-1] for char in match[0])


def write_file(path: Path, data: bytes, read: Sequence[str]) -> None:
    """Write an output file, but never into a directory that was read.

    Raises:
        InputError: it is in one, or cannot be written.
    """
    target = _find_target(path, read)
    try:
        write_atomic(target, data)
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror}") from error


# Characters of a name in the name of a file, which has at most 255 bytes.
_LONGEST_NAME = 150


def write_new_file(path: Path, data: bytes, read: Sequence[str]) -> None:
    """Write a new file; one with the same content is accepted.

    Raises:
        InputError: another file is there, it is in a directory that was read, or cannot be written.
    """
    target = _find_target(path, read)
    try:
        if not os.path.lexists(target):
            write_new(target, data)
    except FileExistsError:
        pass  # another process wrote it first, perhaps with the same content
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror}") from error
    if not _holds(target, data):
        raise InputError(f"{path}: exists and is not overwritten; remove it or choose another name")


def write_numbered_file(name: str, ending: str, data: bytes, read: Sequence[str]) -> str:
    """Write a new file in the working directory; if its name is taken, one with a number.

    Returns the name.
    """
    plain = re.sub(r"[^A-Za-z0-9._-]", "-", name).lstrip(".-")[:_LONGEST_NAME] or "unnamed"
    names = (f"{plain}{ending}" if n == 1 else f"{plain}-{n}{ending}" for n in itertools.count(1))
    free = (each for each in names if not os.path.lexists(each) or _holds(Path(each), data))
    written = next(free)
    write_new_file(Path(written), data, read)
    return written


def write_new_trees(trees: Mapping[Path, Mapping[str, str]]) -> None:
    """Create directories with these files, all of them or none; scripts become executable.

    Raises:
        InputError: one of the directories exists, or cannot be written.
    """
    for directory in trees:
        if os.path.lexists(directory.parent) and not directory.parent.is_dir():
            raise InputError(f"{directory.parent}: not a directory; expected one to write into")
        check_new(directory)
    with contextlib.ExitStack() as undo:
        for directory, files in trees.items():
            try:
                _write_tree(directory, files)
            except OSError as error:
                raise InputError(f"{directory}: cannot be written: {error.strerror}") from error
            undo.callback(shutil.rmtree, directory, ignore_errors=True)
        undo.pop_all()


def check_new(path: Path) -> None:
    """Check that nothing exists at a path, not even a link.

    Raises:
        InputError: something does.
    """
    if os.path.lexists(path):
        raise InputError(f"{path}: exists and is not overwritten; remove it or choose another path")


def _write_tree(directory: Path, files: Mapping[str, str]) -> None:
    directory.parent.mkdir(parents=True, exist_ok=True)
    # Written beside its place and renamed, so that a kill leaves no half-written directory.
    temporary = Path(tempfile.mkdtemp(prefix=f".{directory.name}.", dir=directory.parent))
    try:
        for name, text in files.items():
            path = temporary / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            if text.startswith("#!"):
                path.chmod(path.stat().st_mode | 0o111)
        temporary.chmod(0o777 & ~_read_umask())
        temporary.rename(directory)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


def _read_umask() -> int:
    # It can only be read by setting it.
    umask = os.umask(0o022)
    os.umask(umask)
    return umask


def _find_target(path: Path, read: Sequence[str]) -> Path:
    # A link is followed once, here, so that the check below is about the file that is really
    # written.
    target = Path(os.path.realpath(path))
    if target.is_symlink():
        raise InputError(f"{path}: a circular link; expected a file")
    for place in read:
        if target.is_relative_to(os.path.realpath(place)):
            raise InputError(f"{path}: inside {place}; proctor does not write into its input")
    return target


def _holds(path: Path, data: bytes) -> bool:
    try:
        return read_small(str(path)) == data
    except OSError:
        return False


def terminal_width() -> int | None:
    """Columns of the terminal; None if there is none."""
    given = os.environ.get("COLUMNS", "")
    is_screen = sys.stdout is not None and sys.stdout.isatty()
    return shutil.get_terminal_size().columns if is_screen or given.isdigit() else None


# Long texts


type Lines = Callable[[], Iterable[str]]
"""Makes the lines; called again if the pager fails."""
_USUAL = "less"
_OPTIONS = "FRX"


def page(lines: Lines, *, is_wanted: bool = True) -> None:
    """Print lines, through a pager on a terminal."""
    if not (is_wanted and _is_attended() and _page(lines)):
        send_lines(lines())


def _is_attended() -> bool:
    """Whether there is a terminal for input and output."""
    return all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stdout))


def _page(lines: Lines) -> bool:
    """Send the lines to the pager; False if it could not show them."""
    try:
        command = shlex.split(os.environ.get("PAGER") or _USUAL)
    except ValueError:
        return False
    # Many tools set PAGER=cat to disable paging.
    if not command or command == ["cat"]:
        return False
    end, ours = os.pipe()
    try:
        with os.fdopen(end, "rb") as theirs:
            pager = subprocess.Popen(command, stdin=theirs, env={"LESS": _OPTIONS, **os.environ})
    except (OSError, ValueError):
        os.close(ours)
        return False
    try:
        _feed(ours, lines())
    finally:
        with _left_to_the_pager():
            pager.wait()
    return pager.returncode == 0


def _feed(end: int, lines: Iterable[str]) -> None:
    with contextlib.suppress(BrokenPipeError), os.fdopen(end, "wb") as pipe:
        for line in lines:
            pipe.write(f"{line}\n".encode(errors="backslashreplace"))


@contextlib.contextmanager
def _left_to_the_pager() -> Iterator[None]:
    """Ignore Ctrl-C, which is a key of the pager."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
