"""Reads an ATIF document, in one of two tempers.

Strict takes exactly what harbor's validator takes, but for what JSON itself cannot hold (see
document.py) and for images, which are not looked up on disk; the first problem is an error. Salvage
takes whatever is a JSON object, keeps what fits, and says the rest.

The good case is one typed pass of msgspec; a document with a problem is read again, slowly, to find
out where.
"""

import os
from pathlib import Path
from typing import Final

import msgspec

from proctor.diagnostic import Diagnostic
from proctor.errors import TraceError
from proctor.files import read_small
from proctor.json_values import has_more_values
from proctor.trajectory.atif.document import has_doubled_key, parse_document
from proctor.trajectory.atif.model import Atif
from proctor.trajectory.atif.rules import find_problems
from proctor.trajectory.atif.shape import Shaper
from proctor.trajectory.entry import Object

_DECODER: Final = msgspec.json.Decoder(Atif)


MOST_VALUES: Final = 4_000_000
"""JSON values in a document at most; a trace of a hundred thousand steps has about two million."""


class AtifFile(msgspec.Struct, frozen=True, kw_only=True):
    """A document as it was read, and what was noticed."""

    atif: Atif
    diagnostics: tuple[Diagnostic, ...] = ()
    """Strict reading leaves notes only."""
    kept: Object = {}
    """What salvage could not place, unknown keys included: JSON path to value, as it was."""


def load_atif(path: Path, *, salvage: bool = False) -> AtifFile:
    """Read a file such as agent/trajectory.json.

    Raises:
        TraceError: it cannot be read, is no JSON object, or, unless salvaging, has a problem.
    """
    try:
        data = read_small(os.fspath(path))
    except OSError as error:
        raise TraceError(f"{path}: cannot be read: {error.strerror or error}") from error
    return parse_atif(data, name=os.fspath(path), salvage=salvage)


def parse_atif(data: bytes, *, name: str = "trajectory.json", salvage: bool = False) -> AtifFile:
    """Read a document from its bytes; errors call it by name.

    Raises:
        TraceError: it is no JSON object or, unless salvaging, has a problem.
    """
    if has_more_values(data, MOST_VALUES):
        raise TraceError(f"{name}: more than {MOST_VALUES:,} JSON values; it is not decoded")
    atif = _parse_good(data)
    if atif is not None:
        found = AtifFile(atif=atif, diagnostics=tuple(find_problems(atif)))
    else:
        found = _parse_slowly(data, name)
    problems = [each for each in found.diagnostics if each.is_problem]
    if problems and not salvage:
        more = "" if len(problems) == 1 else f" (and {len(problems) - 1} more problems)"
        line = "" if problems[0].line is None else f":{problems[0].line}"
        raise TraceError(f"{name}{line}: {problems[0].message}{more}")
    return found


def _parse_good(data: bytes) -> Atif | None:
    """The document, if every field has its own type and nothing stands twice."""
    try:
        atif = _DECODER.decode(data)
        return None if has_doubled_key(data) else atif
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def _parse_slowly(data: bytes, name: str) -> AtifFile:
    value, diagnostics = parse_document(data, name)
    shaper = Shaper()
    try:
        atif = shaper.shape_document(value)
    except RecursionError as error:
        raise TraceError(f"{name}: nested too deeply to be read as an ATIF document") from error
    diagnostics += [*shaper.diagnostics, *find_problems(atif)]
    return AtifFile(atif=atif, diagnostics=tuple(diagnostics), kept=shaper.kept)
