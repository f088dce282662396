"""Scratch that serves one sandbox after the other.

To make and to delete directories on a disk takes longer than all else that a short sandbox does. So
what one leaves is emptied, and serves the next one with the same root file system. Emptied means as
new: whatever cannot be seen to be so is deleted, and another is made.

    take    scratch for a sandbox: emptied, or new
    give    it back when everything in the sandbox is dead; it is emptied beside the event loop
    close   delete all of it

Nothing here mounts anything.
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

# Making a directory as new again that a stranger wrote in: no entry, mode, owner or attribute
#
# Gives up where that would take long; what is left then is for delete.py.


_MOST_ENTRIES = 500
_GET_FLAGS = 0x80086601
_KERNELS = "trusted.overlay."
"""Attributes that the kernel itself sets on an overlay's upper directory; nobody inside can."""
_OPEN = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class Stamp(NamedTuple):
    """All that a directory has besides its entries."""

    mode: int
    uid: int
    gid: int
    flags: int
    """What lsattr shows."""
    attributes: tuple[tuple[str, bytes], ...]
    """Extended ones, access lists among them; not those that only the kernel sets."""
    changed_ns: tuple[int, int]
    """When an entry was last made or removed, and when anything about it was last changed. Nobody
    can set the second."""


def stamp_of(directory: str) -> Stamp:
    """What a directory is like now.

    Raises:
        OSError: it is not there, or a link.
    """
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
    """Whether nothing was ever made or changed in a directory since its stamp was taken."""
    return stamp_of(directory) == like and not os.listdir(directory)


def forget_reading(directory: str) -> None:
    """Have a directory not tell when somebody last listed it."""
    os.utime(directory, ns=(0, os.stat(directory).st_mtime_ns))


def make_like(directory: str, like: Stamp) -> bool:
    """Give an empty directory looks and times; False where it keeps something else."""
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
    """Delete all that is in a directory; False where it is too much to wait for.

    Raises:
        OSError: something cannot be deleted so.
    """
    return _empty(directory, _MOST_ENTRIES) >= 0


def _empty(directory: str, most: int) -> int:
    """How many more may be deleted; less than none: it was given up."""
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


_MOST_IDLE = 64
"""How many wait for another sandbox; more are deleted."""
_MOST_SERVED = 16
"""How many sandboxes have the same scratch; see _spread in scratch.py for what many would cost."""
_LITTLE = 256 << 20
"""A disk with fewer free bytes is nearly full."""
_LONGEST_QUEUE = 32
"""How many wait to be emptied before whoever gives one back has to wait."""

KEPT_STATES = ("frozen", "clean")
"""Copies of what a trial left, in its sandbox's scratch; see frozen.py."""

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Slot:
    """The scratch of one sandbox, with a pair of directories for each overlay."""

    session: Session
    root: Parts
    """The root file system that it is for."""
    parts: tuple[Part, ...]
    stamps: tuple[Stamp, ...]
    """What each upper directory was like before anything of a trial ran."""
    n_served: int = 0
    """How many sandboxes have had it."""
    is_for_one: bool = False
    """No other sandbox is to have it: its root file system is one trial's own."""
    ids: Range | None = None
    """The ids of its sandboxes' users on the host, if not those that they have inside; overlays
    that are kept are mapped to them."""

    @property
    def uppers(self) -> Mapping[str, str]:
        """Where each overlay is mounted inside, and what takes its changes."""
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
        self, run: Run, name: str, root: Parts, *, is_for_one: bool = False, has_ids: bool = False
    ) -> Slot:
        """Scratch for a sandbox on that root; `has_ids`: with a range of ids.

        Raises:
            OSError: there is none, and none can be made.
            SandboxError: there are no ids.
        """
        with self._lock:
            for slot in self._idle:
                if slot.root == root and (slot.ids is not None) == has_ids and not is_for_one:
                    self._idle.remove(slot)
                    return slot
        slot = _make_slot(run, name, root, is_for_one=is_for_one)
        if not has_ids:
            return slot
        try:
            return replace(slot, ids=take_range())
        except BaseException:
            delete_session(slot.session.directory)
            raise

    async def give(self, slot: Slot) -> None:
        """Take it back; everything in its sandbox is dead.

        Raises:
            OSError: it cannot even be told that nobody uses it any more.
        """
        slot.session.retire_note()
        is_full = _is_nearly_full(slot.session.directory)
        self._queue.append(self._janitor.submit(self._renew, slot))
        while self._queue and self._queue[0].done():
            self._queue.popleft()
        if self._queue and is_full:
            # What filled the disk must be gone before the next sandbox needs some of it.
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
        """Delete one that no other sandbox is to have; waits for nothing."""
        self._janitor.submit(_delete, slot)

    def close(self) -> None:
        """Delete all of it; what is given back from now on is deleted as well."""
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


def _make_slot(run: Run, name: str, root: Parts, *, is_for_one: bool) -> Slot:
    session = run.open_session(name)
    try:
        return _furnish(session, root, is_for_one=is_for_one)
    except BaseException:
        delete_session(session.directory)
        raise


def _furnish(session: Session, root: Parts, *, is_for_one: bool) -> Slot:
    parts, stamps = [], []
    for number, (target, lowers) in enumerate(root):
        upper, work = session.add_part(number, Path(lowers[0]))
        mounted = ""
        # The first one is changed by every sandbox; of the others most are left as they were.
        if number > 0 and is_all_powerful() and not is_for_one:
            mounted = str(upper.with_name("mounted"))
            os.mkdir(mounted)
        parts.append(Part(target, tuple(map(str, lowers)), str(upper), str(work), mounted))
        stamps.append(stamp_of(str(upper)))
    return Slot(session, root, tuple(parts), tuple(stamps), is_for_one=is_for_one)


def stamp_again(slot: Slot) -> Slot:
    """The slot of a sandbox that was just built: mounting sets attributes, and so times."""
    return replace(slot, stamps=tuple(stamp_of(part.upper) for part in slot.parts))


def _is_renewed(slot: Slot) -> bool:
    """Empty it; False where it does not become as new by that."""
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
