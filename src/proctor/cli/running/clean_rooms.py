"""What the clean rooms of a job found and cost, for its summary."""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path

import msgspec

from proctor.files import read_small
from proctor.trial.clean_room_result import LARGEST, CleanRoomResult, parse_clean_room
from proctor.trial.paths import TrialPaths


@dataclass(frozen=True, slots=True)
class CleanRooms:
    """The clean rooms of a job's trials."""

    run: int = 0
    """Trials whose tests were run once more in a clean room."""
    differ: int = 0
    """Those in which that gave another result."""
    skipped: int = 0
    """Trials with a finding that says why there was none, or not all of one."""
    seconds: float = 0.0
    """What all of them took."""
    trial_seconds: float = 0.0
    """What the trials took, clean rooms included."""


class _Times(msgspec.Struct, frozen=True):
    started_at: datetime | None = None
    finished_at: datetime | None = None


_decode_times = msgspec.json.Decoder(_Times).decode


def count_clean_rooms(
    directory: Path, trials: Iterable[str], skipped: Collection[str]
) -> CleanRooms:
    """The clean rooms of these trials; `skipped` are those with a finding that one was skipped."""
    found: list[CleanRoomResult] = []
    trial_seconds = 0.0
    for trial in trials:
        paths = TrialPaths(directory / trial)
        result = _load(paths.clean_room_path)
        if result is not None:
            found.append(result)
        trial_seconds += _load_seconds(paths.result_path)
    ran = [each for each in found if not each.is_skipped]
    return CleanRooms(
        run=len(ran),
        differ=sum(each.is_different for each in ran),
        skipped=len(skipped),
        seconds=round(sum(each.seconds for each in found), 6),
        trial_seconds=trial_seconds,
    )


def _load(path: Path) -> CleanRoomResult | None:
    try:
        found = parse_clean_room(read_small(str(path), LARGEST))
    except OSError:
        return None
    return found if isinstance(found, CleanRoomResult) else None


def _load_seconds(path: Path) -> float:
    try:
        times = _decode_times(read_small(str(path)))
        if times.started_at is None or times.finished_at is None:
            return 0.0
        return max((times.finished_at - times.started_at).total_seconds(), 0.0)
    # One time with a zone and one without have no difference.
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError, TypeError):
        return 0.0


def render_clean_rooms(rooms: CleanRooms) -> Iterator[str]:
    """One line; none where no trial had or missed a clean room."""
    if not rooms.run and not rooms.skipped:
        return
    counts = f"{rooms.run:,} run, {rooms.differ:,} differ, {rooms.skipped:,} skipped"
    share = ""
    if rooms.trial_seconds > 0:
        share = f" ({rooms.seconds / rooms.trial_seconds:.0%} of trial time)"
    cost = f"; {rooms.seconds:.1f} s{share}" if rooms.run else ""
    yield f"clean rooms: {counts}{cost}"


def describe_clean_rooms(rooms: CleanRooms) -> dict[str, object]:
    """The same for programs."""
    document = asdict(rooms)
    del document["trial_seconds"]
    return document
