"""What is to be taken out of a ledger, and what was."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from proctor.errors import InputError
from proctor.ledger.ledger import Ledger
from proctor.ledger.query import TrialRow


@dataclass(frozen=True, slots=True)
class Chosen:
    """The sealed trials that are meant."""

    ledger: Ledger
    rows: list[TrialRow]
    """In the order they were sealed."""
    is_all: bool
    """Whether nothing was asked for in particular."""
    watch: Callable[[int], None] = lambda _done: None
    """Told how many of the trials are done."""


class Exported(msgspec.Struct, frozen=True, kw_only=True):
    """What was taken out."""

    output: str
    trials: int
    entries: int | None = None
    """Of the whole ledger; only a bundle speaks of it."""
    left_out: int | None = None
    """Trials of which the bundle has the record, and not the evidence."""
    evidence: int | None = None
    """Files of evidence in the bundle."""
    jobs: int | None = None
    """Directories of harbor's jobs."""
    refused: list[str] = []
    """A sentence for each trial, or part of one, that was left out."""
    losses: int | None = None
    """Fields that the form could not keep; null where that is not looked for."""
    loss_report: str | None = None
    """The file that names them all."""


def check_some(written: int, left_out: Sequence[str]) -> None:
    """Refuse an export in which nothing is left.

    Raises:
        InputError: every trial was left out.
    """
    if not written:
        raise InputError(f"none of these trials can be exported so: {left_out[0]}")


type Exporter = Callable[[Chosen, Path], Exported]
"""Writes the trials to a path where nothing is."""
