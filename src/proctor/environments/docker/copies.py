"""Files in and out of a container by `docker cp`: works with any engine, and for any user.

What comes out is a stranger's, and is unpacked as the sandbox's is.
"""

import asyncio
import io
import os
import tarfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import BinaryIO, cast

from proctor.digest import sha256_pieces
from proctor.environments.docker.files import MOST_BYTES
from proctor.environments.docker.program import end_call, explain, run_docker, start_docker
from proctor.environments.docker.tar_archive import TarArchive, below_top, open_tar
from proctor.environments.sandbox.archive import BrokenArchiveError, Limits
from proctor.environments.sandbox.box import MOST_ENTRIES, MOST_LISTED
from proctor.environments.sandbox.transfer import (
    BYTES_PER_SEC,
    PATIENCE_SEC,
    Seen,
    explain_slow,
)
from proctor.environments.sandbox.unpack import unpack
from proctor.errors import DockerError, EngineError, SlowTransferError

_PIECE = 1 << 18
_KEPT_BITS = 0o1777
_ABSENT = ("no such file", "could not find the file", "not found", "no such directory")


class CopiedFiles:
    """The files of a container, by its name."""

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

        # The engine sends holes as zeros: what may come has the time that it takes.
        seconds = PATIENCE_SEC + MOST_BYTES / BYTES_PER_SEC
        limit = asyncio.timeout(seconds)
        try:
            async with limit:
                return await self._read(source, work)
        except TimeoutError as error:
            if not limit.expired():
                raise
            raise SlowTransferError(explain_slow(seconds)) from error

    async def list_files(self, places: Sequence[str], n_files: int) -> Sequence[Seen]:
        """See Files."""
        seen: list[Seen] = []
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
        """It takes a command."""
        return False

    async def _read[Made](self, source: str, work: Callable[[BinaryIO], Made]) -> Made:
        """Have something done with the tar of a path; the rest of it is not waited for.

        Raises:
            FileNotFoundError: there is nothing at that path.
        """
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
        """What was wrong, by what the docker program said."""
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
    """Nothing came at all."""


def _work_on[Made](pipe: int, work: Callable[[BinaryIO], Made]) -> Made:
    with io.BufferedReader(io.FileIO(pipe), _PIECE) as stream:
        if not stream.peek(1):
            raise _EmptyError("docker cp sent nothing")
        return work(cast("BinaryIO", stream))


def _first_kind(stream: BinaryIO) -> str:
    with open_tar(stream) as tar:
        member = next(iter(tar))
    return "file" if member.isreg() else "directory" if member.isdir() else "other"


def _list(stream: BinaryIO, place: str, n_files: int) -> list[Seen]:
    """The files of a tar of what is at a place, with digests of those that are not too large."""
    seen: list[Seen] = []
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
            seen.append(Seen(path, member.size if member.isreg() else None, digest))
    return seen


def _pack(pipe: int, source: Path, target: str) -> None:
    """Write the tar of a file, or of the contents of a directory, as they are to lie at a path."""
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
            # Whatever is there keeps its mode, but for a directory that stays empty.
            tar.add(source.resolve(), top, recursive=False, filter=_as_roots)
        for name in names:
            tar.add(source / name, f"{top}/{name}".lstrip("/"), filter=_as_roots)


def _as_roots(member: tarfile.TarInfo) -> tarfile.TarInfo:
    """A member as it is to lie in a container: root's, and with no bits that give rights."""
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    member.mode &= _KEPT_BITS
    return member
