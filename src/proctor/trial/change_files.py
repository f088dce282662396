"""Load the change records and the clean-room result of a trial from its files, sealed or not."""

from collections.abc import Callable, Collection
from dataclasses import dataclass

from proctor.errors import InputError
from proctor.files import open_plain
from proctor.sentence import reason_of
from proctor.traces.traced_trial import Opened, Part, order_parts
from proctor.trial.change_record import LARGEST, ChangeRecord, parse_changes
from proctor.trial.clean_room_result import LARGEST as LARGEST_RESULT
from proctor.trial.clean_room_result import CleanRoomResult, parse_clean_room

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
    parts = order_parts([Part(name, []) for name in found], files, open_file)
    return [
        PartChanges(part.name, found[part.name], _load(found[part.name], open_file))
        for part in parts
    ]


def _load(name: str, open_file: Callable[[str], Opened]) -> ChangeRecord:
    try:
        with open_file(name) as path, open_plain(path) as file:
            return parse_changes(file.read(LARGEST + 1))
    except (OSError, InputError) as error:
        return ChangeRecord(problems=(_describe(error),))


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
