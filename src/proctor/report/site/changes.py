"""What the agent changed, and what the tests gave in a clean room, as blocks of a trial's page."""

from collections.abc import Iterator

from proctor.errors import DamageError
from proctor.report.page.blocks import Block, Cell, Column, Heading, Paragraph, Table
from proctor.report.page.figures import render_seconds
from proctor.report.site.steps import cut_text
from proctor.traces.traced_trial import TracedTrial
from proctor.trial.change_files import CLEAN_ROOM, load_changes, load_clean_room
from proctor.trial.change_record import ChangeRecord, describe_places
from proctor.trial.changes import Change, Phase, Place
from proctor.trial.clean_room_result import (
    CleanRoomResult,
    describe_clean_room,
    describe_missing,
    describe_rewards,
)

_MOST_ROWS = 200
_COLUMNS = ("path", "place", "when", "how", "kind", "mode", "bytes", "sha256")


def tell_changes(trial: TracedTrial) -> Iterator[Block]:
    """Both sections; nothing for a trial of which neither is known."""
    try:
        found = load_changes(trial.files, trial.open_file)
        room = load_clean_room(trial.files, trial.open_file)
    except DamageError as error:
        yield Heading("Changes")
        yield Paragraph(str(error), "bad")
        return
    if found:
        yield Heading("Changes")
        for each in found:
            step = f"After step {each.part}: " if each.part else ""
            yield Paragraph(_line(f"{step}the agent changed {describe_places(each.record)}."))
            yield from (Paragraph(_line(problem), "warn") for problem in each.record.problems)
        # What is listed after a step has the changes of the steps before it.
        yield from _tell_rows(found[-1].record)
    if room is not None or found:
        yield Heading("Clean room")
        yield from _tell_room(trial, room)


def _tell_rows(record: ChangeRecord) -> Iterator[Block]:
    if not record.changes:
        return
    columns = tuple(Column(name, is_number=name == "bytes") for name in _COLUMNS)
    shown = record.ordered()[:_MOST_ROWS]
    yield Table(columns, tuple(map(_cells, shown)), "Changes")
    if left := len(record.changes) - len(shown):
        yield Paragraph(f"… and {left:,} more; changes.jsonl lists them.", "warn")


def _cells(change: Change) -> tuple[Cell, ...]:
    is_system = change.place is Place.SYSTEM and change.when is Phase.AGENT
    path = f"{change.path} → {change.target}" if change.target else change.path
    texts = (
        str(change.when),
        change.how,
        change.kind,
        change.mode,
        "" if change.size is None else f"{change.size:,}",
        change.sha256[:12],
    )
    place = Cell(str(change.place), "warn" if is_system else "")
    return (Cell(_line(path)), place, *(Cell(_line(text[:40])) for text in texts))


def _tell_room(trial: TracedTrial, room: CleanRoomResult | str | None) -> Iterator[Block]:
    if room is None:
        reward = trial.record.evaluation.reward if trial.record is not None else None
        yield Paragraph(_line(describe_missing(trial.findings, reward)))
        return
    if isinstance(room, str):
        yield Paragraph(_line(f"{CLEAN_ROOM}: {room}"), "warn")
        return
    yield Paragraph(_line(describe_clean_room(room)), "bad" if room.is_alarming else "")
    columns = (Column("verification"), Column("reward"), Column("took", is_number=True))
    rows = tuple(
        (Cell(name), Cell(_line(describe_rewards(each))), Cell(render_seconds(each.seconds)))
        for name, each in room.named
    )
    if rows:
        yield Table(columns, rows, "Clean room")


def _line(text: str) -> str:
    return " ".join(cut_text(text))
