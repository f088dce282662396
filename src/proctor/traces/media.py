"""The files that a trace's entries name as media: found, pinned by digest, or reported missing.

A name is a path relative to the trial's artifacts; an absolute path, as in the container, is
searched under the same root. A harness that keeps trace and media in one directory has them fetched
together, so what the root lacks is searched next to the trace. Media may also be inside the entry
itself, as a `data:` URL or as base64.

Names are untrusted: none may lead out of the root, only regular files are opened, and nothing is
downloaded. Files are hashed in place and not copied.
"""

import base64
import binascii
import errno
import os
import re
import stat
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final
from urllib.parse import unquote_to_bytes

import msgspec

from proctor.diagnostic import Diagnostic
from proctor.digest import sha256_file, sha256_hex
from proctor.sentence import reason_of
from proctor.traces.entry import Entry

LARGEST: Final = 1 << 32
"""A larger file, 4 GiB, is reported and not read."""
_CONTAINER_ROOTS: Final = ("/logs/artifacts/", "/workspace/")
_SHOWN: Final = 80
_LONGEST_NAME: Final = 4096
_SURELY_BASE64: Final = 256
_ADDRESS: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_DATA_ADDRESS: Final = re.compile(r"data:[^,]{0,200},", re.IGNORECASE)
_SIGNATURES: Final = (
    *(b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff", b"GIF87a", b"GIF89a", b"RIFF", b"%PDF-"),
    *(b"II*\0", b"MM\0*", b"\x1aE\xdf\xa3", b"OggS", b"fLaC", b"<svg", b"PK\x03\x04"),
)
# Characters of base64 that contain the longest signature.
_ENOUGH: Final = 12


class Medium(msgspec.Struct, frozen=True):
    """An image, sound or other file that belongs to a trace."""

    name: str
    """As in the entry; shortened for media inside the entry."""
    path: str | None
    """Path relative to the root, with `/`; null for media inside the entry."""
    sha256: str
    """Digest of its bytes; for media inside the entry, of the decoded bytes."""
    size: int
    """In bytes."""
    line: int
    """The first line that names it, counted from 1."""
    step: int
    """The step of that line."""
    beside: str | None = None
    """Which of the further directories its path is relative to; null: the root."""


class MediaReport(msgspec.Struct, frozen=True):
    """The media of a trace, each name once, in order."""

    files: list[Medium]
    missing: list[Diagnostic]
    """Names that could not be pinned, with the first line of each."""


class _Bytes(msgspec.Struct, frozen=True):
    """The file or bytes that a name refers to."""

    path: str | None
    sha256: str
    size: int
    beside: str | None = None


class _Refusal(msgspec.Struct, frozen=True):
    """Why a name has no medium: a code, and the end of a sentence."""

    code: str
    reason: str


_BAD_NAME: Final = _Refusal("media-bad-name", "which cannot be the name of a file")
_DOTS: Final = _Refusal("media-outside", "a path with .. in it, which is not followed")
_LINK: Final = _Refusal("media-outside", "a link out of the artifacts, which is not followed")
_ELSEWHERE: Final = _Refusal("media-elsewhere", "an address elsewhere, which is not fetched")
_MISSING: Final = _Refusal("media-missing", "which is not among the artifacts")
_CHANGED: Final = _Refusal("media-changed", "a file that changed while it was read")


def places_beside(folder: str) -> tuple[str, str]:
    """Directories with media that were fetched together with a trace, best first."""
    return f"{folder}/artifacts", folder


def collect_media(
    entries: Iterable[tuple[int, Entry]], root: str, beside: Sequence[str] = ()
) -> MediaReport:
    """Pin every medium that the entries name; `entries` are given with their line numbers.

    What is not under the root is searched in each of the directories `beside` the trace.
    """
    report = MediaReport([], [])
    collector = _Collector(root, beside)
    seen: set[str] = set()
    for line, entry in entries:
        for name in entry.media or ():
            if name in seen:
                continue
            seen.add(name)
            match collector.pin(name):
                case _Refusal(code, reason):
                    message = f"step {entry.step} names {_cut(name)!r}, {reason}"
                    report.missing.append(Diagnostic(code, message, line))
                case _Bytes(path, sha256, size, place):
                    shown = _cut(name) if path is None else name
                    medium = Medium(shown, path, sha256, size, line, entry.step, place)
                    report.files.append(medium)
    return report


class _Collector:
    """Finds media under a root or next to the trace, and hashes no file twice."""

    def __init__(self, root: str, beside: Sequence[str]) -> None:
        self._digests: dict[tuple[int, int], str] = {}
        self._folders = [_Folder(os.path.realpath(root), None, self._digests)]
        self._folders += [_Folder(os.path.realpath(each), each, self._digests) for each in beside]

    def pin(self, name: str) -> _Bytes | _Refusal:
        """The medium for a name, or why nothing can be pinned."""
        if _DATA_ADDRESS.match(name):
            return _decode_address(name)
        if _ADDRESS.match(name):
            return _ELSEWHERE
        found = self._find(name)
        data = _decode_base64(name) if isinstance(found, _Refusal) else None
        return found if data is None else _inline(data)

    def _find(self, name: str) -> _Bytes | _Refusal:
        """The file for a name."""
        if not name.strip() or "\0" in name or len(name) > _LONGEST_NAME:
            return _BAD_NAME
        # Refused even if it stays inside: safety then does not depend on resolving paths.
        if ".." in name.split("/"):
            return _DOTS
        for folder in self._folders:
            found = folder.find(name)
            if found is not _MISSING:
                return found
        return _MISSING


class _Folder:
    """A directory that may contain media."""

    def __init__(self, root: str, said: str | None, digests: dict[tuple[int, int], str]) -> None:
        self._root = root
        self._said = said
        self._digests = digests

    def find(self, name: str) -> _Bytes | _Refusal:
        """The file with this name here, or why there is none."""
        found = self._search(name)
        return found if isinstance(found, _Refusal) else self._hash(found)

    def _search(self, name: str) -> str | _Refusal:
        """The real path for a name."""
        rest = [name.removeprefix(p) for p in _CONTAINER_ROOTS if name.startswith(p)]
        for candidate in [path.lstrip("/") for path in (name, *rest)]:
            if (found := self._look(f"{self._root}/{candidate}")) is not None:
                return found
        return _MISSING

    def _look(self, path: str) -> str | _Refusal | None:
        """The real path of a path under the root; None if it does not exist."""
        try:
            real = os.path.realpath(path, strict=True)
        except (FileNotFoundError, NotADirectoryError):
            # A link out of the root is reported as such, even if its target does not exist.
            return _LINK if self._leaves_root(os.path.realpath(path)) else None
        except (OSError, ValueError) as error:
            return _unreadable(error)
        return _LINK if self._leaves_root(real) else real

    def _leaves_root(self, path: str) -> bool:
        return os.path.commonpath((self._root, path)) != self._root

    def _hash(self, real: str) -> _Bytes | _Refusal:
        path = Path(real)
        try:
            before = path.lstat()
            if not stat.S_ISREG(before.st_mode):
                return _Refusal("media-not-a-file", f"{_kind(before.st_mode)}; expected a file")
            if before.st_size > LARGEST:
                reason = f"a file of {before.st_size:,} bytes; expected no more than {LARGEST:,}"
                return _Refusal("media-too-large", reason)
            # By inode: many names can be links to one large file.
            key = (before.st_dev, before.st_ino)
            if key not in self._digests:
                self._digests[key] = sha256_file(path)
            after = path.lstat()
        except OSError as error:
            return _unreadable(error)
        # A digest of a file that changed meanwhile pins nothing.
        if (before.st_size, before.st_mtime_ns) != (after.st_size, after.st_mtime_ns):
            return _CHANGED
        relative = os.fsencode(os.path.relpath(real, self._root)).decode(errors="backslashreplace")
        return _Bytes(relative, self._digests[key], before.st_size, self._said)


def _inline(data: bytes) -> _Bytes:
    return _Bytes(None, sha256_hex(data), len(data))


def _decode_address(name: str) -> _Bytes | _Refusal:
    head, _, payload = name.partition(",")
    data = unquote_to_bytes(payload)
    if not head.lower().endswith(";base64"):
        return _inline(data)
    try:
        return _inline(base64.b64decode(data, validate=True))
    except binascii.Error as error:
        return _Refusal("media-broken", f"whose base64 is broken: {error}")


def _decode_base64(name: str) -> bytes | None:
    """Decode a medium given as base64; None for a name that only looks like base64.

    A short name counts as base64 only if it decodes to the beginning of a known format:
    `/workspace/out1x` could be base64 too.
    """
    # base64 comes in groups of four characters.
    if len(name) % 4 or len(name) < _ENOUGH:
        return None
    try:
        start = base64.b64decode(name[:_ENOUGH], validate=True)
        if len(name) < _SURELY_BASE64 and not start.startswith(_SIGNATURES):
            return None
        return base64.b64decode(name, validate=True)
    except ValueError:
        return None


def _unreadable(error: OSError | ValueError) -> _Refusal:
    if isinstance(error, OSError) and error.errno == errno.ENAMETOOLONG:
        return _BAD_NAME
    return _Refusal("media-unreadable", f"which cannot be read: {reason_of(error)}")


def _kind(mode: int) -> str:
    if stat.S_ISDIR(mode):
        return "a directory"
    return "a pipe" if stat.S_ISFIFO(mode) else "a device or socket"


def _cut(name: str) -> str:
    return name if len(name) <= _SHOWN else f"{name[: _SHOWN - 1]}…"
