"""The agent's changes to its environment, and the clean-room result, for the page."""

from dataclasses import dataclass

from proctor.errors import DamageError, NotThereError
from proctor.trial.change_record import (
    CLEAN_ROOM,
    PartChanges,
    describe_places,
    find_change_files,
    load_changes,
    load_clean_room,
)
from proctor.trial.changes import Change
from proctor.trial.clean_room_result import (
    CleanRoomResult,
    describe_clean_room,
    describe_missing,
    describe_rewards,
)
from proctor.web.trials.evidence import KnownFile
from proctor.web.trials.known import Known

_MOST_ROWS = 200
_MOST_PARTS = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class Changed:
    """A change record as the page shows it."""

    file: KnownFile
    part: str = ""
    """Name of the step; "" for the trial itself."""
    counts: str = ""
    """Number of paths the agent changed in each class."""
    total: int = 0
    rows: tuple[Change, ...] = ()
    """The first changes, system paths before all others."""
    problems: tuple[str, ...] = ()

    @property
    def left_out(self) -> int:
        """Number of recorded paths that are not among the rows."""
        return max(self.total - len(self.rows), 0)


@dataclass(frozen=True, slots=True)
class RoomRow:
    """One verification."""

    name: str
    rewards: str
    seconds: float
    is_same: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """The clean-room result of a trial."""

    summary: str
    is_alarming: bool = False
    rows: tuple[RoomRow, ...] = ()
    left_out: int = 0
    survivors: int = 0
    file: KnownFile | None = None


def find_changed(known: Known) -> list[Changed]:
    """The change records of a trial; only the last has rows, because it includes the others."""
    named = find_change_files([file.path for file in known.files])
    files = {file.path: file for file in known.files if file.path in named.values()}
    gone = [Changed(file=file) for file in files.values() if not file.is_here]
    try:
        found = load_changes(known.traced.files, known.traced.open_file)[-_MOST_PARTS:]
    except (DamageError, NotThereError) as error:
        return [Changed(file=each, problems=(str(error),)) for each in files.values()][:1]
    last = len(found) - 1
    return [
        *gone,
        *(_show(files[each.path], each, has_rows=at == last) for at, each in enumerate(found)),
    ]


def _show(file: KnownFile, found: PartChanges, *, has_rows: bool) -> Changed:
    record = found.record
    return Changed(
        file=file,
        part=found.part,
        counts=describe_places(record) if record.header is not None else "",
        total=record.header.total if record.header is not None else 0,
        rows=tuple(record.ordered()[:_MOST_ROWS]) if has_rows else (),
        problems=record.problems,
    )


def find_room(known: Known, changed: list[Changed]) -> Room | None:
    """The clean-room result, or why there is none; None if nothing is known."""
    file = known.find_file(CLEAN_ROOM)
    if file is not None and not file.is_here:
        return Room(summary="", file=file)
    try:
        found = load_clean_room(known.traced.files, known.traced.open_file)
    except (DamageError, NotThereError) as error:
        found = str(error)
    match found:
        case CleanRoomResult():
            return _show_room(found, file)
        case str():
            return Room(summary=f"{CLEAN_ROOM}: {found}", file=file)
    findings = known.entry.findings if known.entry else ()
    if not changed and not any(each.get("code") == "clean-room-skipped" for each in findings):
        return None
    record = known.traced.record
    reward = record.evaluation.reward if record is not None else None
    return Room(summary=describe_missing(findings, reward))


def _show_room(found: CleanRoomResult, file: KnownFile | None) -> Room:
    return Room(
        summary=describe_clean_room(found),
        is_alarming=found.is_alarming,
        rows=tuple(
            RoomRow(name, describe_rewards(each), each.seconds, each.is_same)
            for name, each in found.named
        ),
        left_out=found.left_out,
        survivors=found.survivors,
        file=file,
    )
