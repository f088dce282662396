"""Operations of workers for COPY --from and ADD: find, pack and unpack files with their owners.

The files of an image are packed in a sandbox on that image and unpacked in the sandbox of a build,
through a pipe: a symlink in an image leads nowhere but into that image, and nothing of an untrusted
archive is read on the host. Owners are numbers: a lookup of names by the C library would load
libraries from the sandbox. Uses only the standard library.
"""

import errno
import os
import posixpath
import re
import stat
import tarfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any, BinaryIO, Protocol, cast

from proctor.environments.sandbox.archive import BrokenArchiveError
from proctor.environments.sandbox.channel import Message
from proctor.environments.sandbox.users import UnknownUserError, find_user

# Yields the members of an untrusted tar archive in limited memory
#
# tarfile reads the headers of a member whole, and keeps every member with them. Does not unpack
# anything. Uses only the standard library.


MOST_HEADERS = 1 << 22
"""Bytes of the headers of one member: a long name, a long target, attributes."""
# Bytes of the extended header of one member, as in Docker.
_MOST_EXTENDED = 1 << 20
_LENGTH = re.compile(rb"([0-9]{1,7}) [^=]")
# Values in headers for all members, of which git and GNU tar write one or two.
_MOST_GLOBAL = 100
_MOST_GLOBAL_TEXT = 1 << 16


class Readable(Protocol):
    """A stream of bytes."""

    def read(self, size: int = -1, /) -> bytes:
        """Read like a file."""


class HeaderStream:
    """A stream that ends with an error if the headers of a member are too large."""

    def __init__(self, file: Readable) -> None:
        self._file = file
        self._end: int | None = None
        self.size = 0
        """Bytes read so far."""

    def read(self, size: int = -1) -> bytes:
        """Read like a file.

        Raises:
            BrokenArchiveError: more than was allowed.
        """
        data = self._file.read(size)
        self.size += len(data)
        if self._end is not None and self.size > self._end:
            raise BrokenArchiveError(
                f"the headers of a member have more than {MOST_HEADERS:,} bytes; refused"
            )
        return data

    def allow(self, n_bytes: int | None) -> None:
        """Limit the bytes that may be read from here on; None for no limit."""
        self._end = None if n_bytes is None else self.size + n_bytes


class CheckedMember(tarfile.TarInfo):
    """A member whose extended headers are checked before tarfile parses them.

    Before 3.12.6, Python's parser takes the square of the size of a malformed one in memory:
    gigabytes for 80 KB (CVE-2024-6232). To be passed to tarfile.open.
    """

    __slots__ = ()

    def _proc_pax(self, archive: Any) -> tarfile.TarInfo:
        if self.size > _MOST_EXTENDED:
            raise BrokenArchiveError(
                f"the headers of a member have more than {_MOST_EXTENDED:,} bytes; refused"
            )
        source = archive.fileobj
        data = source.read(max(0, -(-self.size // tarfile.BLOCKSIZE)) * tarfile.BLOCKSIZE)
        _check_records(data[: self.size], self.size)
        archive.fileobj = _Replay(archive, data)
        try:
            return super()._proc_pax(archive)  # type: ignore[misc, no-any-return]
        finally:
            archive.fileobj = source


class _Replay:
    """The stream of an archive, with a header that was read from it before the rest."""

    def __init__(self, archive: Any, header: bytes) -> None:
        self._archive = archive
        self._source = archive.fileobj
        self._header = header

    def read(self, _size: int) -> bytes:
        self._archive.fileobj = self._source
        return self._header


def _check_records(header: bytes, size: int) -> None:
    """Check an extended header: records of a length, a name, `=`, a value and an end of line."""
    if len(header) != size:
        raise tarfile.ReadError("unexpected end of data")
    at = 0
    while at < size:
        found = _LENGTH.match(header, at)
        end = at + int(found[1]) if found else 0
        if found is None or header[end - 1 : end] != b"\n" or b"=" not in header[found.end() : end]:
            raise tarfile.ReadError("invalid extended header")
        at = end


def members_of(archive: tarfile.TarFile, stream: HeaderStream) -> Iterator[tarfile.TarInfo]:
    """Yield the members of an archive that is read from a stream.

    Hard links have to be resolved by the caller: the archive forgets each member. Opening an
    archive reads the first headers, so the stream has to be limited before.
    """
    stream.allow(MOST_HEADERS)
    while (member := take_member(archive)) is not None:
        stream.allow(member.size + MOST_HEADERS)
        yield member


def take_member(archive: tarfile.TarFile) -> tarfile.TarInfo | None:
    """Return the next member, which the archive forgets; None at the end."""
    member = archive.next()
    archive.members.clear()  # type: ignore[attr-defined]  # it is in the documentation only
    found = archive.pax_headers
    if (
        len(found) > _MOST_GLOBAL
        or sum(len(name) + len(value) for name, value in found.items()) > _MOST_GLOBAL_TEXT
    ):
        raise BrokenArchiveError("has too large headers for all its members; refused")
    return member


# Parts of the sandbox rather than of an image.
_MOUNTED = ("/proc", "/sys", "/dev")
_XATTR = "PROCTOR.xattr."
_KEPT = ("user.", "security.capability", "system.posix_acl_")
_FOREIGN = "user.overlay."
_PIECE = 1 << 16
_CHUNK = 1 << 18


def _find_sources(request: dict[str, Any], _files: list[int]) -> Message:
    """Find what COPY names: (path, path without symlinks, whether it is a directory) of each."""
    found = []
    for top, patterns in request["sources"]:
        for path in _match(str(top), [re.compile(one, re.DOTALL) for one in patterns]):
            real = os.path.realpath(path)
            if _is_mounted(real):
                raise BrokenArchiveError(f"{path}: {real} is not part of an image")
            found.append((path, real, stat.S_ISDIR(os.stat(real).st_mode)))
    return {"found": found}


def _is_mounted(path: str) -> bool:
    return any(path == one or path.startswith(f"{one}/") for one in _MOUNTED)


def _match(top: str, patterns: Sequence[re.Pattern[str]]) -> list[str]:
    """Return the paths below a directory whose names match the patterns, one for each level.

    Symlinks are followed on the way to the directory, but not below it, as in Docker.
    """
    paths = [top]
    for number, pattern in enumerate(patterns):
        inner = []
        for path in paths:
            is_directory = number == 0 or stat.S_ISDIR(os.lstat(path).st_mode)
            with suppress(NotADirectoryError, FileNotFoundError):
                names = sorted(os.listdir(path)) if is_directory else []
                inner += [posixpath.join(path, name) for name in names if pattern.fullmatch(name)]
        paths = inner
    return paths


def _pack_tar(request: dict[str, Any], files: list[int]) -> Message:
    """Pack files and contents of directories under the names that the request gives them."""
    with (
        os.fdopen(files.pop(0), "wb", _PIECE) as stream,
        tarfile.open(fileobj=stream, mode="w|", format=tarfile.PAX_FORMAT) as archive,
    ):
        packer = _Packer(archive)
        for path, name in request["places"]:
            packer.pack(str(path), str(name))
    return {}


class _Packer:
    """Adds files to an archive, each with its owner, mode, attributes and hard links."""

    def __init__(self, archive: tarfile.TarFile) -> None:
        self._archive = archive
        self._first_names: dict[tuple[int, int], str] = {}

    def pack(self, path: str, name: str) -> None:
        """Add a file under a name, or the contents of a directory below it."""
        waiting = [(path, name)]
        while waiting:
            path, name = waiting.pop()
            status = os.lstat(path)
            if not stat.S_ISDIR(status.st_mode):
                self._add(path, name, status)
                continue
            if _is_mounted(path):
                continue
            if name:
                self._add(path, name, status)
            names = sorted(os.listdir(path), reverse=True)
            waiting += [(posixpath.join(path, one), posixpath.join(name, one)) for one in names]

    def _add(self, path: str, name: str, status: os.stat_result) -> None:
        member = tarfile.TarInfo(name)
        member.mode = stat.S_IMODE(status.st_mode)
        member.uid, member.gid = status.st_uid, status.st_gid
        member.mtime = status.st_mtime_ns / 1e9
        first = self._first_names.get((status.st_dev, status.st_ino))
        if stat.S_ISDIR(status.st_mode):
            member.type = tarfile.DIRTYPE
        elif stat.S_ISLNK(status.st_mode):
            member.type, member.linkname = tarfile.SYMTYPE, os.readlink(path)
        elif not stat.S_ISREG(status.st_mode):
            raise BrokenArchiveError(f"{path}: neither a file, a directory nor a link")
        elif first is not None:
            member.type, member.linkname = tarfile.LNKTYPE, first
        if not member.issym():
            names = [
                name for name in os.listxattr(path, follow_symlinks=False) if name.startswith(_KEPT)
            ]
            member.pax_headers = {
                f"{_XATTR}{name}": os.getxattr(path, name, follow_symlinks=False).hex()
                for name in names
                if not name.startswith(_FOREIGN)
            }
        if not member.isreg():
            self._archive.addfile(member)
            return
        if status.st_nlink > 1:
            self._first_names[status.st_dev, status.st_ino] = name
        member.size = status.st_size
        with open(path, "rb", opener=_open_file) as file:
            self._archive.addfile(member, file)


def _open_file(path: str, _flags: int) -> int:
    return os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)


def _unpack_tar(request: dict[str, Any], files: list[int]) -> Message:
    """Unpack an archive into a directory; `owner` and `mode`, if given, replace those in it."""
    with os.fdopen(files.pop(0), "rb", _PIECE) as stream:
        target, owner = str(request["target"]), request["owner"]
        try:
            ids = None if owner is None else _find_ids(str(owner))
            if ids is not None and request["owns_target"] and not os.path.isdir(target):
                os.makedirs(target, 0o755)
                os.chown(target, *ids)
            os.makedirs(target, 0o755, exist_ok=True)
            unpacker = _Unpacker(target, ids, request["mode"])
            limited = HeaderStream(stream)
            limited.allow(MOST_HEADERS)
            through = cast(BinaryIO, limited)
            with tarfile.open(fileobj=through, mode="r|", tarinfo=CheckedMember) as archive:
                for member in members_of(archive, limited):
                    unpacker.put(archive, member)
            unpacker.finish()
        except (tarfile.TarError, EOFError, RecursionError) as error:
            raise BrokenArchiveError(f"not a tar archive, or damaged: {error}") from error
        except UnknownUserError as error:
            raise BrokenArchiveError(str(error)) from error
        # The sender may still have padding to write.
        while stream.read(_CHUNK):
            pass
    return {}


def _find_ids(owner: str) -> tuple[int, int]:
    """Return user and group by Docker's rules for --chown."""
    user, _, group = owner.partition(":")
    if not group and user.isdecimal():
        group = user
    found = find_user(f"{user}:{group}" if group else user)
    return found.uid, found.gid


class _Unpacker:
    """Writes members of an archive below a directory."""

    def __init__(self, top: str, ids: tuple[int, int] | None, mode: int | None) -> None:
        self._top = top
        self._ids = ids
        self._mode = mode
        # Times of directories, which change until everything is in them.
        self._times: list[tuple[str, float]] = []

    def put(self, archive: tarfile.TarFile, member: tarfile.TarInfo) -> None:
        """Write one member."""
        path = self._place(member.name)
        if path == self._top:
            return
        if not member.isdir():
            os.makedirs(posixpath.dirname(path), 0o755, exist_ok=True)
            with suppress(FileNotFoundError):
                os.unlink(path)
        kinds: Sequence[tuple[Callable[[], bool], Callable[[], None]]] = (
            (member.isdir, lambda: self._make_directory(path, member)),
            (member.issym, lambda: os.symlink(member.linkname, path)),
            (member.islnk, lambda: os.link(self._place(member.linkname), path)),
            (member.isreg, lambda: _write_file(archive, member, path)),
        )
        for is_kind, write in kinds:
            if is_kind():
                write()
                break
        else:
            raise BrokenArchiveError(f"{member.name}: neither a file, a directory nor a link")
        if not member.islnk():
            self._dress(path, member)

    def finish(self) -> None:
        """Set the times of directories."""
        for path, time in reversed(self._times):
            os.utime(path, (time, time))

    def _place(self, name: str) -> str:
        clean = posixpath.normpath(name.lstrip("/") or ".")
        if clean == ".." or clean.startswith("../"):
            raise BrokenArchiveError(f"{name}: leads out of the archive")
        return self._top if clean == "." else posixpath.join(self._top, clean)

    def _make_directory(self, path: str, member: tarfile.TarInfo) -> None:
        if not os.path.isdir(path):
            with suppress(FileNotFoundError):
                os.unlink(path)
            os.makedirs(path, 0o755)
        self._times.append((path, member.mtime))

    def _dress(self, path: str, member: tarfile.TarInfo) -> None:
        os.chown(path, *(self._ids or (member.uid, member.gid)), follow_symlinks=member.isdir())
        if member.issym():
            return
        # After the owner, whose change clears set-user-id bits and capabilities.
        os.chmod(path, member.mode & 0o7777 if self._mode is None else self._mode)
        for name, value in _attributes_of(member):
            try:
                os.setxattr(path, name, value)
            except OSError as error:
                # As a user without rights: what Docker ignores as well.
                if error.errno not in (errno.ENOTSUP, errno.EPERM):
                    raise
        if not member.isdir():
            os.utime(path, (member.mtime, member.mtime))


def _write_file(archive: tarfile.TarFile, member: tarfile.TarInfo, path: str) -> None:
    source: Any = archive.extractfile(member)
    with open(path, "xb", opener=_create_file) as target:
        # Long runs of zeros become holes.
        while data := source.read(_CHUNK):
            if data.strip(b"\0"):
                target.write(data)
            else:
                target.seek(len(data), os.SEEK_CUR)
        target.truncate()


def _create_file(path: str, _flags: int) -> int:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    return os.open(path, flags, 0o600)


def _attributes_of(member: tarfile.TarInfo) -> Iterator[tuple[str, bytes]]:
    for key, value in member.pax_headers.items():
        name = key.removeprefix(_XATTR)
        if key.startswith(_XATTR) and name.startswith(_KEPT):
            yield name, bytes.fromhex(value)


OPERATIONS: dict[str, Callable[[dict[str, Any], list[int]], Message]] = {
    "find_sources": _find_sources,
    "pack_tar": _pack_tar,
    "unpack_tar": _unpack_tar,
}
"""Operations by the name in a request."""
