"""The trials of an experiment, classified by what the log says about them.

    counted      included in the score
    superseded   another trial replaces it
    withheld     its line was withheld: its score is unknown
    unnamed      lines and evidence that earlier versions withheld without naming a trial
    attempt      an earlier attempt, kept beside the trial that counts: `<trial>.attempt-N`; also
                 one whose machine died, of a trial that is not in the log
    diagnostic   its record is partial, and partial ones are left out

Makers and checkers of claims use the same functions.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from proctor.errors import DamageError
from proctor.ledger.admission import Identities
from proctor.ledger.counting import (
    SUPERSEDED,
    Replaceable,
    is_lost,
    judge_supersessions,
    restarted_attempts,
)
from proctor.ledger.entry import (
    AnyEntry,
    RescoreEntry,
    Subject,
    SupersedeEntry,
    TrialEntry,
    WithholdEntry,
)
from proctor.ledger.row import TrialRow, read_row

type ReadTrial = tuple[TrialEntry, TrialRow]
"""A sealed trial with its row."""

# The unknown fields of a withheld trial.
_UNKNOWN = (None, None, None, None, True)


@dataclass(frozen=True, slots=True)
class Scope:
    """Selects the claimed trials."""

    experiment: str
    dataset: str | None = None
    """Only trials of this dataset; None for all."""
    sealed_only: bool = False
    """Leave out trials with partial records."""

    def covers(self, row: TrialRow) -> bool:
        """Whether a trial is selected."""
        return row.experiment_id == self.experiment and self.dataset in (None, row.dataset_id)


@dataclass(slots=True)
class ClaimedTrials:
    """The trials of an experiment, in the order of the log."""

    counted: list[ReadTrial] = field(default_factory=list)
    superseded: list[TrialEntry] = field(default_factory=list)
    withheld: list[int] = field(default_factory=list)
    """Positions of withheld trials."""
    unnamed: list[int] = field(default_factory=list)
    """Positions of lines withheld without naming a trial, of any experiment."""
    unnamed_evidence: list[int] = field(default_factory=list)
    """Positions of entries that withhold evidence without naming a trial."""
    attempts: list[TrialEntry] = field(default_factory=list)
    """Earlier attempts of trials that are present, and attempts whose machine died."""
    diagnostic: list[TrialEntry] = field(default_factory=list)
    """Partial trials that were left out; empty if they are counted."""
    n_counted_diagnostic: int = 0
    """Partial trials that are counted."""
    n_rescored: int = 0
    """Counted trials that were rescored later; their original scores count."""


def classify_trials(
    entries: Sequence[AnyEntry], leaves: Mapping[int, bytes], scope: Scope
) -> ClaimedTrials:
    """Classify trials by these entries; `leaves` are the hashes of missing lines."""
    claimed, identities = ClaimedTrials(), Identities()
    for entry in sorted(entries, key=lambda found: found.seq):
        identities.take(entry)
    rescored = {found.subject.record for found in _of(entries, RescoreEntry)}
    trials = _read_trials(entries, scope)
    rows = [row for _, row in trials]
    withheld = _sort_withheld(entries, leaves, {row.trial_id for row in rows}, scope, claimed)
    superseded = _find_superseded(entries, rows, withheld)
    restarted = restarted_attempts(
        [
            (row.trial_id, SUPERSEDED if row.record in superseded else row.status, is_lost(row))
            for row in rows
        ]
    )
    for entry, row in trials:
        if row.record in superseded:
            claimed.superseded.append(entry)
        elif row.trial_id in restarted:
            claimed.attempts.append(entry)
        elif scope.sealed_only and row.status != "sealed":
            claimed.diagnostic.append(entry)
        else:
            claimed.counted.append((entry, row))
            claimed.n_counted_diagnostic += row.status != "sealed"
            claimed.n_rescored += row.record in rescored
    return claimed


def _read_trials(entries: Sequence[AnyEntry], scope: Scope) -> list[ReadTrial]:
    """The trials with their rows, in the order of the log."""
    said = sorted(_of(entries, TrialEntry), key=lambda found: found.seq)
    trials = [(entry, read_row(entry)) for entry in said]
    for entry, row in trials:
        if not scope.covers(row):
            raise DamageError(
                f"entry {entry.seq} is trial {row.trial_id} of {row.experiment_id} "
                f"({row.dataset_id or 'no dataset'}), which is outside of the claim"
            )
    return trials


def _find_superseded(
    entries: Sequence[AnyEntry], trials: Iterable[TrialRow], withheld: Iterable[Subject]
) -> set[str]:
    """The records that another trial replaces, by the rule of ledger.counting."""
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
    claimed: ClaimedTrials,
) -> list[Subject]:
    """Separate withheld lines by whether a trial is named; returns the named trials."""
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
        # The name of another present trial does not identify this one.
        if subject.trial_id not in taken:
            named[each.entry] = subject
            taken.add(subject.trial_id)
    for seq in sorted(leaves.keys() - excused):
        raise DamageError(
            f"entry {seq} has no line, and no withholding under the checkpoint names it"
        )
    claimed.withheld = sorted(named)
    claimed.unnamed = sorted(leaves.keys() - named.keys())
    claimed.unnamed_evidence = [
        each.seq
        for each in said
        if each.subject is None and each.artifacts and each.entry not in leaves
    ]
    return list(named.values())


def _hex(leaves: Mapping[int, bytes], seq: int) -> str | None:
    return leaves[seq].hex() if seq in leaves else None
