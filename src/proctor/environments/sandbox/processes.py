"""Reads /proc: which processes are alive, what they execute, which of them listen on a socket.

A process is dead when all its threads are. If its first thread ends before the others, /proc shows
the process as a zombie, and its command line, executable and open files only at the threads that
are alive. Uses only the standard library.
"""

import os
import sys
from collections.abc import Iterator, Sequence
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
