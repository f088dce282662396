"""Read changes.jsonl.

The file may be untrusted. Unusable parts are listed in `problems`, and never raise an exception.
Its texts are returned unchanged; the caller escapes them for output.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import Annotated

import msgspec

from proctor.errors import InputError
from proctor.files import open_plain
from proctor.json_values import MOST_VALUES, has_more_values
from proctor.sentence import count_of, reason_of, render_limit, shown
from proctor.traces.traced_trial import Opened, Part, order_parts
from proctor.trial.changes import Change, Phase, Place
from proctor.trial.clean_room_result import LARGEST as LARGEST_RESULT
from proctor.trial.clean_room_result import CleanRoomResult, parse_clean_room

FORMAT = "proctor-changes-1"
MOST_LISTED = 50_000
"""Most paths in one file, when writing and when reading."""
LARGEST = 1 << 26
"""Largest file, in bytes, that is read."""
TOO_LARGE = f"it is larger than {render_limit(LARGEST)}, and was not read"
PLACES = (Place.SYSTEM, Place.WORK, Place.HOME)
"""In display order."""
_LONGEST_LINE = 1 << 18
_MOST_PROBLEMS = 10
_PHASES = (Phase.AGENT, Phase.VERIFICATION, Phase.SETUP)

type _Count = Annotated[int, msgspec.Meta(ge=0, le=(1 << 53) - 1)]


class Header(msgspec.Struct, frozen=True, kw_only=True):
    """The first line of changes.jsonl."""

    format: str = FORMAT
    total: _Count
    """Paths that differ from the image."""
    listed: _Count
    is_complete: bool
    """Whether all of them are listed, and every regular file of the agent has its digest."""
    places: dict[str, _Count]
    """Number of the agent's changes in each class."""
    phases: dict[str, _Count]
    """Number of changes in each phase."""


class ChangeRecord(msgspec.Struct, frozen=True):
    """The contents of a changes.jsonl."""

    header: Header | None = None
    """None if it is unusable."""
    changes: tuple[Change, ...] = ()
    """In file order."""
    lines: tuple[bytes, ...] = ()
    """The line of each change."""
    problems: tuple[str, ...] = ()
    """Problems with the file, as sentences."""

    def count_places(self) -> dict[Place, int]:
        """Number of paths the agent changed in each class, listed or not."""
        if self.header is not None:
            return {place: self.header.places.get(str(place), 0) for place in PLACES}
        counted = Counter(each.place for each in self.changes if each.when is Phase.AGENT)
        return {place: counted[place] for place in PLACES}

    def of_agent(self, place: Place) -> list[Change]:
        """The agent's changes in one class."""
        return [each for each in self.during(Phase.AGENT) if each.place is place]

    def during(self, phase: Phase) -> Iterator[Change]:
        """Changes written in one phase."""
        return (each for each in self.changes if each.when is phase)

    def ordered(self) -> list[Change]:
        """All changes, the agent's first, and of these the system's first."""
        ranks = {place: rank for rank, place in enumerate(PLACES)}
        phases = {phase: rank for rank, phase in enumerate(_PHASES)}
        return sorted(self.changes, key=lambda each: (phases[each.when], ranks[each.place]))


def describe_places(record: ChangeRecord) -> str:
    """Describe how many paths an agent changed in each class: `3 system, 12 work, 0 home`."""
    stated = ", ".join(f"{count:,} {place}" for place, count in record.count_places().items())
    is_complete = record.header is not None and record.header.is_complete
    return stated if is_complete else f"{stated}; the record is not complete"


_decode_header = msgspec.json.Decoder(Header).decode
_decode_change = msgspec.json.Decoder(Change).decode


def parse_changes(data: bytes) -> ChangeRecord:
    """Parse changes.jsonl; unusable parts are among its problems."""
    if len(data) > LARGEST:
        return ChangeRecord(problems=(TOO_LARGE,))
    if has_more_values(data, MOST_VALUES):
        return ChangeRecord(problems=(f"it has more than {MOST_VALUES:,} JSON values",))
    first, *lines = data.split(b"\n", MOST_LISTED + 1)
    try:
        header = _parse_header(first)
    except ValueError as error:
        return ChangeRecord(problems=(f"line 1: {error}",))
    is_longer = len(lines) > MOST_LISTED and bool(lines.pop())
    problems: list[str] = []
    pairs = list(_parse_lines(lines, problems))
    if is_longer:
        problems.append(f"it lists more than {MOST_LISTED:,} paths; the others were not read")
    elif len(pairs) != header.listed:
        stated = f"`listed` is {header.listed:,} in the first line"
        problems.append(f"{stated}; {len(pairs):,} could be read")
    if (more := len(problems) - _MOST_PROBLEMS) > 0:
        problems[_MOST_PROBLEMS:] = [count_of(more, "more problem")]
    changes, kept = zip(*pairs, strict=True) if pairs else ((), ())
    return ChangeRecord(header, changes, kept, tuple(problems))


def _parse_lines(lines: list[bytes], problems: list[str]) -> Iterator[tuple[Change, bytes]]:
    """The usable changes with their lines; fills `problems`."""
    for number, line in enumerate(lines, 2):
        if not line:
            continue
        try:
            yield _parse_change(line), line
        except ValueError as error:
            problems.append(f"line {number:,}: {error}")


def _parse_header(line: bytes) -> Header:
    """Raise ValueError with a sentence if the line is invalid."""
    try:
        header = _decode_header(_check_length(line))
    except RecursionError as error:
        raise ValueError("JSON that is nested too deeply") from error
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise ValueError(f"{error}; expected the header of {FORMAT}") from error
    if header.format != FORMAT:
        raise ValueError(f"format {shown(header.format)}; expected {FORMAT}")
    return header


def _parse_change(line: bytes) -> Change:
    """Raise ValueError with a sentence if the line is invalid."""
    try:
        return _decode_change(_check_length(line))
    except RecursionError as error:
        raise ValueError("JSON that is nested too deeply") from error
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise ValueError(str(error)) from error


def _check_length(line: bytes) -> bytes:
    if len(line) > _LONGEST_LINE:
        raise ValueError(f"it has {len(line):,} bytes; at most {_LONGEST_LINE:,} are read")
    return line


CHANGES = "changes.jsonl"
CLEAN_ROOM = "clean-room.json"


@dataclass(frozen=True, slots=True)
class PartChanges:
    """Changes by the agent in a trial, or in one step of it."""

    part: str
    """Name of the step; "" for the trial itself."""
    path: str
    """Path among the trial's files."""
    record: ChangeRecord


def find_change_files(files: Collection[str]) -> dict[str, str]:
    """Find the change records among the files of a trial, by step; "" for the trial itself."""
    found = {"": CHANGES} if CHANGES in files else {}
    for name in files:
        match name.split("/"):
            case ["steps", step, last] if last == CHANGES:
                found[step] = name
    return found


def load_changes(files: Collection[str], open_file: Callable[[str], Opened]) -> list[PartChanges]:
    """Load the change records of a trial, steps in execution order."""
    found = find_change_files(files)
    loaded = []
    for part in order_parts([Part(name, []) for name in found], files, open_file):
        name = found[part.name]
        try:
            with open_file(name) as path, open_plain(path) as file:
                record = parse_changes(file.read(LARGEST + 1))
        except (OSError, InputError) as error:
            record = ChangeRecord(problems=(_describe(error),))
        loaded.append(PartChanges(part.name, name, record))
    return loaded


def load_clean_room(
    files: Collection[str], open_file: Callable[[str], Opened]
) -> CleanRoomResult | str | None:
    """Load the clean-room result; a sentence if it cannot be read, None if there is none."""
    if CLEAN_ROOM not in files:
        return None
    try:
        with open_file(CLEAN_ROOM) as path, open_plain(path) as file:
            return parse_clean_room(file.read(LARGEST_RESULT + 1))
    except (OSError, InputError) as error:
        return _describe(error)


def _describe(error: OSError | InputError) -> str:
    said = reason_of(error) if isinstance(error, OSError) else str(error)
    return f"it cannot be read: {said}"
