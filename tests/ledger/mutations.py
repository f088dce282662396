"""Ways to damage a ledger, each with the names that the first difference may be given.

A mutation changes some files and says what must be found. The caller puts the files back.
"""

import os
import random
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from proctor.ledger.verification.damage import DamageKind
from tests.ledger.ledgers import RichLedger

FIELDS = (
    rb'"at":"([^"]*)"', rb'"kind":"([^"]*)"', rb'"seq":(\d+)', rb'"(at|kind|seq)"',
    rb'"record":(\{.*?\}\})', rb'"sha256":"([0-9a-f]{64})"', rb'"size":(\d+)', rb'"path":"([^"]*)"',
    rb'^(\{)', rb'(\})$', rb'(,)', rb'"reward":([^,}]*)', rb'"task_id":"([^"]*)"', rb'(null|\[\])',
)  # fmt: skip
"""Where bytes of a line are of different kinds."""


@dataclass(slots=True)
class Expected:
    """What must be found."""

    kinds: set[DamageKind]
    """Every damage is of one of these."""
    must: DamageKind | None = None
    """The one that must be among them, where the others are only its consequences."""
    seqs: set[int] | None = None
    """The entries that must be named: the first that differs, if one can say."""
    is_note: bool = False
    """It lies behind the checkpoint: no damage, and something is said."""


@dataclass(slots=True)
class Subject:
    """A ledger that is damaged and put back, again and again."""

    ledger: RichLedger
    random: random.Random
    originals: dict[Path, bytes] = field(default_factory=dict)
    made: list[Path] = field(default_factory=list)

    @property
    def segments(self) -> list[Path]:
        """The segments that are there."""
        return sorted((self.ledger.directory / "entries").iterdir())

    @property
    def checkpoint(self) -> Path:
        """The ledger's own checkpoint."""
        return self.ledger.directory / "checkpoint"

    @property
    def artifacts(self) -> list[Path]:
        """All artifacts."""
        return sorted((self.ledger.directory / "artifacts").rglob("*.zst"))

    @property
    def older_size(self) -> int:
        """Entries that the older checkpoint signs."""
        return int(self.ledger.older.read_bytes().split(b"\n")[1])

    def lines(self) -> list[tuple[Path, int, int]]:
        """Every line: its segment, where it begins and where its newline is."""
        found = []
        for path in self.segments:
            data, begin = path.read_bytes(), 0
            while (end := data.find(b"\n", begin)) >= 0:
                found.append((path, begin, end))
                begin = end + 1
        return found

    def write(self, path: Path, data: bytes) -> None:
        """Change a file, and remember what it was."""
        if path not in self.originals and path not in self.made:
            if path.exists():
                self.originals[path] = path.read_bytes()
            else:
                self.made.append(path)
        path.write_bytes(data)

    def remove(self, path: Path) -> None:
        """Take a file away."""
        self.write(path, b"")
        path.unlink()

    def put_back(self) -> None:
        """Make everything as it was."""
        for path in self.made:
            path.unlink(missing_ok=True)
        for path, data in self.originals.items():
            if path.is_dir() and not path.is_symlink():
                path.rmdir()
            path.unlink(missing_ok=True)
            path.write_bytes(data)
        self.made.clear()
        self.originals.clear()

    def other_byte(self, byte: int) -> bytes:
        """A byte that is neither this one nor a newline."""
        return bytes([self.random.choice([b for b in range(256) if b not in (byte, 10)])])


type Mutation = Callable[[Subject], Expected]

EDITED = {DamageKind.EDITED}


def pick(subject: Subject, *, last: bool = True) -> tuple[int, Path, int, int]:
    """Any line that is an entry."""
    lines = subject.lines()
    places = [seq for seq in range(len(lines)) if seq not in subject.ledger.withheld]
    seq = subject.random.choice(places if last else places[:-1])
    return seq, *lines[seq]


def splice(subject: Subject, path: Path, begin: int, end: int, data: bytes) -> None:
    """Put other bytes in the place of some."""
    old = path.read_bytes()
    subject.write(path, old[:begin] + data + old[end:])


# Bytes


def flip_a_field(subject: Subject, field_of: bytes) -> Expected:
    """Change one byte of a certain kind."""
    while True:
        seq, path, begin, end = pick(subject)
        line = path.read_bytes()[begin:end]
        spans = [match.span(1) for match in re.finditer(field_of, line) if match.group(1)]
        if spans:
            break
    first, last = subject.random.choice(spans)
    at = subject.random.randrange(first, last)
    splice(subject, path, begin + at, begin + at + 1, subject.other_byte(line[at]))
    return Expected(EDITED, seqs={seq})


def flip_any_byte(subject: Subject) -> Expected:
    seq, path, begin, end = pick(subject)
    at = subject.random.randrange(begin, end)
    splice(subject, path, at, at + 1, subject.other_byte(path.read_bytes()[at]))
    return Expected(EDITED, seqs={seq})


def flip_a_newline(subject: Subject) -> Expected:
    seq, path, _, end = pick(subject)
    splice(subject, path, end, end + 1, subject.other_byte(10))
    # At the end of a segment, the line does not end.
    return Expected({DamageKind.EDITED, DamageKind.TRUNCATED}, seqs={seq})


def make_a_newline(subject: Subject) -> Expected:
    seq, path, begin, end = pick(subject)
    at = subject.random.randrange(begin + 1, end - 1)
    splice(subject, path, at, at + 1, b"\n")
    return Expected(EDITED, seqs={seq})


def insert_a_byte(subject: Subject) -> Expected:
    seq, path, begin, end = pick(subject)
    at = subject.random.randrange(begin, end)
    splice(subject, path, at, at, subject.other_byte(10))
    return Expected(EDITED, seqs={seq})


def cut_a_byte(subject: Subject) -> Expected:
    seq, path, begin, end = pick(subject)
    at = subject.random.randrange(begin, end)
    splice(subject, path, at, at + 1, b"")
    return Expected(EDITED, seqs={seq})


def add_garbage_to_a_line(subject: Subject) -> Expected:
    seq, path, _, end = pick(subject)
    splice(subject, path, end, end, subject.random.choice([b" ", b"\r", b"{}", b"\x00", b"x" * 99]))
    return Expected(EDITED, seqs={seq})


def insert_a_newline(subject: Subject) -> Expected:
    seq, path, begin, end = pick(subject, last=False)
    at = subject.random.randrange(begin + 1, end)
    splice(subject, path, at, at, b"\n")
    return Expected({DamageKind.EDITED, DamageKind.INSERTED}, seqs={seq})


def cut_a_newline(subject: Subject) -> Expected:
    lines = subject.lines()
    inner = [seq for seq in range(len(lines) - 1) if lines[seq][0] == lines[seq + 1][0]]
    seq = subject.random.choice(inner)
    path, _, end = lines[seq]
    splice(subject, path, end, end + 1, b"")
    return Expected({DamageKind.EDITED, DamageKind.REMOVED}, seqs={seq})


def insert_an_empty_line(subject: Subject) -> Expected:
    _, path, begin, _ = pick(subject)
    splice(subject, path, begin, begin, b"\n")
    return Expected({DamageKind.INSERTED})


# Lines


def line_of(place: tuple[Path, int, int]) -> bytes:
    path, begin, end = place
    return path.read_bytes()[begin : end + 1]


def remove_lines(subject: Subject) -> Expected:
    lines = subject.lines()
    seq = subject.random.randrange(len(lines))
    path = lines[seq][0]
    count = subject.random.choice([1, 1, 2, 5])
    gone = [place for place in lines[seq : seq + count] if place[0] == path]
    splice(subject, path, gone[0][1], gone[-1][2] + 1, b"")
    is_end = seq + len(gone) == len(lines)
    return Expected({DamageKind.TRUNCATED if is_end else DamageKind.REMOVED}, seqs={seq})


def swap_neighbours(subject: Subject) -> Expected:
    lines = subject.lines()
    seq = subject.random.randrange(len(lines) - 1)
    return _swap(subject, seq, seq + 1)


def swap_lines(subject: Subject) -> Expected:
    one, other = sorted(subject.random.sample(range(len(subject.lines())), 2))
    return _swap(subject, one, other)


def _swap(subject: Subject, one: int, other: int) -> Expected:
    lines = subject.lines()
    first, second = line_of(lines[one]), line_of(lines[other])
    splice(subject, lines[other][0], lines[other][1], lines[other][2] + 1, first)
    splice(subject, lines[one][0], lines[one][1], lines[one][2] + 1, second)
    return Expected({DamageKind.REORDERED})


def move_a_line(subject: Subject) -> Expected:
    lines = subject.lines()
    one, other = subject.random.sample(range(1, len(lines) - 1), 2)
    if abs(one - other) < 2:
        other = (one + 5) % (len(lines) - 1)
    line, (path, begin, _) = line_of(lines[one]), lines[other]
    cut = (lines[one][0], lines[one][1], lines[one][2] + 1, b"")
    put = (path, begin, begin, line)
    for step in sorted([cut, put], key=lambda step: (step[0], step[1]), reverse=True):
        splice(subject, *step)
    return Expected({DamageKind.REORDERED}, seqs={min(one, other)})


def duplicate_a_line(subject: Subject) -> Expected:
    lines = subject.lines()
    one, other = subject.random.choices(range(len(lines)), k=2)
    path, begin, _ = lines[other]
    splice(subject, path, begin, begin, line_of(lines[one]))
    return Expected({DamageKind.DUPLICATED})


def forge_a_line(subject: Subject) -> Expected:
    lines = subject.lines()
    one, other = subject.random.choices(range(len(lines)), k=2)
    forged = re.sub(rb'"reward":[^,}]*', b'"reward":0.123', line_of(lines[one]), count=1)
    if forged == line_of(lines[one]):
        forged = forged.replace(b"ana", b"eve").replace(b"_", b"-")
    path, begin, _ = lines[other]
    splice(subject, path, begin, begin, forged.rstrip(b"\n") + b" \n")
    return Expected({DamageKind.INSERTED})


def overwrite_a_line(subject: Subject) -> Expected:
    lines = subject.lines()
    one, other = subject.random.sample(range(len(lines)), 2)
    path, begin, end = lines[other]
    splice(subject, path, begin, end + 1, line_of(lines[one]))
    return Expected({DamageKind.EDITED}, seqs={other})


def append_behind(subject: Subject) -> Expected:
    path = subject.segments[-1]
    more = subject.random.choice([line_of(subject.lines()[3]), b"garbage", b"{}\n", b"\n"])
    subject.write(path, path.read_bytes() + more)
    return Expected(set(), is_note=True)


# Segments


def cut_the_end(subject: Subject) -> Expected:
    path = subject.segments[-1]
    data = path.read_bytes()
    size = subject.random.randrange(len(data))
    first = len(subject.lines()) - data.count(b"\n")
    subject.write(path, data[:size])
    return Expected({DamageKind.TRUNCATED}, seqs={first + data[:size].count(b"\n")})


def cut_a_segment(subject: Subject) -> Expected:
    number = subject.random.randrange(len(subject.segments) - 1)
    path = subject.segments[number]
    data = path.read_bytes()
    before = sum(p.read_bytes().count(b"\n") for p in subject.segments[:number])
    size = subject.random.randrange(len(data))
    lost = before + data[:size].count(b"\n")
    subject.write(path, data[:size])
    is_between = size == 0 or data[size - 1 : size] == b"\n"
    return Expected({DamageKind.REMOVED if is_between else DamageKind.TRUNCATED}, seqs={lost})


def cut_the_newline_of_a_segment(subject: Subject) -> Expected:
    path = subject.random.choice(subject.segments)
    subject.write(path, path.read_bytes()[:-1])
    return Expected({DamageKind.TRUNCATED})


def remove_a_segment(subject: Subject) -> Expected:
    path = subject.random.choice(subject.segments)
    is_last = path == subject.segments[-1]
    subject.remove(path)
    return Expected({DamageKind.TRUNCATED if is_last else DamageKind.REMOVED})


def swap_segments(subject: Subject) -> Expected:
    one, other = subject.random.sample(subject.segments, 2)
    first, second = one.read_bytes(), other.read_bytes()
    subject.write(one, second)
    subject.write(other, first)
    return Expected({DamageKind.REORDERED})


def double_a_segment(subject: Subject) -> Expected:
    number = subject.random.randrange(len(subject.segments) - 1)
    path = subject.segments[number]
    subject.write(path, path.read_bytes() * 2)
    return Expected({DamageKind.DUPLICATED})


def rename_the_last_segment(subject: Subject) -> Expected:
    path = subject.segments[-1]
    data = path.read_bytes()
    subject.remove(path)
    subject.write(path.with_name("000777.jsonl"), data)
    return Expected({DamageKind.REMOVED})


def put_a_pipe_for_a_segment(subject: Subject) -> Expected:
    path = subject.random.choice(subject.segments)
    subject.remove(path)
    put = [os.mkfifo, lambda at: at.symlink_to("/dev/zero"), Path.mkdir]
    subject.random.choice(put)(path)
    return Expected({DamageKind.UNREADABLE_SEGMENT, DamageKind.REMOVED, DamageKind.TRUNCATED})


def add_garbage_to_a_segment(subject: Subject) -> Expected:
    path = subject.random.choice(subject.segments[:-1])
    subject.write(path, path.read_bytes() + b"garbage")
    return Expected({DamageKind.INSERTED})


LOG_MUTATIONS: tuple[Mutation, ...] = (
    *(partial(flip_a_field, field_of=pattern) for pattern in FIELDS),
    flip_any_byte, flip_a_newline, make_a_newline, insert_a_byte, cut_a_byte,
    add_garbage_to_a_line, insert_a_newline, cut_a_newline, insert_an_empty_line,
    remove_lines, swap_neighbours, swap_lines, move_a_line, duplicate_a_line, forge_a_line,
    overwrite_a_line, append_behind, cut_the_end, cut_a_segment, cut_the_newline_of_a_segment,
    remove_a_segment, swap_segments, double_a_segment, rename_the_last_segment,
    put_a_pipe_for_a_segment, add_garbage_to_a_segment,
)  # fmt: skip
