"""A run: an experiment of a ledger, or a harbor job directory.

Its numbers are over the trials that count; the others are reported by status.
"""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from proctor.errors import InputError
from proctor.exchange.harbor_job import holds_jobs
from proctor.ledger.counting import count_left_out, counted_trials
from proctor.ledger.entry import RescoreEntry
from proctor.ledger.log import is_ledger
from proctor.ledger.note import Checkpoint
from proctor.ledger.query import Position, list_trials, load_position, render_missing
from proctor.ledger.reader import LedgerReader
from proctor.ledger.row import TrialRow
from proctor.ledger.trial_index import TrialFilter
from proctor.report.in_jobs import Unreadable, load_jobs
from proctor.sentence import count_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Basis:
    """The position of a log that numbers are based on."""

    origin: str
    """Name of the log."""
    size: int
    """The number of entries."""
    root: str
    """Root hash of the tree, hex, at the latest checkpoint."""
    checkpoint: str
    """The signed note."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """Trials that were run together."""

    name: str
    """The experiment, or the name of the job's directory; never a path."""
    is_sealed: bool
    """Whether it is in a ledger."""
    trials: tuple[TrialRow, ...]
    """The trials that count."""
    left_out: dict[str, int] = field(default_factory=dict)
    """The number of trials that do not count, by status."""
    unreadable: tuple[Unreadable, ...] = ()
    """Trials of a job that could not be read."""
    notes: tuple[str, ...] = ()
    """Notes about the numbers."""
    basis: Basis | None = None
    """Null for a job directory."""


def load_run(thing: str, ledger: LedgerReader | None, *, prefers_ledger: bool = False) -> Run:
    """Load a run by path or experiment name; by default, an existing path takes precedence."""
    check_name(thing)
    if ledger is None or (is_job_path(thing) and not prefers_ledger):
        return load_job_run(thing)
    # With `prefers_ledger`, a path is used only if the ledger has no experiment of that name.
    if os.path.lexists(thing) and not is_sealed(ledger, thing):
        return load_job_run(thing)
    return load_sealed_run(ledger, thing)


def is_job_path(thing: str) -> bool:
    """Whether a run is given by its path.

    A directory that has no job in it may share its name with an experiment: `agent`, for example.
    """
    if not os.path.lexists(thing):
        return False
    is_bare = os.sep not in thing and Path(thing).is_dir()
    return not is_bare or holds_jobs(Path(thing))


def check_name(thing: str) -> None:
    """Refuse an empty name, as from an unset shell variable.

    Raises:
        InputError: it is empty.
    """
    if not thing:
        raise InputError("the name of a run is empty; expected an experiment, or a job's directory")


def is_sealed(ledger: LedgerReader, experiment: str) -> bool:
    """Whether a ledger has an experiment of this name."""
    wanted = TrialFilter(experiment=experiment, limit=1)
    return experiment.isprintable() and bool(list_trials(ledger, wanted))


def check_job(path: str) -> None:
    """Refuse a path that is a ledger: its experiments are runs, but not the ledger itself.

    Raises:
        InputError: it is a ledger.
        LedgerError: it cannot be read.
    """
    if is_ledger(Path(path)) or (Path(path) / "entries").is_dir():
        raise InputError(f"{path}: a ledger; expected a job, or an experiment with --ledger {path}")


def load_sealed_run(ledger: LedgerReader, experiment: str) -> Run:
    """Load an experiment of a ledger at its present size.

    Raises:
        InputError: there is none of that name.
        DamageError: the log does not match its checkpoint.
    """
    checkpoint = ledger.refresh()
    found = load_position(ledger, at=checkpoint.tree.size or None, experiment=experiment)
    if not found.trials:
        raise InputError(f"{experiment}: no such directory; {render_missing(ledger, experiment)}")
    counted = tuple(counted_trials(found.trials))
    return Run(
        name=experiment,
        is_sealed=True,
        trials=counted,
        left_out=count_left_out(found.trials),
        notes=tuple(_find_notes(ledger, found, counted)),
        basis=_basis_of(checkpoint),
    )


def _find_notes(
    ledger: LedgerReader, found: Position, counted: Sequence[TrialRow]
) -> Iterator[str]:
    experiment = found.trials[0].experiment_id
    entries = map(ledger.entry, ledger.index.remarks(kind="rescore"))
    named = {entry.subject.record for entry in entries if isinstance(entry, RescoreEntry)}
    rescored = named & {each.record for each in counted}
    if rescored:
        which = count_of(len(rescored), "trial")
        yield (
            f"{experiment}: {which} rescored later; the original score counts here, as in a claim, "
            "and the new one on a board"
        )


def _basis_of(checkpoint: Checkpoint) -> Basis:
    return Basis(
        origin=checkpoint.origin,
        size=checkpoint.tree.size,
        root=checkpoint.tree.root.hex(),
        checkpoint=checkpoint.render().decode("utf-8", "replace"),
    )


def load_job_run(path: str) -> Run:
    """Load a job directory, or a directory of jobs.

    Raises:
        InputError: there is no job, or no readable trial.
    """
    check_job(path)
    found = load_jobs(path)
    if not found.trials:
        raise InputError(f"{path}: no readable trial in it; expected a harbor job")
    counted = tuple(counted_trials(found.trials))
    place = Path(path).resolve()
    return Run(
        name=place.name,
        is_sealed=False,
        trials=counted,
        left_out=count_left_out(found.trials),
        unreadable=tuple(
            Unreadable(Path(each.place).name, _without(each.message, path, place.name))
            for each in found.unreadable
        ),
        notes=tuple(_without(note, path, place.name) for note in found.notes),
    )


def _without(text: str, path: str, name: str) -> str:
    """A text without paths of this machine, because reports are shared."""
    for known in (str(Path(path).resolve()), path.rstrip("/")):
        text = text.replace(known, name)
    return text
