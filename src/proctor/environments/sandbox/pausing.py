"""Pauses and resumes all processes of a sandbox except PID 1 and its workers. Run by PID 1.

    pause    send SIGSTOP to parents before their children, then to all at once, repeatedly, until
             no thread runs
    resume   continue those that were running, children first

A shell with job control would notice that its command stopped and take the terminal from it; in
this order the shell is never awake to notice. A process inside cannot undo a pause, because only a
running process can continue another. The cgroup freezer is not an option: PID 1 and its workers are
in the same control group, and have to answer meanwhile. Uses only the standard library.
"""

import os
import signal
import time
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple

_PATIENCE_SEC = 2.0
# A thread in uninterruptible sleep that has not run for this long counts as stopped: it waits for
# a stopped process that it started with vfork. A thread that waits for a disk runs earlier.
_LONG_ASLEEP_SEC = 0.25
# Limit for stopping parents first: the agent controls how many generations there are.
_PARENTS_FIRST_SEC = 0.25
_FIRST_LOOK_SEC = 0.0005
_LAST_LOOK_SEC = 0.02
_STOPPED = b"T"
_STILL = b"TtZXx"
_ASLEEP = b"D"


class Seen(NamedTuple):
    """State of a thread at one moment."""

    state: bytes
    n_switches: tuple[bytes, ...]
    """Context switches; if they differ, it ran in between."""
    parent: int


type _Threads = dict[tuple[int, int], Seen]


class Paused(NamedTuple):
    """Result of a pause."""

    stopped_before: frozenset[int]
    """Processes that were already stopped; resume leaves them stopped."""
    running: tuple[int, ...]
    """Processes that could not be stopped in time."""


def pause(ours: Collection[int]) -> Paused | None:
    """Stop every process but PID 1 and `ours`; None if there is no other."""
    if not (before := _look(ours)):
        return None
    stopped = _find_stopped(before)
    began, wait = time.monotonic(), _FIRST_LOOK_SEC
    since: dict[tuple[int, int], tuple[Seen, float]] = {}
    _stop_parents_first(before, began + _PARENTS_FIRST_SEC)
    while True:
        _stop_all(ours)
        found = _look(ours)
        now = time.monotonic()
        since = {
            thread: since[thread] if since.get(thread, (None,))[0] == seen else (seen, now)
            for thread, seen in found.items()
        }
        moving = {thread for thread, each in since.items() if _is_moving(*each, now)}
        # Compare two looks: a process seen early in one may have been continued by another since.
        if not moving and found == _look(ours):
            return Paused(stopped, ())
        if now - began > _PATIENCE_SEC:
            return Paused(stopped, tuple(sorted({pid for pid, _ in moving})))
        time.sleep(wait)
        wait = min(wait * 2, _LAST_LOOK_SEC)


def resume(paused: Paused, ours: Collection[int]) -> None:
    """Continue the paused processes, except those that were stopped before."""
    for generation in reversed(_list_generations(_look(ours))):
        _signal(signal.SIGCONT, generation - paused.stopped_before)


@dataclass(slots=True)
class Holder:
    """Pauses and resumes in turn."""

    paused: Paused | None = None

    def hold(self, ours: Collection[int], *, is_still: bool) -> int:
        """Stop all but `ours`, or continue them; return how many could not be stopped."""
        before, self.paused = self.paused, None
        if before is not None:
            resume(before, ours)
        if is_still:
            self.paused = pause(ours)
        return len(self.paused.running) if self.paused else 0


def _stop_parents_first(threads: _Threads, until: float) -> None:
    for generation in _list_generations(threads):
        _signal(signal.SIGSTOP, generation)
        while any(_is_awake(pid) for pid in generation):
            if time.monotonic() > until:
                return
            time.sleep(_FIRST_LOOK_SEC)


def _list_generations(threads: _Threads) -> list[set[int]]:
    """Group processes by the number of their ancestors."""
    parents = {pid: seen.parent for (pid, _), seen in threads.items()}
    generations: list[set[int]] = []
    left = set(parents)
    while left:
        oldest = {pid for pid in left if parents[pid] not in left}
        # If a pid was reused while /proc was read, the parents can form a cycle.
        generations.append(oldest or left)
        left = left - oldest if oldest else set()
    return generations


def _is_awake(pid: int) -> bool:
    return any(seen.state not in (b"T", b"t", b"D") for seen in _look_at(pid).values())


def _signal(number: signal.Signals, pids: Collection[int]) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def _stop_all(ours: Collection[int]) -> None:
    with suppress(ProcessLookupError):
        # With -1 the kernel signals all processes atomically, so a fork bomb cannot outrun it.
        os.kill(-1, signal.SIGSTOP)
    _signal(signal.SIGCONT, ours)


def _is_moving(seen: Seen, since: float, now: float) -> bool:
    if seen.state in _ASLEEP:
        return now - since < _LONG_ASLEEP_SEC
    return seen.state not in _STILL


def _find_stopped(threads: _Threads) -> frozenset[int]:
    running = {pid for (pid, _), seen in threads.items() if seen.state != _STOPPED}
    return frozenset({pid for pid, _ in threads} - running)


def _look(ours: Collection[int]) -> _Threads:
    """Return every living thread of every process but PID 1 and `ours`."""
    pids = (int(name) for name in os.listdir("/proc") if name.isdecimal())
    found: _Threads = {}
    for pid in pids:
        if pid != 1 and pid not in ours:
            found |= _look_at(pid)
    return found


def _look_at(pid: int) -> _Threads:
    found: _Threads = {}
    # A process may end while it is read.
    with suppress(OSError):
        for thread in os.listdir(f"/proc/{pid}/task"):
            with suppress(OSError):
                found[pid, int(thread)] = _read(f"/proc/{pid}/task/{thread}/status")
    return {thread: seen for thread, seen in found.items() if seen.state not in b"ZXx"}


def _read(path: str) -> Seen:
    with open(path, "rb") as file:
        lines = file.read().splitlines()
    fields = dict(line.split(b":", 1) for line in lines if b":" in line)
    switches = (fields[b"voluntary_ctxt_switches"], fields[b"nonvoluntary_ctxt_switches"])
    return Seen(fields[b"State"].split()[0], switches, int(fields[b"PPid"]))
