"""`proctor show --changes`: what an agent changed, and the result of the clean room."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from proctor.cli.output import page, print_json
from proctor.cli.showing.options import ShowOptions
from proctor.cli.stdout import print_stderr
from proctor.errors import InputError
from proctor.sentence import count_of, printable
from proctor.traces.traced_trial import Opened
from proctor.trial.change_record import (
    CHANGES,
    CLEAN_ROOM,
    PLACES,
    ChangeRecord,
    PartChanges,
    describe_places,
    find_change_files,
    load_changes,
    load_clean_room,
)
from proctor.trial.changes import Change, Phase
from proctor.trial.clean_room_result import describe_clean_room, describe_missing

_DIGEST = 12
_LONGEST_WORD = 12
_LONGEST_PATH = 400


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangedTrial:
    """The parts of a trial that are needed here, sealed or not."""

    name: str
    files: Collection[str]
    """Its files, by relative paths with slashes."""
    open_file: Callable[[str], Opened]
    findings: Sequence[Mapping[str, Any]] = ()
    reward: float | None = None
    gone: Collection[str] = ()
    """Sealed files that are missing."""


def render_summary(trial: ChangedTrial) -> Iterator[str]:
    """A line for the changes and one for the clean room; empty if there is neither."""
    has_changes = bool(find_change_files([*trial.files, *trial.gone]))
    if find_change_files(trial.gone):
        yield f"  changes: {CHANGES} is not here"
    elif has_changes:
        # The list after a step includes the changes of earlier steps.
        last = load_changes(trial.files, trial.open_file)[-1]
        step = f", after step {last.part}" if last.part else ""
        yield f"  changes: {describe_places(last.record)}{step}"
    if CLEAN_ROOM in trial.gone:
        yield f"  clean room: {CLEAN_ROOM} is not here"
    elif (found := load_clean_room(trial.files, trial.open_file)) is not None:
        text = f"{CLEAN_ROOM}: {found}" if isinstance(found, str) else describe_clean_room(found)
        yield f"  clean room: {text}"
    elif has_changes or any(each.get("code") == "clean-room-skipped" for each in trial.findings):
        yield f"  clean room: {describe_missing(trial.findings, trial.reward)}"


def show_changes(trial: ChangedTrial, options: ShowOptions) -> None:
    """Print every path that differs from the image."""
    found = _choose_part(trial, load_changes(trial.files, trial.open_file), options.selection.part)
    if options.as_json:
        document = {"thing": "changes", "name": trial.name, "parts": list(map(_describe, found))}
        print_json(document)
    elif found:
        page(lambda: map(printable, _render(trial, found, options)), is_wanted=options.paged)
    for path in find_change_files(trial.gone).values():
        print_stderr(f"proctor: {printable(trial.name)}: {printable(path)} is not here")
    if not found and not find_change_files(trial.gone):
        print_stderr(f"proctor: {printable(trial.name)}: has no {CHANGES}")


def _choose_part(
    trial: ChangedTrial, found: list[PartChanges], part: str | None
) -> list[PartChanges]:
    chosen = [each for each in found if part in (None, each.part)]
    if found and not chosen:
        names = ", ".join(each.part for each in found if each.part)
        there = f"its parts are {names}" if names else "it has no parts"
        raise InputError(f"{trial.name}: no part {part!r}; {there}")
    return chosen


def _describe(found: PartChanges) -> dict[str, object]:
    record = found.record
    return {
        "part": found.part or None,
        "path": found.path,
        "header": None if record.header is None else msgspec.to_builtins(record.header),
        "changes": [msgspec.json.decode(line) for line in record.lines],
        "problems": list(record.problems),
    }


def _render(trial: ChangedTrial, found: list[PartChanges], options: ShowOptions) -> Iterator[str]:
    for at, each in enumerate(found):
        if at:
            yield ""
        name = f"{trial.name}, part {each.part}" if each.part else trial.name
        yield from _render_part(name, each.record, is_full=options.full)


def _render_part(name: str, record: ChangeRecord, *, is_full: bool) -> Iterator[str]:
    header = record.header
    if header is not None:
        differ = count_of(header.total, "path differs", "paths differ")
        listed = "" if header.listed == header.total else f", {header.listed:,} of them are listed"
        yield f"{name}: {differ} from the image{listed}"
        yield f"changes: {describe_places(record)}"
    else:
        yield f"{name}: its {CHANGES} cannot be used"
    yield from (f"problem: {sentence}" for sentence in record.problems)
    groups = [(str(place), record.of_agent(place)) for place in PLACES]
    groups.append(("during verification", list(record.during(Phase.VERIFICATION))))
    before = list(record.during(Phase.SETUP))
    if is_full:
        groups.append(("set-up", before))
    for title, changes in groups:
        if changes:
            yield from ["", f"{title}, {count_of(len(changes), 'path')}"]
            rows = [_cells(each, is_full=is_full) for each in changes]
            widths = [
                max(map(len, column)) for column in zip(*(row[:-1] for row in rows), strict=True)
            ]
            for how, kind, mode, size, digest, path in rows:
                yield (
                    f"  {how:<{widths[0]}}  {kind:<{widths[1]}}  {mode:<{widths[2]}}  "
                    f"{size:>{widths[3]}}  {digest:<{widths[4]}}  {path}"
                )
    if before and not is_full:
        yield from ["", f"set-up, {count_of(len(before), 'path')}; --full lists them"]


def _cells(change: Change, *, is_full: bool) -> tuple[str, str, str, str, str, str]:
    words = [printable(word[:_LONGEST_WORD]) for word in (change.how, change.kind, change.mode)]
    size = "-" if change.size is None or abs(change.size) >= 1 << 63 else f"{change.size:,}"
    digest = change.sha256 if is_full else change.sha256[:_DIGEST]
    path = f"{change.path} -> {change.target}" if change.target else change.path
    if not is_full and len(path) > _LONGEST_PATH:
        path = f"{path[:_LONGEST_PATH]}…"
    how, kind, mode = words
    return how, kind, mode or "-", size, printable(digest[:64]) or "-", printable(path)
