"""Reads /proc: which processes are alive, what they execute, which of them listen on a socket.

A process is dead when all its threads are. If its first thread ends before the others, /proc shows
the process as a zombie, and its command line, executable and open files only at the threads that
are alive. Uses only the standard library.
"""

import os
import signal
import sys
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NamedTuple

LONGEST_COMMAND = 512
"""Bytes of a command line that are shown."""
STARTED = 19
"""Index of the time at which a process started, in clock ticks, among the fields of read_stat."""
_DEAD = b"ZX"
_N_THREADS = 17
_LOOKS = 5
_LONGEST_ARGUMENTS = 1 << 14
_MOST_OPEN_FILES = 100_000
# Limits for all processes of one list, open files and characters of paths: the agent controls how
# many there are.
_MOST_IN_PATHS = 4_000_000
_INTERPRETERS = frozenset(
    {
        *("sh", "ash", "bash", "dash", "ksh", "zsh", "fish", "busybox"),
        *("python", "pypy", "perl", "ruby", "node", "nodejs", "bun", "php", "lua", "tclsh"),
    }
)
_DELETED = " (deleted)"

# Values in /proc/net: the state of a listening TCP socket, that of a bound but unconnected UDP
# socket, and the flag of a listening Unix socket.
_TABLES = {"tcp": b"0A", "tcp6": b"0A", "udp": b"07", "udp6": b"07"}
_ACCEPTS = 0x10000
# 127.0.0.1, in the byte order in which /proc/net prints addresses.
_LOOPBACK = int.from_bytes((127, 0, 0, 1), sys.byteorder)
_NOBODY = -1


def read_stat(place: str) -> tuple[bytes, list[bytes]]:
    """Return the name of a process or thread, and the fields after it: state, parent, group, …."""
    with open(f"{place}/stat", "rb") as file:
        before, _, after = file.read().rpartition(b")")
    return before.partition(b"(")[2], after.split()


def find_living(pid: int | str, fields: Sequence[bytes]) -> str | None:
    """Return the directory in /proc of a process, or of a living thread of it; None if it is dead.

    `fields` are those of read_stat.
    """
    place = f"/proc/{pid}"
    if fields[0] not in _DEAD:
        return place
    for _ in range(_LOOKS):
        if int(fields[_N_THREADS]) < 2:
            return None
        try:
            found, is_whole = _find_thread(place)
            if found is not None or is_whole:
                return found
            fields = read_stat(place)[1]
        except OSError:
            # It ended in the meantime.
            return None
    # Its threads start others and end faster than they can be read: it is alive.
    return place


def _find_thread(place: str) -> tuple[str | None, bool]:
    """Return a living thread, and whether no thread ended while they were read."""
    is_whole, threads = True, os.listdir(f"{place}/task")
    for thread in threads:
        try:
            if read_stat(f"{place}/task/{thread}")[1][0] not in _DEAD:
                return f"{place}/task/{thread}", True
        except OSError:
            is_whole = False
    # If only the first thread is listed, the others ended in the meantime too.
    return None, is_whole and len(threads) > 1


class Facts(NamedTuple):
    """A process as /proc shows it; the fields are those of trial.environment.Process."""

    command: str
    executable: str | None
    script: str | None
    listens: bool


@dataclass(slots=True)
class Lister:
    """Describes the processes of one list, with limits for all of them together."""

    root: str = ""
    """Directory of their root file system, as seen by this process; empty for `/`."""
    model_port: int = 0
    """Port of loopback on which the runner listens in their network; 0 if it does not."""
    _n_characters: int = 0
    _n_files: int = 0
    _listening: dict[str, dict[str, int]] = field(default_factory=dict)
    """Listening sockets of each network namespace: `socket:[inode]` to user."""

    def describe(self, place: str, name: bytes, user: int) -> Facts:
        """Describe the process at a directory that find_living returned.

        A process can forge its command line, and so the script; the executable is from the kernel.
        Fields that cannot be read are None.
        """
        with open(f"{place}/cmdline", "rb") as file:
            line = file.read(_LONGEST_ARGUMENTS)
        shown = line[:LONGEST_COMMAND].rstrip(b"\0").replace(b"\0", b" ")
        command = shown.decode(errors="replace") or f"[{name.decode(errors='replace')}]"
        executable = self._charge(_read_link(f"{place}/exe"))
        words = [os.fsdecode(word) for word in line.rstrip(b"\0").split(b"\0")]
        script = None
        if is_interpreter(executable or words[0]):
            script = self._charge(self._find_script(place, words[1:]))
        return Facts(command, executable, script, self._listens(place, user))

    def _charge(self, path: str | None) -> str | None:
        self._n_characters += len(path or "")
        return path if self._n_characters <= _MOST_IN_PATHS else None

    def _find_script(self, place: str, words: Sequence[str]) -> str | None:
        """Return the first argument that is the path of a file."""
        directory, root = _read_link(f"{place}/cwd") or "", _read_link(f"{place}/root") or "/"
        # A process that called chroot may have been started with a path of its earlier root.
        roots = (root, "/") if root != "/" else (root,)
        for path, word in ((join(directory, word, each), word) for each in roots for word in words):
            # Arguments that are too long for a path, or contain a null byte, raise these.
            with suppress(OSError, ValueError):
                if word and path.startswith("/") and os.path.isfile(f"{self.root}{path}"):
                    return path if ".." in path else os.path.normpath(path)
        return None

    def _listens(self, place: str, user: int) -> bool:
        """Whether it has a listening socket; if its files are hidden, whether its user has one."""
        listening = self._find_listening(place)
        if not listening:
            return False
        try:
            with os.scandir(f"{place}/fd") as entries:
                for entry in entries:
                    self._n_files += 1
                    if self._n_files > _MOST_OPEN_FILES:
                        break
                    if (_read_link(entry.path) or "") in listening:
                        return True
                else:
                    return False
        except OSError:
            # The kernel shows the open files of an undumpable process only to CAP_SYS_PTRACE.
            pass
        return user in listening.values()

    def _find_listening(self, place: str) -> dict[str, int]:
        """Return the listening sockets in a process's network: `socket:[inode]` to user."""
        namespace = _read_link(f"{place}/ns/net") or ""
        if namespace not in self._listening:
            # If the namespace is hidden, it is our own: commands cannot make another.
            network = f"{place}/net" if namespace else "/proc/self/net"
            self._listening[namespace] = dict(_read_sockets(network, self.model_port))
        return self._listening[namespace]


def _read_sockets(network: str, model_port: int) -> Iterator[tuple[str, int]]:
    # The runner's own socket belongs to no process inside, but has a user that they may have too.
    own = f"{_LOOPBACK:08X}:{model_port:04X}".encode()
    for table, state in _TABLES.items():
        for fields in _read_table(f"{network}/{table}"):
            if len(fields) > 9 and fields[3] == state and fields[1] != own:
                yield f"socket:[{fields[9].decode()}]", int(fields[7])
    for fields in _read_table(f"{network}/unix"):
        if len(fields) > 6 and int(fields[3], 16) & _ACCEPTS:
            yield f"socket:[{fields[6].decode()}]", _NOBODY


def _read_table(path: str) -> list[list[bytes]]:
    """Return the rows of a table in /proc/net; empty if there is no such table."""
    try:
        with open(path, "rb") as file:
            return [line.split() for line in file][1:]
    except OSError:
        return []


def _read_link(path: str) -> str | None:
    try:
        return os.readlink(path)
    except OSError:
        return None


def join(directory: str, word: str, root: str) -> str:
    """Return the path that a word of a command line names, for a process with that root."""
    return f"{root.rstrip('/')}{word}" if word.startswith("/") else os.path.join(directory, word)


def is_interpreter(path: str) -> bool:
    """Whether a program runs scripts, by its name."""
    name = os.path.basename(path.removesuffix(_DELETED))
    return name.lstrip("-").rstrip("0123456789.") in _INTERPRETERS


# Pauses and resumes all processes of a sandbox except PID 1 and its workers. Run by PID 1
#
#     pause    send SIGSTOP to parents before their children, then to all at once, repeatedly, until
#              no thread runs
#     resume   continue those that were running, children first
#
# A shell with job control would notice that its command stopped and take the terminal from it; in
# this order the shell is never awake to notice. A process inside cannot undo a pause, because only
# a running process can continue another. The cgroup freezer is not an option: PID 1 and its workers
# are in the same control group, and have to answer meanwhile. Uses only the standard library.


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
    running = {pid for (pid, _), seen in before.items() if seen.state != _STOPPED}
    stopped = frozenset({pid for pid, _ in before} - running)
    began, wait = time.monotonic(), _FIRST_LOOK_SEC
    since: dict[tuple[int, int], tuple[Seen, float]] = {}
    _stop_parents_first(before, began + _PARENTS_FIRST_SEC)
    while True:
        with suppress(ProcessLookupError):
            # With -1 the kernel signals all processes atomically, so a fork bomb cannot outrun it.
            os.kill(-1, signal.SIGSTOP)
        _signal(signal.SIGCONT, ours)
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


def _is_moving(seen: Seen, since: float, now: float) -> bool:
    if seen.state in _ASLEEP:
        return now - since < _LONG_ASLEEP_SEC
    return seen.state not in _STILL


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
