"""Finds and removes what killed runs left, after salvaging the evidence.

A live run is never touched: its lock is held, or the process that its name contains exists.
Directories of other users are ignored.
"""

import os
import signal
import stat
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from proctor.environments.sandbox.delete import delete_tree
from proctor.environments.sandbox.limits import PREFIX, find_hierarchies, remove_group
from proctor.environments.sandbox.network import MARK
from proctor.environments.sandbox.roots.host_base import reap_copies
from proctor.environments.sandbox.roots.images import ImageStore
from proctor.environments.sandbox.roots.layers import LayerStore
from proctor.environments.sandbox.salvage import salvage
from proctor.environments.sandbox.scratch import (
    LOCK,
    TEMPORARY,
    RunId,
    Session,
    cache_directory,
    parse_run_id,
    scratch_roots,
)
from proctor.environments.sandbox.storage import free_storage
from proctor.environments.sandbox.subordinate import delete_mapped
from proctor.errors import ImageError, SandboxError
from proctor.files import try_lock
from proctor.filesystems import list_mounts
from proctor.sentence import reason_of

_PATIENCE_SEC = 5.0
_OTHERS_PATIENCE_SEC = 60.0


@dataclass(slots=True)
class Reaped:
    """What was found of dead runs, and what was done about it."""

    runs: list[str] = field(default_factory=list)
    """Names of dead runs that left something."""
    sessions: list[Path] = field(default_factory=list)
    """Deleted scratch directories of sandboxes."""
    processes: list[str] = field(default_factory=list)
    """Killed network helpers: pid and command."""
    cgroups: list[Path] = field(default_factory=list)
    """Removed control groups."""
    containers: list[str] = field(default_factory=list)
    """Removed Docker containers."""
    images: list[str] = field(default_factory=list)
    """Removed Docker images, with the files that agents had left."""
    salvaged: list[Path] = field(default_factory=list)
    """Files that were copied into their trials."""
    kept: list[str] = field(default_factory=list)
    """What was not removed, each with the reason."""

    @property
    def is_empty(self) -> bool:
        """Whether nothing was found."""
        found = (self.sessions, self.processes, self.cgroups, self.containers, self.images)
        return not any((self.runs, *found, self.salvaged, self.kept))


def reap_dead_runs(
    done: Reaped | None = None, *, dry_run: bool = False, everywhere: bool = False
) -> Reaped:
    """Remove what dead runs left, and add it to `done`; with `dry_run`, only list it.

    `everywhere` searches the whole tree of control groups, not only where ours are made, and the
    cache for the remains of killed builds and imports.
    """
    done = Reaped() if done is None else done
    groups = list(_find_groups(everywhere=everywhere))
    runs = [run for root in _find_roots() for run in _find_runs(root)]
    for run, group in groups:
        _add_run(run, done)
        _reap_group(group, done, dry_run=dry_run)
    for directory in runs:
        try:
            with _claimed(directory, done) as is_ours:
                if is_ours:
                    _reap_run(directory, done, dry_run=dry_run)
        except FileNotFoundError:
            # Another process has reaped it meanwhile.
            continue
        except OSError as error:
            done.kept.append(f"{directory}: cannot be read: {reason_of(error)}")
    if everywhere:
        try:
            done.sessions += LayerStore(cache_directory() / "layers").reap(dry_run=dry_run)
            done.sessions += ImageStore().reap(dry_run=dry_run)
            done.sessions += reap_copies(cache_directory() / "host", dry_run=dry_run)
        except (ImageError, SandboxError, OSError) as error:
            done.kept.append(str(error))
        # Last: evidence of their sandboxes was just copied into them.
        _reap_temporary(done, dry_run=dry_run)
    return done


def _find_roots() -> tuple[Path, ...]:
    try:
        return scratch_roots()
    except SandboxError:
        # There is no scratch directory, so there is nothing in it.
        return ()


def _reap_temporary(done: Reaped, *, dry_run: bool) -> None:
    """Delete the temporary jobs of dead runs."""
    for directory in sorted(Path(tempfile.gettempdir()).glob(f"{TEMPORARY}*")):
        run = parse_run_id(directory.name.removeprefix(TEMPORARY).partition(".")[0])
        if run is None or run.is_living or not _is_ours(directory):
            continue
        _add_run(str(run), done)
        try:
            if not dry_run:
                delete_tree(directory)
        except OSError as error:
            done.kept.append(f"{directory}: cannot be deleted: {reason_of(error)}")
        else:
            done.sessions.append(directory)


def _find_runs(root: Path) -> Iterator[Path]:
    """Yield the scratch directories of this user's dead runs."""
    with suppress(OSError):
        for directory in sorted(root.iterdir()):
            run = _run_of(directory)
            if run is not None and not run.is_living and _is_ours(directory):
                yield directory


def _run_of(directory: Path) -> RunId | None:
    """Return the run of a scratch directory; a leading dot means it was still being made."""
    return parse_run_id(directory.name.removeprefix(".").partition(".")[0])


def _add_run(name: str, done: Reaped) -> None:
    if name not in done.runs:
        done.runs.append(name)


def _is_ours(directory: Path) -> bool:
    try:
        status = directory.lstat()
    except FileNotFoundError:
        return False
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid()


@contextmanager
def _claimed(run: Path, done: Reaped) -> Iterator[bool]:
    """Lock a dead run, so that no other process reaps it; yields whether that succeeded.

    Waits for another process that does: the caller may be about to move the trial that it is
    salvaging files into.
    """
    fd = os.open(run / LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        until = time.monotonic() + _OTHERS_PATIENCE_SEC
        while not (is_ours := try_lock(fd)) and time.monotonic() < until:
            time.sleep(0.01)
        if not is_ours:
            done.kept.append(f"{run}: another process has been reaping it for too long")
        yield is_ours
    finally:
        os.close(fd)


def _reap_run(run: Path, done: Reaped, *, dry_run: bool) -> None:
    _add_run(str(_run_of(run)), done)
    # The sandboxes themselves end with their run: the kernel kills PID 1 with its parent.
    found = sorted(_find_helpers(run))
    done.processes += [f"{pid} {_command_of(pid)}" for pid in found]
    if not dry_run:
        for pid in found:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        until = time.monotonic() + _PATIENCE_SEC
        while time.monotonic() < until and any(_is_there(pid) for pid in found):
            time.sleep(0.005)
    sessions = [entry for entry in sorted(run.iterdir()) if entry.name != LOCK]
    if dry_run:
        done.sessions += sessions
        return
    for session in sessions:
        _reap_session(session, done)
    if [entry.name for entry in run.iterdir()] == [LOCK]:
        (run / LOCK).unlink()
        # Fails if another reaper has just created the lock again, and will remove it.
        with suppress(OSError):
            run.rmdir()


def _reap_session(session: Path, done: Reaped) -> None:
    saved = salvage(session)
    done.salvaged += saved.copied
    done.kept += saved.refused
    if not saved.is_safe_to_delete:
        done.kept.append(f"{session}: contains files that could not be copied; delete it yourself")
        return
    try:
        delete_session(session)
    except OSError as error:
        done.kept.append(f"{session}: cannot be deleted: {reason_of(error)}")
        return
    done.sessions.append(session)


def bring_in(session: Path) -> None:
    """Copy what a sandbox left to its trial, then delete its scratch.

    Raises:
        SandboxError: not all of it could be copied; the scratch is kept.
        OSError: something in it cannot be deleted.
    """
    saved = salvage(session)
    if not saved.is_safe_to_delete:
        raise SandboxError(
            f"{session}: contains files of the trial that could not be copied "
            f"({saved.refused[-1]}); run `proctor clean` to try again"
        )
    delete_session(session)


def delete_session(session: Path) -> None:
    """Delete the scratch of a sandbox that has ended."""
    free_storage(Session(session).parts)
    try:
        delete_tree(session)
    except PermissionError:
        delete_mapped(session)


def _find_helpers(run: Path) -> Iterator[int]:
    mark = f"{MARK}={run}/".encode()
    for pid in (int(path.name) for path in Path("/proc").iterdir() if path.name.isdecimal()):
        with suppress(OSError):
            if mark in Path(f"/proc/{pid}/environ").read_bytes():
                yield pid


def _command_of(pid: int) -> str:
    with suppress(OSError):
        raw = Path(f"/proc/{pid}/cmdline").read_bytes()
        return raw.replace(b"\0", b" ").decode(errors="replace").strip()
    return ""


def _is_there(pid: int) -> bool:
    """Whether a process is alive, and not a zombie."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    return status.rpartition(")")[2].split()[0] not in "ZX"


def _find_groups(*, everywhere: bool) -> Iterator[tuple[str, Path]]:
    """Yield control groups of this user's dead runs, with the run's name."""
    for directory in sorted(set(_list_groups(everywhere=everywhere))):
        # proctor-<run>-<session>, where the name of a run itself contains two dashes.
        run = parse_run_id("-".join(directory.name.removeprefix(PREFIX).split("-")[:3]))
        if run is not None and not run.is_living and _is_ours(directory):
            yield str(run), directory


def _list_groups(*, everywhere: bool) -> Iterable[Path]:
    if not everywhere:
        for hierarchy in find_hierarchies():
            yield from hierarchy.parent.glob(f"{PREFIX}*")
        return
    for mount in list_mounts():
        if mount.kind in {"cgroup", "cgroup2"}:
            yield from Path(mount.target).rglob(f"{PREFIX}*/")


def _reap_group(group: Path, done: Reaped, *, dry_run: bool) -> None:
    until = time.monotonic() + _PATIENCE_SEC
    while not dry_run and not remove_group(group):
        if time.monotonic() > until:
            done.kept.append(f"{group}: processes in this control group do not die")
            return
        time.sleep(0.005)
    done.cgroups.append(group)
