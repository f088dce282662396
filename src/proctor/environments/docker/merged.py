"""Files of a container whose root lies on this machine: seen from a thread that sees nothing else.

The thread has a root directory of its own, as chroot gives one: what the agent planted, links above
all, leads it nowhere but inside. It is faster than `docker cp`, and only root can do it. What
such a thread does must import nothing: it would find the agent's modules.
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
from proctor.environments.sandbox.box import MOST_ENTRIES, MOST_LISTED
from proctor.environments.sandbox.channel import close_all
from proctor.environments.sandbox.file_ops import OPERATIONS
from proctor.environments.sandbox.transfer import Seen, pack_into, receive_listing
from proctor.environments.sandbox.unpack import unpack
from proctor.environments.sandbox.users import User, find_user
from proctor.errors import ContainerDiedError, DockerError

_PIECE = 1 << 18


def is_mounted_here(directory: str) -> bool:
    """Whether a container's root can be seen and entered by this process."""
    # Not by the kernel's list of mounts: while others mount, a reader of it may miss some.
    return os.geteuid() == 0 and bool(directory) and Path(directory).is_mount()


class MergedFiles:
    """The files below a directory that is somebody's root."""

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
        return await self._send("take", request, lambda file: unpack(file, target, name, limits))

    async def list_files(self, places: Sequence[str], n_files: int) -> Sequence[Seen]:
        """See Files."""
        request: dict[str, object] = {"places": list(places)}
        request |= {"n_files": n_files, "n_bytes": MOST_LISTED}
        return await self._send("list_files", request, receive_listing)

    async def kind_of(self, path: str) -> str | None:
        """See Files."""
        kind = (await self._do(lambda: OPERATIONS["kind_of"]({"path": path}, [])))["kind"]
        return None if kind is None else str(kind)

    async def open_directories(self, paths: Sequence[str]) -> None:
        """See Files."""
        await self._do(lambda: OPERATIONS["make_directories"]({"paths": list(paths)}, []))

    async def remove(self, paths: Sequence[str]) -> None:
        """Remove files, those that are there."""
        await self._do(lambda: OPERATIONS["remove"]({"paths": list(paths)}, []))

    async def mark(self, script: str) -> bool:
        """See Files; running it will say what else is wrong with it."""
        await self._do(lambda: _mark(script))
        return True

    async def find_user(self, name: str) -> User:
        """Who a name is in this root.

        Raises:
            UnknownUserError: nobody.
        """
        return await self._do(lambda: find_user(name))

    async def _send[Made](
        self, operation: str, request: dict[str, object], work: Callable[..., Made]
    ) -> Made:
        """Have something packed in the root, and unpacked here."""
        ours, theirs = os.pipe2(os.O_CLOEXEC)
        reading = asyncio.get_running_loop().run_in_executor(None, _read, ours, work)
        files = [theirs]
        sending = self._do(lambda: OPERATIONS[operation](request, files), files)
        made, sent = await asyncio.gather(reading, sending, return_exceptions=True)
        _raise_first([each for each in (sent, made) if isinstance(each, BaseException)])
        return made  # type: ignore[return-value]

    async def _do[Made](self, deed: Callable[[], Made], files: list[int] | None = None) -> Made:
        """Do something in a thread whose root directory is this one; it ends with the deed.

        Of `files` what the deed did not take is closed: whoever is at the other end hears of it.
        """
        loop = asyncio.get_running_loop()
        done: asyncio.Future[Made] = loop.create_future()
        # No thread of a pool: nobody else must ever get this one.
        threading.Thread(target=_do_inside, args=(self._root, deed, loop, done)).start()
        try:
            return await asyncio.shield(done)
        except Exception:
            close_all(files or [])
            raise


def _do_inside[Made](
    root: str,
    deed: Callable[[], Made],
    loop: asyncio.AbstractEventLoop,
    done: "asyncio.Future[Made]",
) -> None:
    made: Made | None = None
    failed: BaseException | None = None
    try:
        _enter(root)
        made = deed()
    except BaseException as error:  # noqa: BLE001 - it is raised again by whoever waits
        failed = error
    with suppress(RuntimeError):
        loop.call_soon_threadsafe(_settle, done, made, failed)


def _enter(root: str) -> None:
    os.unshare(os.CLONE_FS)
    try:
        os.chroot(root)
    except FileNotFoundError as error:
        # The engine takes it away when the container's first process has ended.
        raise ContainerDiedError(
            f"{root}: No such file or directory: its container ended"
        ) from error
    os.chdir("/")


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
    """Raise what counts of two errors: a broken pipe only says that the other side has failed."""
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
