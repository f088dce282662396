"""The trials of an experiment, told apart by what the log says of them.

    counted      stands, and is in the number
    superseded   another trial stands in for it
    withheld     its line was taken out: what it scored is not known
    attempt      an earlier attempt, kept beside the trial that counts: `<trial>.attempt-N`
    diagnostic   its record is partial, and partial ones were to be left out

Whoever makes a claim and whoever checks it use the same functions. Nothing here reads a ledger.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from proctor.errors import DamageError
from proctor.ledger.admission import Identities
from proctor.ledger.entry import (
    AnyEntry,
    RescoreEntry,
    SupersedeEntry,
    TrialEntry,
    WithholdEntry,
    record_digest,
)
from proctor.ledger.head import RecordHead, read_head_of

KEPT = ".attempt-"
"""What every id of an attempt has that was kept beside its trial; a number follows."""
_ATTEMPT = re.compile(r"\.attempt-[0-9]+\Z")


@dataclass(frozen=True, slots=True)
class Scope:
    """Which trials are meant."""

    experiment: str
    dataset: str | None = None
    """Only those of this dataset; None for all."""
    sealed_only: bool = False
    """Leave out those whose records are partial."""

    def covers(self, head: RecordHead) -> bool:
        """Whether a trial is one of them."""
        is_dataset = self.dataset is None or head.dataset_id == self.dataset
        return head.experiment_id == self.experiment and is_dataset


@dataclass(slots=True)
class Standing:
    """The trials of an experiment, in the order of the log."""

    counted: list[TrialEntry] = field(default_factory=list)
    superseded: list[TrialEntry] = field(default_factory=list)
    withheld: list[int] = field(default_factory=list)
    """Places in the log; the lines are gone."""
    attempts: list[TrialEntry] = field(default_factory=list)
    """Earlier attempts of trials that are there themselves."""
    diagnostic: list[TrialEntry] = field(default_factory=list)
    """Partial ones that were left out; empty where they are counted."""
    n_counted_diagnostic: int = 0
    """Partial ones among those that are counted."""
    n_rescored: int = 0
    """Counted trials that were marked again later; their first marks count."""


def sort_out(entries: Sequence[AnyEntry], leaves: Mapping[int, bytes], scope: Scope) -> Standing:
    """Tell trials apart by these entries; `leaves` are those of lines that are not at hand.

    Raises:
        DamageError: an entry has no business here, or a line is missing without a word.
    """
    standing, identities = Standing(), Identities()
    for entry in sorted(entries, key=lambda found: found.seq):
        identities.take(entry)
    rescored = {found.subject.record for found in _of(entries, RescoreEntry)}
    trials = _name_trials(entries, scope)
    superseded = _find_superseded(entries, {record_digest(entry) for entry in trials.values()})
    for trial_id, entry in trials.items():
        head, digest = read_head_of(entry), record_digest(entry)
        if digest in superseded:
            standing.superseded.append(entry)
        elif begun_again_as(trial_id) in trials:
            standing.attempts.append(entry)
        elif scope.sealed_only and head.status != "sealed":
            standing.diagnostic.append(entry)
        else:
            standing.counted.append(entry)
            standing.n_counted_diagnostic += head.status != "sealed"
            standing.n_rescored += digest in rescored
    standing.withheld = _find_withheld(entries, leaves, scope)
    return standing


def begun_again_as(trial_id: str) -> str | None:
    """The trial that an earlier attempt was kept beside; None where the id is no such attempt's."""
    base = _ATTEMPT.sub("", trial_id)
    return base if base != trial_id else None


def _name_trials(entries: Sequence[AnyEntry], scope: Scope) -> dict[str, TrialEntry]:
    """The trials by their ids, in the order of the log."""
    trials: dict[str, TrialEntry] = {}
    for entry in sorted(_of(entries, TrialEntry), key=lambda found: found.seq):
        head = read_head_of(entry)
        if not scope.covers(head):
            raise DamageError(
                f"entry {entry.seq} is trial {head.trial_id} of {head.experiment_id} "
                f"({head.dataset_id or 'no dataset'}), which is not claimed"
            )
        trials[head.trial_id] = entry
    return trials


def _find_superseded(entries: Sequence[AnyEntry], records: set[str]) -> set[str]:
    """Records that another one stands in for, which is there, or was and is withheld.

    To be rid of a trial it is not enough to name one that never was, or the trial itself.
    """
    standing_in = {entry.subject.record: entry.by.record for entry in _of(entries, SupersedeEntry)}
    withheld = {entry.subject.record for entry in _of(entries, WithholdEntry) if entry.subject}
    there = records | withheld
    return {record for record in standing_in if find_stand_in(record, standing_in) in there}


def find_stand_in(record: str, standing_in: Mapping[str, str]) -> str | None:
    """The record at which supersessions end; None where they lead round in a circle."""
    seen, last = {record}, standing_in[record]
    while last in standing_in and last not in seen:
        seen.add(last)
        last = standing_in[last]
    return last if last not in seen else None


def _of[Kind: AnyEntry](entries: Iterable[AnyEntry], kind: type[Kind]) -> list[Kind]:
    return [entry for entry in entries if isinstance(entry, kind)]


def _find_withheld(
    entries: Sequence[AnyEntry], leaves: Mapping[int, bytes], scope: Scope
) -> list[int]:
    words = {
        (entry.entry, entry.leaf)
        for entry in _of(entries, WithholdEntry)
        if entry.subject is not None and entry.subject.experiment_id == scope.experiment
    }
    for seq, leaf in sorted(leaves.items()):
        if (seq, leaf.hex()) not in words:
            raise DamageError(
                f"entry {seq} is there without its line, and no withholding of a trial of "
                f"{scope.experiment} that the checkpoint speaks of names it"
            )
    return sorted(leaves)
