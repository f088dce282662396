"""Records which programs open the verifier's files while the tests run. Requires root.

    with watched({host_directory: "/tests", …}) as opened: …

Before a file in one of the directories is opened, the kernel asks for permission (fanotify), which
is always granted. The process waits for the answer, so its executable and its parents can be read
in /proc meanwhile. If the kernel or missing rights do not allow this, nothing is recorded.
"""

import ctypes
import os
import select
import struct
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

from proctor.environments.sandbox.channel import close_all
from proctor.environments.sandbox.processes import is_interpreter, join, read_stat
from proctor.trial.environment import UNLISTED_OPENINGS, OpenedFile, Program

# The code that an interpreter runs, by its command line and its standard input


# Letters of options whose value is the code itself.
_CODE = {"python": "c", "pypy": "c", "perl": "eE", "ruby": "e", "node": "ep", "nodejs": "ep"}
_SHELLS_CODE = "c"
_PYTHON = ("python", "pypy")


def find_scripts(
    place: str, executable: str, directory: str, words: Sequence[str], root: str = "/"
) -> Iterator[str]:
    """Yield files that an interpreter may run: a script, a module by name, or standard input.

    `place` is its directory in /proc, `words` its command line, whose first word is arbitrary. A
    process that called chroot has another `root`, below which its absolute paths lead.
    """
    name = Path(executable).name.rstrip("0123456789.")
    letters, rest = _CODE.get(name, _SHELLS_CODE), iter(words[1:])
    for word in rest:
        if word in ("-", "-s", "/dev/stdin"):
            break
        if word.startswith("-"):
            short = "" if word.startswith("--") else word[1:]
            if name in _PYTHON and "m" in short:
                module = short.partition("m")[2] or next(rest, "")
                path = os.path.normpath(Path(directory, module.replace(".", "/")))
                yield f"{path}.py"
                yield f"{path}/__main__.py"
                return
            if any(letter in short for letter in letters):
                return
            continue
        here = f"{place}/root{word}" if word.startswith("/") else f"{place}/cwd/{word}"
        if Path(here).is_file():
            yield os.path.normpath(join(directory, word, root))
            return
    # Without a script, it runs its standard input.
    yield _read_script_link(f"{place}/fd/0")


def _read_script_link(path: str) -> str:
    try:
        return os.readlink(path)  # noqa: PTH115 - a process that opens a file waits for this
    except OSError:
        return ""


# From <linux/fanotify.h>: Python has no module for it.
_FAN_CLASS_CONTENT = 0x4
_FAN_CLOEXEC = 0x1
_FAN_NONBLOCK = 0x2
_FAN_MARK_ADD = 0x1
_FAN_MARK_DONT_FOLLOW = 0x4
_FAN_MARK_MOUNT = 0x10
_FAN_OPEN_PERM = 0x10000
_FAN_EVENT_ON_CHILD = 0x08000000
_FAN_ALLOW = 0x1
_AT_FDCWD = -100
_ROOT = getattr(os, "O_PATH", 0) | os.O_DIRECTORY | os.O_CLOEXEC
_EVENT = struct.Struct("=IBBHQii")
_ANSWER = struct.Struct("=iI")
_MOST_READ = 1 << 16
# Directories that are watched; of larger trees, only the first ones.
_MOST_MARKS = 1000
_MOST_SCRIPTS = 5000
_MOST_KEPT = 50_000
# Limit for the characters of all recorded command lines.
_MOST_IN_WORDS = 64 << 20
_DEEPEST = 50
# Index of the start time in the fields of read_stat.
_START = 19
_LOOKS = 3
_LONGEST_ARGUMENTS = 1 << 14

_libc = ctypes.CDLL(None, use_errno=True)
_CLOSING = ThreadPoolExecutor(thread_name_prefix="file-watch-end")


@contextmanager
def watched(
    directories: Mapping[str, str], first: int = 0, scripts: Sequence[str] = ()
) -> Iterator[list[OpenedFile] | None]:
    """Watch directories: host path to path inside. Yields None if that is not possible.

    `first` is the host pid of a sandbox's PID 1, which is not reported as a program. `scripts` are
    files of the agent: the process that runs one is known from when it opens it, even if it forges
    its command line later. The list grows until the end of the `with`.
    """
    fd = _libc.fanotify_init(
        _FAN_CLASS_CONTENT | _FAN_CLOEXEC | _FAN_NONBLOCK, os.O_RDONLY | os.O_CLOEXEC
    )
    if fd < 0:
        yield None
        return
    watch = _Watch(fd, dict(directories), first)
    try:
        if not watch.mark(scripts):
            yield None
            return
        with watch.answering():
            yield watch.opened
    finally:
        # Closing releases processes that still wait for an answer. In a thread, because the
        # kernel takes 5 to 20 ms for it, and all trials of this process would wait.
        _CLOSING.submit(os.close, fd)


class _Watch:
    def __init__(self, fd: int, directories: dict[str, str], first: int) -> None:
        self.opened: list[OpenedFile] = []
        self._fd = fd
        self._directories = directories
        self._names = tuple(f"{name}/" for name in directories.values())
        self._first = first
        self._seen: set[OpenedFile] = set()
        self._n_characters = 0
        self._scripts: frozenset[str] = frozenset()
        # Script that each process runs, and the start time of the process.
        self._run: dict[int, tuple[str, bytes]] = {}
        # Outermost ancestor of the last process that opened a file, and of the test script.
        self._top = self._origin = 0

    def mark(self, scripts: Sequence[str]) -> bool:
        """Watch the directories, and files of the agent; return False if the kernel refuses."""
        with self._root_of_room() as root:
            if not (root and self._mark_mounts(root)) and not self._mark_directories():
                return False
            if root:
                self._scripts = frozenset(scripts[:_MOST_SCRIPTS])
                mask, how = ctypes.c_uint64(_FAN_OPEN_PERM), _FAN_MARK_ADD | _FAN_MARK_DONT_FOLLOW
                for path in self._scripts:
                    # Fails for paths that do not exist, which cannot be run either.
                    name = os.fsencode(f"{root}{path}")
                    _libc.fanotify_mark(self._fd, how, mask, _AT_FDCWD, name)
            return True

    def _mark_mounts(self, root: str) -> bool:
        """Watch the mounts of a room, which includes new files; return False if there are none."""
        mask = ctypes.c_uint64(_FAN_OPEN_PERM)
        how = _FAN_MARK_ADD | _FAN_MARK_MOUNT
        names = [os.fsencode(f"{root}{name}") for name in self._directories.values()]
        marks = [_libc.fanotify_mark(self._fd, how, mask, _AT_FDCWD, name) for name in names]
        return not any(marks)

    @contextmanager
    def _root_of_room(self) -> Iterator[str | None]:
        """Open the room's root, by a process that sees the directories under their paths inside."""
        roots: list[int] = []
        try:
            with suppress(OSError):
                line = Path(f"/proc/{self._first}/task/{self._first}/children").read_text()
                for pid in line.split():
                    with suppress(OSError):
                        roots.append(os.open(f"/proc/{pid}/root", _ROOT))
            yield next((way for fd in roots if self._is_room(way := f"/proc/self/fd/{fd}")), None)
        finally:
            close_all(roots)

    def _is_room(self, root: str) -> bool:
        try:
            # A process that called chroot may have links to the host's directories in its root.
            return _read_link(root) == "/" and all(
                Path(top).samefile(f"{root}{name}") for top, name in self._directories.items()
            )
        except OSError:
            return False

    def _mark_directories(self) -> bool:
        n_marks = 0
        for top in self._directories:
            for place, _, _ in os.walk(top):
                if n_marks >= _MOST_MARKS:
                    break
                mask = ctypes.c_uint64(_FAN_OPEN_PERM | _FAN_EVENT_ON_CHILD)
                name = os.fsencode(place)
                if _libc.fanotify_mark(self._fd, _FAN_MARK_ADD, mask, _AT_FDCWD, name) != 0:
                    return False
                n_marks += 1
        return n_marks > 0

    @contextmanager
    def answering(self) -> Iterator[None]:
        """Answer the kernel's permission events in a thread."""
        ended, end = os.pipe2(os.O_CLOEXEC)
        thread = threading.Thread(target=self._answer_all, args=(ended,), name="file-watch")
        thread.start()
        try:
            yield
        finally:
            os.close(end)
            thread.join()
            os.close(ended)

    def _answer_all(self, ended: int) -> None:
        poll = select.poll()
        poll.register(self._fd, select.POLLIN)
        poll.register(ended, select.POLLIN | select.POLLHUP)
        while True:
            ready = {fd for fd, _ in poll.poll()}
            if self._fd in ready:
                with suppress(BlockingIOError):
                    self._answer(os.read(self._fd, _MOST_READ))
            elif ended in ready:
                return

    def _answer(self, events: bytes) -> None:
        at = 0
        while at + _EVENT.size <= len(events):
            length, _, _, _, _, fd, pid = _EVENT.unpack_from(events, at)
            at += length
            if fd < 0:
                # The queue overflowed; this event expects no answer.
                self._cut()
                continue
            try:
                self._note(fd, pid)
            finally:
                # Even after an exception, or the process would wait forever. The write fails if
                # the process was killed.
                with suppress(OSError):
                    os.write(self._fd, _ANSWER.pack(fd, _FAN_ALLOW))
                os.close(fd)

    def _note(self, fd: int, pid: int) -> None:
        with suppress(OSError, ValueError, IndexError):
            # The path as seen inside, because it is relative to the mount it was opened through.
            path = _read_link(f"/proc/self/fd/{fd}")
            if path in self._scripts:
                self._run.pop(pid, None)
                program = next(self._follow(pid), None)
                if program is not None and path in program.code:
                    self._run[pid] = path, _read_start(pid)
            # The origin is a worker, which does operations of the runner.
            if pid in (os.getpid(), self._origin) or not path.startswith(self._names):
                return
            if len(self.opened) >= _MOST_KEPT or self._n_characters >= _MOST_IN_WORDS:
                self._cut()
                return
            programs = self._list_programs(pid)
            # The first file that is opened is the test script's output.
            self._origin = self._origin or self._top
            if pid == self._origin:
                return
            opened = OpenedFile(path, programs, is_orphan=self._top != self._origin)
            if opened not in self._seen:
                self._seen.add(opened)
                self.opened.append(opened)
                words = (word for program in opened.programs for word in program.words)
                self._n_characters += sum(map(len, words))

    def _cut(self) -> None:
        if UNLISTED_OPENINGS not in self._seen:
            self._seen.add(UNLISTED_OPENINGS)
            self.opened.append(UNLISTED_OPENINGS)

    def _list_programs(self, pid: int) -> tuple[Program, ...]:
        """Return the program that opened a file, and its ancestors."""
        found: list[Program] = []
        for _ in range(_LOOKS):
            found.clear()
            with suppress(OSError):
                for program in self._follow(pid):
                    found.append(program)
                break
            # An ancestor ended meanwhile, so there is a new parent: try again.
        return tuple(found)

    def _follow(self, pid: int) -> Iterator[Program]:
        for _ in range(_DEEPEST):
            if pid in (0, 1, self._first, os.getpid()):
                return
            place = f"/proc/{pid}"
            with open(f"{place}/cmdline", "rb") as file:  # noqa: PTH123 - pathlib is slow
                line = file.read(_LONGEST_ARGUMENTS)
            words = tuple(os.fsdecode(word) for word in line.rstrip(b"\0").split(b"\0"))
            executable, directory = _read_link(f"{place}/exe"), _read_link(f"{place}/cwd")
            root = _read_link(f"{place}/root")
            if is_interpreter(executable):
                code = (*find_scripts(place, executable, directory, words, root),)
                code += self._find_earlier(words, root)
                yield Program(executable, directory, words, self._find_run(pid) or code)
            else:
                named = (word.rpartition("=")[2] for word in words[1:])
                given = (*(os.path.normpath(join(directory, word, root)) for word in named),)
                given += self._find_earlier(words, root)
                yield Program(executable, directory, words, given=given)
            self._top = pid
            pid = int(read_stat(place)[1][1])

    def _find_earlier(self, words: Sequence[str], root: str) -> tuple[str, ...]:
        """Return what words named before their process called chroot, if it did.

        Without files of the verifier, which would excuse it.
        """
        named = (os.path.normpath(word) for word in words[1:] if word.startswith("/"))
        return tuple(path for path in named if root != "/" and not path.startswith(self._names))

    def _find_run(self, pid: int) -> tuple[str, ...]:
        """Return the script that a process runs, if it was seen opening it."""
        path, start = self._run.get(pid, ("", b""))
        return (path,) if path and start == _read_start(pid) else ()


def _read_start(pid: int) -> bytes:
    return read_stat(f"/proc/{pid}")[1][_START]


def _read_link(path: str) -> str:
    return os.readlink(path)  # noqa: PTH115 - a process that opens a file waits for this
