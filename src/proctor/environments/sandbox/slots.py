"""Scratch directories that one sandbox after the other uses.

Making and deleting directories on a disk takes longer than everything else in a short sandbox. So
the scratch of a sandbox is emptied, and reused by the next one with the same root file system. It
must be exactly as new: if that cannot be verified, it is deleted and another is made.

    take    get scratch for a sandbox: emptied, or new
    give    return it after all processes of the sandbox have ended; a thread empties it
    close   delete all of it
"""

import asyncio
import fcntl
import logging
import os
import stat
import struct
import threading
from collections import deque
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from proctor.environments.sandbox.blueprint import Part
from proctor.environments.sandbox.privileges import is_all_powerful
from proctor.environments.sandbox.ranges import Range, take_range
from proctor.environments.sandbox.reap import delete_session
from proctor.environments.sandbox.roots.layers import Parts
from proctor.environments.sandbox.scratch import Run, Session
from proctor.environments.sandbox.storage import mount_storage

# Restoring a directory to new: entries, mode, owner and attributes, which are all untrusted
#
# Gives up if that would take long; delete.py removes the rest.


_MOST_ENTRIES = 500
# FS_IOC_GETFLAGS.
_GET_FLAGS = 0x80086601
# Attributes that the kernel sets on an overlay's upper directory; processes inside cannot.
_KERNELS = "trusted.overlay."
_OPEN = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class Stamp(NamedTuple):
    """Metadata of a directory."""

    mode: int
    uid: int
    gid: int
    flags: int
    """Inode flags, as lsattr shows them."""
    attributes: tuple[tuple[str, bytes], ...]
    """Extended attributes, including ACLs, without those that only the kernel sets."""
    changed_ns: tuple[int, int]
    """mtime and ctime. No process can set the ctime."""


def stamp_of(directory: str) -> Stamp:
    """Read the metadata of a directory."""
    fd = os.open(directory, _OPEN)
    try:
        found = os.fstat(fd)
        names = [name for name in os.listxattr(fd) if not name.startswith(_KERNELS)]
        return Stamp(
            mode=stat.S_IMODE(found.st_mode),
            uid=found.st_uid,
            gid=found.st_gid,
            flags=_flags_of(fd),
            attributes=tuple(sorted((name, os.getxattr(fd, name)) for name in names)),
            changed_ns=(found.st_mtime_ns, found.st_ctime_ns),
        )
    finally:
        os.close(fd)


def _flags_of(fd: int) -> int:
    try:
        return int(struct.unpack("=q", fcntl.ioctl(fd, _GET_FLAGS, bytes(8)))[0])
    except OSError:
        # A file system without such flags.
        return 0


def is_pristine(directory: str, like: Stamp) -> bool:
    """Whether a directory is empty, and was never changed since its stamp was taken."""
    return stamp_of(directory) == like and not os.listdir(directory)


def forget_reading(directory: str) -> None:
    """Reset the access time of a directory."""
    os.utime(directory, ns=(0, os.stat(directory).st_mtime_ns))


def make_like(directory: str, like: Stamp) -> bool:
    """Restore the metadata of an empty directory; return False if something still differs."""
    fd = os.open(directory, _OPEN)
    try:
        for name in os.listxattr(fd):
            os.removexattr(fd, name)
        found = os.fstat(fd)
        if (found.st_uid, found.st_gid) != (like.uid, like.gid):
            os.fchown(fd, like.uid, like.gid)
        if stat.S_IMODE(found.st_mode) != like.mode:
            os.fchmod(fd, like.mode)
        os.utime(fd, ns=(like.changed_ns[0],) * 2)
    finally:
        os.close(fd)
    return stamp_of(directory)._replace(changed_ns=like.changed_ns) == like


def empty(directory: str) -> bool:
    """Delete the contents of a directory; return False, midway, if it has too many entries."""
    return _empty(directory, _MOST_ENTRIES) >= 0


def _empty(directory: str, most: int) -> int:
    """Return how many more entries may be deleted; negative if it gave up."""
    with os.scandir(directory) as found:
        entries = list(found)
    for entry in entries:
        most -= 1
        if most < 0:
            break
        if not entry.is_dir(follow_symlinks=False):
            os.unlink(entry.path)
            continue
        most = _empty(entry.path, most)
        if most >= 0:
            os.rmdir(entry.path)
    return most


# Idle slots that are kept; more are deleted.
_MOST_IDLE = 64
# Sandboxes that use the same scratch; see _spread in scratch.py for the cost of more.
_MOST_SERVED = 16
# Free bytes below which a disk counts as nearly full.
_LITTLE = 256 << 20
# Slots that wait to be emptied before `give` has to wait.
_LONGEST_QUEUE = 32

KEPT_STATES = ("frozen", "clean")
"""Directories for copies of what a trial left, in its sandbox's scratch."""

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Slot:
    """The scratch of one sandbox, with a pair of directories for each overlay."""

    session: Session
    root: Parts
    """Its root file system."""
    parts: tuple[Part, ...]
    stamps: tuple[Stamp, ...]
    """Metadata of each upper directory before the trial."""
    n_served: int = 0
    """Number of sandboxes that have used it."""
    is_for_one: bool = False
    """Never reused: its root file system belongs to one trial, or its storage is limited."""
    device: str = ""
    """The file system of its upper directories, if storage is limited."""
    ids: Range | None = None
    """Host ids of its sandboxes' users, if they differ from those inside; reused overlays are
    mapped to them."""

    @property
    def uppers(self) -> Mapping[str, str]:
        """Upper directory of each overlay, by its mount point inside."""
        return {part.target: part.upper for part in self.parts}


class Slots:
    """Scratch for the sandboxes of one zygote."""

    def __init__(self) -> None:
        self._idle: deque[Slot] = deque()
        self._lock = threading.Lock()
        self._janitor = ThreadPoolExecutor(1, thread_name_prefix="scratch")
        self._queue: deque[Future[None]] = deque()
        self._is_closed = False

    def take(
        self,
        run: Run,
        name: str,
        root: Parts,
        *,
        is_for_one: bool = False,
        has_ids: bool = False,
        storage_mb: int | None = None,
    ) -> Slot:
        """Get scratch for a sandbox with that root; `has_ids`: with its own range of ids.

        Raises:
            OSError: there is none, and none can be made.
            SandboxError: no range of ids is free.
            StepError: its storage cannot be limited.
        """
        # Otherwise idle slots would keep the space that is reserved for them.
        is_for_one = is_for_one or storage_mb is not None
        with self._lock:
            for slot in self._idle:
                if slot.root == root and (slot.ids is not None) == has_ids and not is_for_one:
                    self._idle.remove(slot)
                    return slot
        slot = _make_slot(run, name, root, is_for_one=is_for_one, storage_mb=storage_mb)
        if not has_ids:
            return slot
        try:
            return replace(slot, ids=take_range())
        except BaseException:
            delete_session(slot.session.directory)
            raise

    async def give(self, slot: Slot) -> None:
        """Return a slot; all processes of its sandbox must have ended."""
        slot.session.retire_note()
        is_full = _is_nearly_full(slot.session.directory)
        self._queue.append(self._janitor.submit(self._renew, slot))
        while self._queue and self._queue[0].done():
            self._queue.popleft()
        if self._queue and (is_full or slot.device):
            # Free the disk before the next sandbox needs it.
            await asyncio.wrap_future(self._queue[-1])
        elif len(self._queue) > _LONGEST_QUEUE:
            await asyncio.wrap_future(self._queue[0])

    def _renew(self, slot: Slot) -> None:
        with suppress(OSError):
            if not slot.is_for_one and slot.n_served + 1 < _MOST_SERVED and _is_renewed(slot):
                with self._lock:
                    if not self._is_closed and len(self._idle) < _MOST_IDLE:
                        self._idle.append(replace(slot, n_served=slot.n_served + 1))
                        return
        _delete(slot)

    def drop(self, slot: Slot) -> None:
        """Delete a slot in the background."""
        self._janitor.submit(_delete, slot)

    def close(self) -> None:
        """Delete all slots; those returned later are deleted as well."""
        with self._lock:
            self._is_closed = True
            idle, self._idle = self._idle, deque()
        for slot in idle:
            self.drop(slot)
        self._janitor.shutdown()


def _is_nearly_full(directory: Path) -> bool:
    found = os.statvfs(directory)
    return found.f_bavail * found.f_frsize < min(found.f_blocks * found.f_frsize // 16, _LITTLE)


def _delete(slot: Slot) -> None:
    try:
        delete_session(slot.session.directory)
    except OSError as error:
        _LOG.warning("%s: cannot be deleted: %s", slot.session.directory, error)
    if slot.ids is not None:
        slot.ids.close()


def _make_slot(
    run: Run, name: str, root: Parts, *, is_for_one: bool, storage_mb: int | None
) -> Slot:
    session, device = run.open_session(name), ""
    try:
        if storage_mb is not None:
            session.parts.mkdir()
            device = mount_storage(session.parts, storage_mb)
        return replace(_furnish(session, root, is_for_one=is_for_one), device=device)
    except BaseException:
        delete_session(session.directory)
        raise


def _furnish(session: Session, root: Parts, *, is_for_one: bool) -> Slot:
    parts, stamps = [], []
    for number, (target, lowers) in enumerate(root):
        upper, work = session.add_part(number, Path(lowers[0]))
        mounted = ""
        # Every sandbox writes to the first overlay, but most leave the others unchanged, so these
        # can stay mounted for the next sandbox.
        if number > 0 and is_all_powerful() and not is_for_one:
            mounted = str(upper.with_name("mounted"))
            os.mkdir(mounted)
        parts.append(Part(target, tuple(map(str, lowers)), str(upper), str(work), mounted))
        stamps.append(stamp_of(str(upper)))
    return Slot(session, root, tuple(parts), tuple(stamps), is_for_one=is_for_one)


def stamp_again(slot: Slot) -> Slot:
    """Take the stamps again after the sandbox was built: mounting changes attributes and times."""
    return replace(slot, stamps=tuple(stamp_of(part.upper) for part in slot.parts))


def _is_renewed(slot: Slot) -> bool:
    """Empty a slot; return whether it is as new."""
    for part, stamp in zip(slot.parts, slot.stamps, strict=True):
        if part.mounted:
            if not is_pristine(part.upper, stamp):
                return False
            forget_reading(part.upper)
        elif not (empty(part.upper) and empty(part.work) and make_like(part.upper, stamp)):
            return False
    return _are_rooms_renewed(slot) and _has_nothing_else(slot)


def _are_rooms_renewed(slot: Slot) -> bool:
    rooms = slot.session.rooms
    try:
        names = os.listdir(rooms)
    except FileNotFoundError:
        return True
    like = stamp_of(rooms)._replace(mode=0o777)
    places = [f"{rooms}/{name}" for name in names]
    return all(empty(place) and make_like(place, like) for place in places)


def _has_nothing_else(slot: Slot) -> bool:
    known = slot.session.names
    for name in os.listdir(slot.session.directory):
        path = slot.session.directory / name
        if name in KEPT_STATES:
            delete_session(path)
        elif name not in known:
            os.unlink(path)
    return True
