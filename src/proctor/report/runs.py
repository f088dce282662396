"""What a report is about: an experiment of a ledger, or a harbor job's directory.

Only attempts that count are in its numbers; how many do not is told, by why.
"""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from proctor.errors import InputError
from proctor.ledger.counting import count_left_out, counted_trials
from proctor.ledger.entry import RescoreEntry
from proctor.ledger.log import is_ledger
from proctor.ledger.note import Checkpoint
from proctor.ledger.query import Position, find_trials, load_position, render_missing
from proctor.ledger.reader import LedgerReader
from proctor.ledger.row import TrialRow
from proctor.ledger.trial_index import TrialFilter
from proctor.ledger.withheld import render_unnamed
from proctor.report.in_jobs import Unreadable, load_jobs
from proctor.sentence import count_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Basis:
    """The position of a log that numbers rest on."""

    origin: str
    """Name of the log."""
    size: int
    """Entries that count."""
    root: str
    """Root hash of the tree, hex, at the latest checkpoint."""
    checkpoint: str
    """The signed note itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """Attempts that were made as one."""

    name: str
    """The experiment, or the name of the job's directory; never a path."""
    is_sealed: bool
    """Whether it is in a ledger."""
    attempts: tuple[TrialRow, ...]
    """Those that count."""
    left_out: dict[str, int] = field(default_factory=dict)
    """How many do not count, by why."""
    unreadable: tuple[Unreadable, ...] = ()
    """Trials of a job that could not be read."""
    notes: tuple[str, ...] = ()
    """What whoever reads the numbers should know."""
    basis: Basis | None = None
    """Null for a job's directory."""
    withheld_unnamed: int = 0
    """Entries of the ledger that were withheld without naming a trial; any may be of this run."""


def load_run(thing: str, ledger: LedgerReader | None, *, prefers_ledger: bool = False) -> Run:
    """The run that a path or an experiment's name stands for; what is both is a path as a rule.

    Raises:
        InputError: it is neither, or nothing is in it.
    """
    check_name(thing)
    if ledger is None or (os.path.lexists(thing) and not prefers_ledger):
        return load_job_run(thing)
    if os.path.lexists(thing) and not is_sealed(ledger, thing):
        return load_job_run(thing)
    return load_sealed_run(ledger, thing)


def check_name(thing: str) -> None:
    """See that a run was named at all: an empty variable of a shell names none.

    Raises:
        InputError: it is empty.
    """
    if not thing:
        raise InputError("the name of a run is empty; expected an experiment, or a job's directory")


def is_sealed(ledger: LedgerReader, experiment: str) -> bool:
    """Whether a ledger holds an experiment of this name."""
    wanted = TrialFilter(experiment=experiment, limit=1)
    return experiment.isprintable() and bool(find_trials(ledger, wanted))


def check_job(path: str) -> None:
    """See that a path does not lead to a ledger, whose experiments are runs and it is not.

    Raises:
        InputError: it does.
        LedgerError: it cannot be looked into.
    """
    if is_ledger(Path(path)) or (Path(path) / "entries").is_dir():
        raise InputError(f"{path}: a ledger; expected a job, or an experiment with --ledger {path}")


def load_sealed_run(ledger: LedgerReader, experiment: str) -> Run:
    """An experiment of a ledger, as it stands now.

    Raises:
        InputError: there is none of that name.
        DamageError: the log does not give what its checkpoint says.
    """
    checkpoint = ledger.refresh()
    found = load_position(ledger, at=checkpoint.tree.size or None, experiment=experiment)
    if not found.trials:
        raise InputError(f"{experiment}: no such directory; {render_missing(ledger, experiment)}")
    counted = tuple(counted_trials(found.trials))
    return Run(
        name=experiment,
        is_sealed=True,
        attempts=counted,
        left_out=count_left_out(found.trials),
        notes=tuple(_find_notes(ledger, found, counted)),
        basis=_basis_of(checkpoint),
        withheld_unnamed=len(found.unnamed),
    )


def _find_notes(
    ledger: LedgerReader, found: Position, counted: Sequence[TrialRow]
) -> Iterator[str]:
    if unnamed := render_unnamed(found.unnamed):
        yield f"the ledger: {unnamed}"
    experiment = found.trials[0].experiment_id
    entries = map(ledger.entry, ledger.index.remarks(kind="rescore"))
    named = {entry.subject.record for entry in entries if isinstance(entry, RescoreEntry)}
    rescored = named & {each.record for each in counted}
    if rescored:
        which = count_of(len(rescored), "trial")
        yield (
            f"{experiment}: {which} rescored later; the first score counts here, as in a claim, "
            "and the later one on a board"
        )


def _basis_of(checkpoint: Checkpoint) -> Basis:
    return Basis(
        origin=checkpoint.origin,
        size=checkpoint.tree.size,
        root=checkpoint.tree.root.hex(),
        checkpoint=checkpoint.render().decode("utf-8", "replace"),
    )


def load_job_run(path: str) -> Run:
    """A job's directory, or a directory of jobs.

    Raises:
        InputError: there is no job, or no trial that can be read.
    """
    check_job(path)
    found = load_jobs(path)
    if not found.attempts:
        raise InputError(f"{path}: no trial in it that can be read; expected a harbor job")
    counted = tuple(counted_trials(found.attempts))
    place = Path(path).resolve()
    return Run(
        name=place.name,
        is_sealed=False,
        attempts=counted,
        left_out=count_left_out(found.attempts),
        unreadable=tuple(
            Unreadable(Path(each.place).name, _without(each.message, path, place.name))
            for each in found.unreadable
        ),
        notes=tuple(_without(note, path, place.name) for note in found.notes),
    )


def _without(text: str, path: str, name: str) -> str:
    """A sentence without the place on this machine: a report is sent to others."""
    for known in (str(Path(path).resolve()), path.rstrip("/")):
        text = text.replace(known, name)
    return text
