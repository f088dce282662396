"""Accesses the files of a container whose root is on this machine, from a chrooted thread.

The thread has its own root directory, so that symlinks of the agent stay inside. It is faster than
`docker cp`, and requires root. Code in such a thread must not import anything: it would find the
agent's modules.
"""

import asyncio
import os
import stat
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from proctor.environments.docker.files import MOST_BYTES
from proctor.environments.sandbox.archive import BrokenArchiveError, Limits
from proctor.environments.sandbox.box import MOST_ENTRIES, MOST_LISTED, seen_in
from proctor.environments.sandbox.channel import close_all
from proctor.environments.sandbox.file_ops import OPERATIONS
from proctor.environments.sandbox.transfer import pack_into
from proctor.environments.sandbox.unpack import unpack
from proctor.environments.sandbox.users import User, find_user
from proctor.errors import ContainerDiedError, DockerError
from proctor.trial.environment import SeenFile

_PIECE = 1 << 18


def is_mounted_here(directory: str) -> bool:
    """Whether this process can access and enter a container's root."""
    # Not with /proc/mounts: while other processes mount, a reader may miss entries.
    return os.geteuid() == 0 and bool(directory) and Path(directory).is_mount()


class MergedFiles:
    """The files of a container's root directory."""

    def __init__(self, root: str) -> None:
        self._root = root

    async def put(self, source: Path, target: str) -> None:
        """See Files."""
        theirs, ours = os.pipe2(os.O_CLOEXEC)
        request: dict[str, object] = {"target": target, "name": source.name}
        packing = asyncio.get_running_loop().run_in_executor(None, pack_into, ours, source)
        files = [theirs]
        putting = self._do(lambda: OPERATIONS["put"](request, files), files)
        failed = await asyncio.gather(packing, putting, return_exceptions=True)
        _raise_first([each for each in failed if isinstance(each, BaseException)])

    async def take(self, source: str, target: Path) -> tuple[str, ...]:
        """See Files."""
        limits = Limits(MOST_BYTES, MOST_ENTRIES)
        name = source.rstrip("/").rpartition("/")[2]
        request: dict[str, object] = {"source": source}
        request |= {"n_bytes": limits.n_bytes, "n_entries": limits.n_entries}
        ours, theirs = os.pipe2(os.O_CLOEXEC)
        reading = asyncio.get_running_loop().run_in_executor(
            None, _read, ours, lambda file: unpack(file, target, name, limits)
        )
        files = [theirs]
        sending = self._do(lambda: OPERATIONS["take"](request, files), files)
        made, sent = await asyncio.gather(reading, sending, return_exceptions=True)
        _raise_first([each for each in (sent, made) if isinstance(each, BaseException)])
        return made  # type: ignore[return-value]

    async def list_files(self, places: Sequence[str], n_files: int) -> Sequence[SeenFile]:
        """See Files."""
        request: dict[str, object] = {"places": list(places)}
        request |= {"n_files": n_files, "n_bytes": MOST_LISTED}
        return seen_in(await self._do(lambda: OPERATIONS["list_files"](request, [])))

    async def kind_of(self, path: str) -> str | None:
        """See Files."""
        kind = (await self._do(lambda: OPERATIONS["kind_of"]({"path": path}, [])))["kind"]
        return None if kind is None else str(kind)

    async def open_directories(self, paths: Sequence[str]) -> None:
        """See Files."""
        await self._do(lambda: OPERATIONS["make_directories"]({"paths": list(paths)}, []))

    async def remove(self, paths: Sequence[str]) -> None:
        """Remove files, if they exist."""
        await self._do(lambda: OPERATIONS["remove"]({"paths": list(paths)}, []))

    async def mark(self, script: str) -> bool:
        """See Files; errors are ignored, because running the script reports them."""
        await self._do(lambda: _mark(script))
        return True

    async def find_user(self, name: str) -> User:
        """Find a user in this root."""
        return await self._do(lambda: find_user(name))

    async def _do[Made](self, action: Callable[[], Made], files: list[int] | None = None) -> Made:
        """Run `action` in a new thread whose root directory is this one.

        On failure, `files` that it did not close are closed, so that the other end notices.
        """

        def enter_and_act() -> Made:
            os.unshare(os.CLONE_FS)
            try:
                os.chroot(self._root)
            except FileNotFoundError as error:
                # The engine unmounts it when the container's first process ends.
                raise ContainerDiedError(
                    f"{self._root}: No such file or directory: its container ended"
                ) from error
            os.chdir("/")
            return action()

        try:
            return await run_apart(enter_and_act)
        except Exception:  # whatever was raised, nobody else closes them; raised again
            close_all(files or [])
            raise


async def run_apart[Made](action: Callable[[], Made]) -> Made:
    """Run `action` in a new thread, which may change its root directory."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[Made] = loop.create_future()
    # Not from a pool: a chrooted thread must never be reused.
    threading.Thread(target=_act, args=(action, loop, done)).start()
    return await asyncio.shield(done)


def _act[Made](
    action: Callable[[], Made], loop: asyncio.AbstractEventLoop, done: "asyncio.Future[Made]"
) -> None:
    made: Made | None = None
    failed: BaseException | None = None
    try:
        made = action()
    except BaseException as error:  # noqa: BLE001 - raised again in the waiting task
        failed = error
    with suppress(RuntimeError):
        loop.call_soon_threadsafe(_settle, done, made, failed)


def _settle(done: "asyncio.Future[Any]", made: object, failed: BaseException | None) -> None:
    if done.cancelled():
        return
    if failed is None:
        done.set_result(made)
    else:
        done.set_exception(failed)


def _read[Made](pipe: int, work: Callable[..., Made]) -> Made:
    with os.fdopen(pipe, "rb", _PIECE) as stream:
        return work(stream)


def _raise_first(failed: Sequence[BaseException]) -> None:
    """Raise the cause: a broken pipe or archive is only a consequence of the other side's error."""
    if not failed:
        return
    broken = (BrokenPipeError, BrokenArchiveError)
    first = next((each for each in failed if not isinstance(each, broken)), failed[0])
    if isinstance(first, BrokenArchiveError):
        raise DockerError(str(first)) from first
    raise first


def _mark(script: str) -> None:
    place = Path(script)
    with suppress(OSError):
        place.chmod(stat.S_IMODE(place.stat().st_mode) | 0o111)
