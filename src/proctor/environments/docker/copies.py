"""Copies files with `docker cp`, which works with any engine and for any user.

Output is untrusted, and unpacked by the same code as the sandbox's.
"""

import asyncio
import io
import os
import tarfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import BinaryIO, cast

from proctor.digest import sha256_pieces
from proctor.environments.docker.files import MOST_BYTES
from proctor.environments.docker.program import end_call, explain, run_docker, start_docker
from proctor.environments.sandbox.archive import (
    DIRECTORY,
    END,
    FILE,
    LINK,
    REFUSED,
    BrokenArchiveError,
    Limits,
    pack_head,
)
from proctor.environments.sandbox.box import MOST_ENTRIES, MOST_LISTED
from proctor.environments.sandbox.transfer import BYTES_PER_SEC, PATIENCE_SEC, explain_slow
from proctor.environments.sandbox.unpack import unpack
from proctor.errors import DockerError, EngineError, SlowTransferError
from proctor.trial.environment import SeenFile

# Converts the tar of `docker cp` to the sandbox's archive format, so that one module unpacks both
#
# Only regular files, directories and symlinks are passed on; the rest is listed as refused. Names
# are relative to the requested path.


_PIECE = 1 << 18


class TarArchive(io.RawIOBase):
    """A tar stream, read as an archive."""

    def __init__(self, stream: BinaryIO, limits: Limits) -> None:
        self._pieces = _pieces_of(stream, limits)
        self._rest = b""

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        """Read as many bytes as are available, up to the buffer's size."""
        while not self._rest:
            piece = next(self._pieces, None)
            if piece is None:
                return 0
            self._rest = piece
        n_taken = min(len(buffer), len(self._rest))
        buffer[:n_taken] = self._rest[:n_taken]
        self._rest = self._rest[n_taken:]
        return n_taken


def open_tar(stream: BinaryIO) -> tarfile.TarFile:
    """Open a tar stream, which can be read once.

    Raises:
        BrokenArchiveError: it is not a tar.
    """
    try:
        return tarfile.open(fileobj=stream, mode="r|", bufsize=_PIECE, errorlevel=2)
    except (tarfile.TarError, EOFError) as error:
        raise BrokenArchiveError(f"the container's output is not a tar archive: {error}") from error


def _pieces_of(stream: BinaryIO, limits: Limits) -> Iterator[bytes]:
    try:
        with open_tar(stream) as tar:
            n_bytes = 0
            for number, member in enumerate(tar):
                name = below_top(member.name)
                if limits.n_entries is not None and number >= limits.n_entries:
                    yield _refused(name, f"more than {limits.n_entries} entries; the rest is left")
                    break
                if member.isreg() and limits.n_bytes is not None:
                    n_bytes += member.size
                    if n_bytes > limits.n_bytes:
                        n_bytes -= member.size
                        yield _refused(name, f"{member.size} bytes, which is over the limit")
                        continue
                yield from _entry_of(tar, member, name)
    except (tarfile.TarError, EOFError) as error:
        raise BrokenArchiveError(f"the container's output is not a tar archive: {error}") from error
    yield pack_head(END, "", (0, 0, 0))


def below_top(name: str) -> str:
    """Return a member's name without its first part, which is the requested path itself."""
    return name.rstrip("/").partition("/")[2]


def _entry_of(tar: tarfile.TarFile, member: tarfile.TarInfo, name: str) -> Iterator[bytes]:
    facts = (member.mode & 0o7777, int(member.mtime * 1_000_000_000))
    if member.isdir():
        yield pack_head(DIRECTORY, name, (*facts, 0))
    elif member.issym():
        target = os.fsencode(member.linkname)
        yield pack_head(LINK, name, (*facts, len(target))) + target
    elif member.isreg() and (file := tar.extractfile(member)) is not None:
        yield pack_head(FILE, name, (*facts, member.size))
        while data := file.read(_PIECE):
            yield data
    elif member.islnk():
        yield _refused(name, f"another name of {below_top(member.linkname)}")
    else:
        yield _refused(name, "neither a file, a directory nor a link")


def _refused(name: str, reason: str) -> bytes:
    text = reason.encode()
    return pack_head(REFUSED, name, (0, 0, len(text))) + text


# Without the set-user-id and set-group-id bits.
_KEPT_BITS = 0o1777
# How different versions of Docker report a missing path.
_ABSENT = ("no such file", "could not find the file", "not found", "no such directory")


class CopiedFiles:
    """The files of a container, given its name."""

    def __init__(self, container: str) -> None:
        self._container = container

    async def put(self, source: Path, target: str) -> None:
        """See Files."""
        is_into = target.endswith("/") or (
            not source.is_dir() and await self.kind_of(target) == "directory"
        )
        place = f"{target}/{source.name}" if is_into and not source.is_dir() else target
        theirs, ours = os.pipe2(os.O_CLOEXEC)
        packing = asyncio.get_running_loop().run_in_executor(None, _pack, ours, source, place)
        try:
            process = await start_docker(["cp", "-", f"{self._container}:/"], stdin=theirs)
        finally:
            os.close(theirs)
        try:
            _, err = await process.communicate()
        finally:
            await end_call(process)
            await asyncio.wait([packing])
        fault = packing.exception()
        if fault is not None and not isinstance(fault, BrokenPipeError):
            raise fault
        if process.returncode != 0:
            raise explain("cp", err.decode(errors="replace"))

    async def take(self, source: str, target: Path) -> tuple[str, ...]:
        """See Files."""
        limits = Limits(MOST_BYTES, MOST_ENTRIES)
        name = source.rstrip("/").rpartition("/")[2]

        def work(stream: BinaryIO) -> tuple[str, ...]:
            archive = io.BufferedReader(TarArchive(stream, limits), _PIECE)
            return unpack(cast("BinaryIO", archive), target, name, limits)

        # The engine sends holes as zeros, so allow the time for the largest possible download.
        seconds = PATIENCE_SEC + MOST_BYTES / BYTES_PER_SEC
        limit = asyncio.timeout(seconds)
        try:
            async with limit:
                return await self._read(source, work)
        except TimeoutError as error:
            if not limit.expired():
                raise
            raise SlowTransferError(explain_slow(seconds)) from error

    async def list_files(self, places: Sequence[str], n_files: int) -> Sequence[SeenFile]:
        """See Files."""
        seen: list[SeenFile] = []
        for place in places:
            if len(seen) < n_files:
                look = partial(_list, place=place, n_files=n_files - len(seen))
                with suppress(FileNotFoundError):
                    seen += await self._read(place, look)
        return seen

    async def kind_of(self, path: str) -> str | None:
        """See Files."""
        try:
            return await self._read(path, _first_kind)
        except FileNotFoundError:
            return None

    async def open_directories(self, paths: Sequence[str]) -> None:
        """See Files."""
        made = io.BytesIO()
        with tarfile.open(fileobj=made, mode="w") as tar:
            for path in paths:
                member = tarfile.TarInfo(path.lstrip("/"))
                member.type, member.mode = tarfile.DIRTYPE, 0o777
                tar.addfile(member)
        await run_docker("cp", "-", f"{self._container}:/", data=made.getvalue())

    async def mark(self, script: str) -> bool:
        """Return False: `docker cp` cannot do it, a command has to."""
        return False

    async def _read[Made](self, source: str, work: Callable[[BinaryIO], Made]) -> Made:
        """Return the result of `work` on the tar of a path; the rest of the tar is not read."""
        ours, theirs = os.pipe2(os.O_CLOEXEC)
        words = ["cp", "--follow-link", f"{self._container}:{source}", "-"]
        try:
            process = await start_docker(words, stdout=theirs)
        except BaseException:
            os.close(ours)
            raise
        finally:
            os.close(theirs)
        reading = asyncio.get_running_loop().run_in_executor(None, _work_on, ours, work)
        try:
            made = await asyncio.shield(reading)
        except (BrokenArchiveError, _EmptyError) as error:
            raise await self._fault_of(process, source, error) from error
        finally:
            await end_call(process)
            await asyncio.wait([reading])
            await process.wait()
        return made

    async def _fault_of(
        self, process: asyncio.subprocess.Process, source: str, error: Exception
    ) -> Exception:
        """Return the cause of a failure, from the docker program's output."""
        end = process.stderr
        said = (await end.read() if end else b"").decode(errors="replace")
        fault = explain("cp", said) if said.strip() else DockerError(str(error))
        if isinstance(fault, EngineError):
            return fault
        if any(words in said.lower() for words in _ABSENT) and "no such container" not in (
            said.lower()
        ):
            return FileNotFoundError(2, f"{source}: not in the container", source)
        return fault


class _EmptyError(Exception):
    """docker cp sent no data."""


def _work_on[Made](pipe: int, work: Callable[[BinaryIO], Made]) -> Made:
    with io.BufferedReader(io.FileIO(pipe), _PIECE) as stream:
        if not stream.peek(1):
            raise _EmptyError("docker cp sent nothing")
        return work(cast("BinaryIO", stream))


def _first_kind(stream: BinaryIO) -> str:
    with open_tar(stream) as tar:
        member = next(iter(tar))
    return "file" if member.isreg() else "directory" if member.isdir() else "other"


def _list(stream: BinaryIO, place: str, n_files: int) -> list[SeenFile]:
    """List the files in the tar of a path, with digests of those that are not too large."""
    seen: list[SeenFile] = []
    n_left = MOST_LISTED
    with open_tar(stream) as tar:
        for member in tar:
            if member.isdir():
                continue
            if len(seen) >= n_files:
                break
            name = below_top(member.name)
            path = f"{place.rstrip('/')}/{name}" if name else place
            digest = None
            if member.isreg() and member.size <= n_left and (file := tar.extractfile(member)):
                n_left -= member.size
                digest = sha256_pieces(iter(lambda file=file: file.read(_PIECE), b""))  # type: ignore[misc]
            seen.append(SeenFile(path, member.size if member.isreg() else None, digest))
    return seen


def _pack(pipe: int, source: Path, target: str) -> None:
    """Write the tar of a file, or of a directory's contents, to be unpacked at a path."""
    with (
        os.fdopen(pipe, "wb", _PIECE) as stream,
        tarfile.open(fileobj=stream, mode="w|", bufsize=_PIECE) as tar,
    ):
        top = target.strip("/")
        if not source.is_dir():
            tar.add(source.resolve(), top, recursive=False, filter=_as_roots)
            return
        names = sorted(path.name for path in source.iterdir())
        if not names:
            # Add the directory itself only if it is empty: an existing one keeps its mode.
            tar.add(source.resolve(), top, recursive=False, filter=_as_roots)
        for name in names:
            tar.add(source / name, f"{top}/{name}".lstrip("/"), filter=_as_roots)


def _as_roots(member: tarfile.TarInfo) -> tarfile.TarInfo:
    """Make a member belong to root, without set-user-id and set-group-id bits."""
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    member.mode &= _KEPT_BITS
    return member
