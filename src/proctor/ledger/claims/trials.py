"""The trials of an experiment, told apart by what the log says of them.

    counted      stands, and is in the number
    superseded   another trial supersedes it
    withheld     its line was taken out: what it scored is not known
    unnamed      lines and evidence that were withheld without naming a trial: see ledger.withheld
    attempt      an earlier attempt, kept beside the trial that counts: `<trial>.attempt-N`
    diagnostic   its record is partial, and partial ones were to be left out

Whoever makes a claim and whoever checks it use the same functions. Nothing here reads a ledger.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from proctor.errors import DamageError
from proctor.ledger.admission import Identities
from proctor.ledger.counting import SUPERSEDED, find_restarted
from proctor.ledger.entry import (
    AnyEntry,
    RescoreEntry,
    Subject,
    SupersedeEntry,
    TrialEntry,
    WithholdEntry,
)
from proctor.ledger.row import TrialRow, read_row
from proctor.ledger.supersession import Replaceable, judge_supersessions

_UNKNOWN = (None, None, None, None, True)
"""What is left of a withheld trial besides its name."""


@dataclass(frozen=True, slots=True)
class Scope:
    """Which trials are meant."""

    experiment: str
    dataset: str | None = None
    """Only those of this dataset; None for all."""
    sealed_only: bool = False
    """Leave out those whose records are partial."""

    def covers(self, row: TrialRow) -> bool:
        """Whether a trial is one of them."""
        return row.experiment_id == self.experiment and self.dataset in (None, row.dataset_id)


@dataclass(slots=True)
class ClaimedTrials:
    """The trials of an experiment, in the order of the log."""

    counted: list[TrialEntry] = field(default_factory=list)
    superseded: list[TrialEntry] = field(default_factory=list)
    withheld: list[int] = field(default_factory=list)
    """Places in the log; the lines are gone."""
    unnamed: list[int] = field(default_factory=list)
    """Places of lines that were taken out without naming a trial, of any experiment."""
    unnamed_evidence: list[int] = field(default_factory=list)
    """Places of entries that take out evidence without naming a trial."""
    attempts: list[TrialEntry] = field(default_factory=list)
    """Earlier attempts of trials that are there themselves."""
    diagnostic: list[TrialEntry] = field(default_factory=list)
    """Partial ones that were left out; empty where they are counted."""
    n_counted_diagnostic: int = 0
    """Partial ones among those that are counted."""
    n_rescored: int = 0
    """Counted trials that were marked again later; their first marks count."""


def sort_out(
    entries: Sequence[AnyEntry], leaves: Mapping[int, bytes], scope: Scope
) -> ClaimedTrials:
    """Tell trials apart by these entries; `leaves` are those of lines that are not at hand.

    Raises:
        DamageError: an entry has no business here, or a line is missing without a word.
    """
    standing, identities = ClaimedTrials(), Identities()
    for entry in sorted(entries, key=lambda found: found.seq):
        identities.take(entry)
    rescored = {found.subject.record for found in _of(entries, RescoreEntry)}
    trials = _read_trials(entries, scope)
    rows = [row for _, row in trials]
    withheld = _sort_withheld(entries, leaves, {row.trial_id for row in rows}, scope, standing)
    superseded = _find_superseded(entries, rows, withheld)
    restarted = find_restarted(
        [(row.trial_id, SUPERSEDED if row.record in superseded else row.status) for row in rows]
    )
    for entry, row in trials:
        if row.record in superseded:
            standing.superseded.append(entry)
        elif row.trial_id in restarted:
            standing.attempts.append(entry)
        elif scope.sealed_only and row.status != "sealed":
            standing.diagnostic.append(entry)
        else:
            standing.counted.append(entry)
            standing.n_counted_diagnostic += row.status != "sealed"
            standing.n_rescored += row.record in rescored
    return standing


def _read_trials(entries: Sequence[AnyEntry], scope: Scope) -> list[tuple[TrialEntry, TrialRow]]:
    """The trials with their rows, in the order of the log."""
    said = sorted(_of(entries, TrialEntry), key=lambda found: found.seq)
    trials = [(entry, read_row(entry)) for entry in said]
    for entry, row in trials:
        if not scope.covers(row):
            raise DamageError(
                f"entry {entry.seq} is trial {row.trial_id} of {row.experiment_id} "
                f"({row.dataset_id or 'no dataset'}), which is not claimed"
            )
    return trials


def _find_superseded(
    entries: Sequence[AnyEntry], trials: Iterable[TrialRow], withheld: Iterable[Subject]
) -> set[str]:
    """Records that another one stands in for, by the rule of every list."""
    said = sorted(_of(entries, SupersedeEntry), key=lambda found: found.seq)
    if not said:
        return set()
    pairs = [(entry.subject.record, entry.by.record) for entry in said]
    known = {found.record: Replaceable(found.experiment_id, *_UNKNOWN) for found in withheld}
    for row in trials:
        facts = (row.recorded_dataset, row.task_id, row.agent, row.model)
        known[row.record] = Replaceable(row.experiment_id, *facts)
    judged = judge_supersessions(pairs, known)
    return {record for record, refusal in judged.items() if refusal is None}


def _of[Kind: AnyEntry](entries: Iterable[AnyEntry], kind: type[Kind]) -> list[Kind]:
    return [entry for entry in entries if isinstance(entry, kind)]


def _sort_withheld(
    entries: Sequence[AnyEntry],
    leaves: Mapping[int, bytes],
    trials: set[str],
    scope: Scope,
    standing: ClaimedTrials,
) -> list[Subject]:
    """Tell lines that were taken out apart by whether a trial is named; the trials named."""
    said = sorted(_of(entries, WithholdEntry), key=lambda found: found.seq)
    named: dict[int, Subject] = {}
    taken, excused = set(trials), set()
    for each in said:
        if each.entry is None or each.entry > each.seq or each.leaf != _hex(leaves, each.entry):
            continue
        excused.add(each.entry)
        subject = each.subject
        if subject is None or subject.experiment_id != scope.experiment or each.entry in named:
            continue
        # A name that another trial has says nothing of this one.
        if subject.trial_id not in taken:
            named[each.entry] = subject
            taken.add(subject.trial_id)
    for seq in sorted(leaves.keys() - excused):
        raise DamageError(
            f"entry {seq} is there without its line, and no withholding that the checkpoint "
            "speaks of names it"
        )
    standing.withheld = sorted(named)
    standing.unnamed = sorted(leaves.keys() - named.keys())
    standing.unnamed_evidence = [
        each.seq
        for each in said
        if each.subject is None and each.artifacts and each.entry not in leaves
    ]
    return list(named.values())


def _hex(leaves: Mapping[int, bytes], seq: int) -> str | None:
    return leaves[seq].hex() if seq in leaves else None
