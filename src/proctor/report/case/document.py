"""The data of a case file: entries of a ledger with their proofs, and evidence.

    {"format": "proctor-case-1", "proctor": version, "script": SHA-256 of the page's script,
     "trial": the trial's place in the log, "checkpoint": note,
     "entries": [{"seq": n, "line": the entry as stored, or "leaf": its hash, "path": [hash, …]}],
     "files": [{"sha256": of the plain bytes, "deflate": base64 of them as a zlib stream}],
     "left_out": [{"sha256": of a file that is not in it, "why": "withheld" or "size"}]}

Entries are in the order of the log: the ledger's keys, the trial, and entries about it. Paths
and sizes of the files are in the trial's entry. Only the format is checked here.
"""

import json
from typing import Final, Literal

import msgspec

from proctor.errors import ProofFileError
from proctor.ledger.claims.document import parse_document
from proctor.ledger.entry import Seq

FORMAT: Final = "proctor-case-1"
LARGEST_UNPACKED: Final = 1 << 29
"""Bytes of all embedded files, unpacked: a browser and a check hold them all at once."""

type Why = Literal["withheld", "size"]


class CaseEntry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An entry of the ledger, with its inclusion proof."""

    seq: Seq
    """Its position in the log, from 0."""
    line: str | None
    """The stored entry, without its newline."""
    leaf: str | None
    """Its leaf hash in hex, if the line was withheld; one of the two is null."""
    path: list[str]
    """The sibling hashes up to the root, in hex."""


class PackedFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A file of the evidence."""

    sha256: str
    """Of its plain bytes."""
    deflate: str
    """Base64 of its zlib stream (RFC 1950)."""


class LeftOut(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An evidence file that is not in the page."""

    sha256: str
    why: Why
    """`withheld`: no longer in the ledger; `size`: the page would be too large."""


class Case(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All data of a case file."""

    format: str
    """proctor-case-1"""
    proctor: str
    """Version of proctor that wrote it."""
    script: str
    """SHA-256 of the script that it was written with, in hex."""
    trial: Seq
    """Position of the trial's entry in the log."""
    checkpoint: str
    """The signed note."""
    entries: list[CaseEntry]
    files: list[PackedFile]
    left_out: list[LeftOut]


def render_data(case: Case) -> str:
    """The data as embedded in a page: JSON without markup characters."""
    lists = ("entries", "files", "left_out")
    parts = msgspec.to_builtins(case)
    lines = [f"{json.dumps(key)}: {_dump(parts[key])}" for key in parts if key not in lists]
    for key in lists:
        items = ",\n".join(_dump(item) for item in parts[key])
        lines.append(f"{json.dumps(key)}: [\n{items}\n]" if items else f"{json.dumps(key)}: []")
    return "{\n" + ",\n".join(lines) + "\n}"


def _dump(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    # Both characters occur only inside of strings, where an escape is equivalent.
    return text.replace("<", "\\u003c").replace(">", "\\u003e")


def parse_case(text: str, where: str) -> Case:
    """Parse the data of a page.

    Raises:
        ProofFileError: it is not a case, or of another format.
    """
    case = parse_document(text.encode("utf-8", "surrogatepass"), Case, where)
    if case.format != FORMAT:
        raise ProofFileError(f"{where}: format is {case.format[:60]!r}; expected {FORMAT!r}")
    places = [entry.seq for entry in case.entries]
    if places != sorted(set(places)):
        raise ProofFileError(f"{where}: expected entries in the order of the log, each once")
    for entry in case.entries:
        if (entry.line is None) == (entry.leaf is None):
            raise ProofFileError(f"{where}: entry {entry.seq}: expected either `line` or `leaf`")
    return case
