"""A disk that can lose power: what a program did to its files, and every state that may be left.

The program runs for real, under strace. What it wrote and did not sync may be there, or not, or in
part; a name that was made, changed or taken away and whose directory was not synced may be there,
or not. Each of those on its own: that is all the system calls promise.
"""

import itertools
import math
import random
import re
import subprocess
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

_CALLS = "write,writev,fsync,fdatasync,rename,link,linkat,unlink,mkdir,mkdirat,ftruncate,truncate"
_CALLS += ",openat"
_MOST = 64
"""States of one moment that are tried; where there are more, some are drawn."""


class Fate(Enum):
    """What became of something that was not synced."""

    KEPT = "kept"
    LOST = "lost"
    TORN = "torn"


@dataclass(slots=True)
class Operation:
    """One thing a program did."""

    kind: str
    """write, cut, name, unname, mkdir, sync, say"""
    path: str
    """The file's name at that time; for names, the whole path."""
    file: int = -1
    """Which file: it keeps its number through renames."""
    data: bytes = b""
    size: int = 0
    other: str = ""
    """The name that goes away with this one, in a rename."""


@dataclass(slots=True)
class Recording:
    """All that a program did below a directory."""

    root: Path
    operations: list[Operation] = field(default_factory=list)
    names: dict[str, int] = field(default_factory=dict)
    before: dict[int, bytes] = field(default_factory=dict)
    directories: set[str] = field(default_factory=set)
    _files: int = 0

    def begin(self) -> None:
        """Remember what is there before."""
        for path in sorted(self.root.rglob("*")):
            if path.is_dir():
                self.directories.add(str(path))
            else:
                self.names[str(path)] = self._files
                self.before[self._files] = path.read_bytes()
                self._files += 1
        self.directories.add(str(self.root))

    def file_at(self, path: str) -> int:
        """The number of a file, a new one for a new name."""
        if path not in self.names:
            self.names[path] = self._files
            self._files += 1
        return self.names[path]


def record(root: Path, words: list[str], env: dict[str, str]) -> Recording:
    """Run a program and note what it does below `root`."""
    recording = Recording(root)
    recording.begin()
    before = dict(recording.names)
    trace = root.parent / "trace"
    command = ["strace", "-f", "-qq", "-y", "-xx", "-s", "10000000", "-o", str(trace)]
    subprocess.run([*command, "-e", f"trace={_CALLS}", *words], env=env, check=True, timeout=120)
    for line in _whole_calls(trace.read_text().splitlines()):
        _note(recording, line)
    # Reading the trace moved the names along; what is left is where it began.
    recording.names = before
    return recording


_BEGUN = " <unfinished ...>"
_ENDED = re.compile(r"(\d+) +<\.\.\. \w+ resumed>(.*)$")


def _whole_calls(lines: Iterable[str]) -> Iterator[str]:
    """The calls of all threads, one a line, each where it ended: that is when it counts."""
    begun: dict[str, str] = {}
    for line in lines:
        ended = _ENDED.match(line)
        if line.endswith(_BEGUN):
            begun[line.split(maxsplit=1)[0]] = line.removesuffix(_BEGUN)
        elif ended:
            yield begun.pop(ended[1]) + ended[2]
        else:
            yield line


_KINDS = {
    "openat": "name",
    "write": "write",
    "ftruncate": "cut",
    "truncate": "cut",
    "fsync": "sync",
    "fdatasync": "sync",
    "rename": "name",
    "link": "name",
    "linkat": "name",
    "unlink": "unname",
    "mkdir": "mkdir",
    "mkdirat": "mkdir",
}
_CALL = re.compile(r"\d+ +(\w+)\((.*)\) += (?:0|[1-9]\d*)(?:<(.*)>)?$")
_TEXT = re.compile(r'"((?:\\x[0-9a-f]{2})*)"')
_OPENED = re.compile(r"^(\d+)<([^>]*)>")


def _note(recording: Recording, line: str) -> None:
    match = _CALL.match(line)
    if match is None:
        return
    call, arguments, _ = match.groups()
    texts = [_decode(text) for text in _TEXT.findall(arguments)]
    opened = _OPENED.match(arguments)
    paths = [text.decode(errors="replace") for text in texts if call not in ("write", "writev")]
    if opened:
        paths = ["/".join([_decode(opened[2]).decode(errors="replace"), *paths])]
        if call == "writev" and opened[1] == "1":
            recording.operations.append(Operation("say", "", data=texts[0]))
            return
    below = [path for path in paths if path.startswith(f"{recording.root}")]
    if below:
        number = int(arguments.rsplit(", ", 1)[-1]) if "truncate" in call else 0
        _append(recording, call, below, texts[0] if call == "write" else b"", number, arguments)


def _decode(text: str) -> bytes:
    return bytes.fromhex(text.replace("\\x", ""))


def _append(
    recording: Recording, call: str, paths: list[str], data: bytes, size: int, arguments: str
) -> None:
    path, names = paths[0], recording.names
    if call == "openat" and ("O_CREAT" not in arguments or path in names):
        return
    kind = _KINDS[call]
    operation = Operation(kind, path, data=data, size=size)
    match kind:
        case "name" if call != "openat":
            file = names.pop(path) if call == "rename" else names[path]
            operation = Operation(kind, paths[1], other=path if call == "rename" else "")
            names[paths[1]] = file
        case "unname":
            operation.file = names.pop(path, -1)
        case "sync":
            operation.file = names.get(path, -1)
        case _:
            pass
    if kind in ("name", "write", "cut"):
        operation.file = recording.file_at(operation.path)
    recording.operations.append(operation)


@dataclass(frozen=True, slots=True)
class Left:
    """What may be on the disk once the power is back."""

    files: dict[str, bytes]
    directories: frozenset[str]
    said: bytes
    """What the program had said by then."""
    moment: str
    """After which call, and what became of what was not synced."""

    def put(self, root: Path, target: Path) -> None:
        """Lay it out below another directory."""
        for directory in sorted(self.directories):
            (target / Path(directory).relative_to(root)).mkdir(parents=True, exist_ok=True)
        for name, data in self.files.items():
            (target / Path(name).relative_to(root)).write_bytes(data)


def states(recording: Recording, draw: random.Random, most: int = _MOST) -> Iterator[Left]:
    """Every state that a power cut may leave, moment by moment."""
    for moment in range(len(recording.operations) + 1):
        done = recording.operations[:moment]
        unsynced = [place for place in range(moment) if not _is_synced(done, place)]
        choices = [_fates(done[place]) for place in unsynced]
        total = math.prod(map(len, choices))
        drawn: Iterable[tuple[Fate, ...]] = itertools.product(*choices)
        if total > most:
            drawn = [tuple(draw.choice(choice) for choice in choices) for _ in range(most)]
        for fates in drawn:
            yield _left(recording, done, dict(zip(unsynced, fates, strict=True)))


def _fates(operation: Operation) -> list[Fate]:
    if operation.kind == "write":
        return list(Fate)
    return [Fate.KEPT, Fate.LOST]


def _is_synced(done: list[Operation], place: int) -> bool:
    operation = done[place]
    match operation.kind:
        case "write" | "cut":
            return any(
                later.kind == "sync" and later.file == operation.file for later in done[place:]
            )
        case "name" | "unname" | "mkdir":
            directory = str(Path(operation.path).parent)
            return any(later.kind == "sync" and later.path == directory for later in done[place:])
        case _:
            return True


@dataclass(slots=True)
class _Disk:
    """What is on the disk, built up from what was done."""

    contents: dict[int, bytes]
    names: dict[str, int]
    directories: set[str]

    def write(self, operation: Operation, left: bytes) -> None:
        self.contents[operation.file] = self.contents.get(operation.file, b"") + left

    def do(self, operation: Operation) -> None:
        match operation.kind:
            case "cut":
                self.contents[operation.file] = self.contents[operation.file][: operation.size]
            case "name":
                self.names[operation.path] = operation.file
                self.names.pop(operation.other, None)
            case "unname":
                self.names.pop(operation.path, None)
            case "mkdir":
                self.directories.add(operation.path)
            case _:
                pass

    def reachable(self, root: str) -> frozenset[str]:
        found = {root}
        # The shortest first: a directory whose parent was lost is lost with it.
        for path in sorted(self.directories, key=len):
            if str(Path(path).parent) in found:
                found.add(path)
        return frozenset(found)


def _left(recording: Recording, done: list[Operation], fates: dict[int, Fate]) -> Left:
    disk = _Disk(dict(recording.before), dict(recording.names), set(recording.directories))
    for place, operation in enumerate(done):
        fate = fates.get(place, Fate.KEPT)
        if operation.kind == "write":
            is_last = _is_last_write(done, place, fates)
            disk.write(operation, _what_is_left(operation.data, fate, is_last=is_last))
        elif fate is Fate.KEPT:
            disk.do(operation)
    reachable = disk.reachable(str(recording.root))
    files = {
        name: disk.contents.get(number, b"")
        for name, number in disk.names.items()
        if str(Path(name).parent) in reachable
    }
    said = b"".join(operation.data for operation in done if operation.kind == "say")
    told = ", ".join(
        f"{done[at].kind} {Path(done[at].path).name}: {fates[at].value}" for at in fates
    )
    return Left(files, reachable, said, f"after {len(done)} operations; {told}")


def _is_last_write(done: list[Operation], place: int, fates: dict[int, Fate]) -> bool:
    """Whether nothing that is kept was written to the same file after it."""
    return not any(
        later.kind == "write"
        and later.file == done[place].file
        and fates.get(at, Fate.KEPT) is not Fate.LOST
        for at, later in enumerate(done)
        if at > place
    )


def _what_is_left(data: bytes, fate: Fate, *, is_last: bool) -> bytes:
    """Of one write: lost under a later one that is there, it is a hole of zeros."""
    match fate:
        case Fate.KEPT:
            return data
        case Fate.TORN:
            half = data[: len(data) // 2]
            return half if is_last else half + bytes(len(data) - len(half))
        case Fate.LOST:
            return b"" if is_last else bytes(len(data))
