"""The ledger for programs: open it, seal into it, list it, say something of what is in it.

    with Ledger.open("ledger") as ledger:
        sealed = ledger.seal(record, evidence=["agent/trajectory.jsonl"], root=trial)
        for trial in ledger.trials(TrialFilter(experiment="nightly")):
            print(trial.trial_id, trial.reward)

Whoever opens it for reading needs no key. The first write looks for the user's own, unless one was
given. `docs/ledger.md` has examples that run.
"""

import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from proctor.errors import LedgerError
from proctor.ledger.entry import AnyEntry, TrialEntry, TrialScore, Withheld
from proctor.ledger.keys import find_key
from proctor.ledger.ledger import OpenLedger
from proctor.ledger.place import open_or_create
from proctor.ledger.query import find_one, find_trial, find_trials
from proctor.ledger.restore import Restored, restore
from proctor.ledger.review import (
    Remark,
    append_note,
    append_plan,
    append_rescore,
    append_review,
    append_supersession,
    find_remarks,
)
from proctor.ledger.row import TrialRow
from proctor.ledger.sealing import Sealed, Secrets, Submission, seal
from proctor.ledger.stats import LedgerStats, measure
from proctor.ledger.submission import submit_trial
from proctor.ledger.trial_index import TrialFilter
from proctor.ledger.withheld import UnnamedWithholding, find_unnamed
from proctor.ledger.withhold import (
    Why,
    Withholding,
    withhold_entry,
    withhold_evidence,
    withhold_trial,
)

__all__ = ["Ledger", "Secrets", "Submission", "TrialFilter", "TrialRow", "TrialScore"]


class Ledger(OpenLedger):
    """An open ledger."""

    @classmethod
    def open_or_create(cls, directory: Path | str, *, origin: str | None = None) -> "Ledger":
        """The ledger for writing, made where there is none, with the user's own key.

        Raises:
            LedgerError: it can neither be opened nor made.
            KeyFileError: the key cannot be read or made.
        """
        key = find_key(None, os.environ)
        made, _ = open_or_create(Path(directory), key, origin=origin)
        made.close()
        return cls.open(directory, key=key)

    @contextlib.contextmanager
    def writing(self) -> Iterator[None]:
        """Be the only writer, with the index as far as the log; looks for the key if need be."""
        self._find_key()
        with super().writing():
            yield

    def _find_key(self) -> None:
        if self.key is None:
            self.key = find_key(None, os.environ)

    def seal(
        self,
        record: bytes,
        evidence: Sequence[str] = (),
        *,
        root: Path | str | None = None,
        secrets: Mapping[str, str] | None = None,
    ) -> Sealed:
        """Seal a record with evidence: files under `root`, by their relative paths.

        `secrets` are values that must occur in neither, by name.

        Raises:
            NotSealedError: the record or its evidence may not be sealed.
            ConflictError: the trial is sealed already with other bytes.
            LedgerError: the ledger cannot be written.
        """
        submission = Submission(
            record=record,
            where="the record",
            root=None if root is None else Path(root),
            evidence=tuple(evidence),
        )
        return self.seal_all([submission], secrets)[0]

    def seal_trial(
        self,
        trial: Path | str,
        *,
        experiment: str | None = None,
        secrets: Mapping[str, str] | None = None,
    ) -> Sealed:
        """Seal a trial that proctor ran, from its directory: all of its files are evidence.

        Raises:
            NotSealedError: the record or its evidence may not be sealed.
            ConflictError: the trial is sealed already with other bytes.
            LedgerError: the ledger cannot be written.
        """
        return self.seal_all([submit_trial(Path(trial), experiment=experiment)], secrets)[0]

    def seal_all(
        self, submissions: Sequence[Submission], secrets: Mapping[str, str] | None = None
    ) -> list[Sealed]:
        """Seal many with one signature, all or none.

        Raises:
            NotSealedError: a record or its evidence may not be sealed.
            ConflictError: a trial is sealed already with other bytes.
            LedgerError: the ledger cannot be written.
        """
        self._find_key()
        return seal(self, submissions, Secrets(dict(secrets or {})))

    def trials(self, wanted: TrialFilter | None = None) -> list[TrialRow]:
        """The trials that a filter lets through, in the order they were sealed.

        Raises:
            DamageError: the log does not give what its checkpoint says.
        """
        return find_trials(self, wanted)

    def find(self, name: str) -> TrialRow:
        """One trial: by id, EXPERIMENT/TRIAL, entry's number, record's digest, or a prefix.

        Raises:
            LedgerError: none fits, or several do.
        """
        return find_trial(self, name)

    def record(self, trial: TrialRow) -> bytes:
        """The record's bytes as stored; their SHA-256 is `trial.record`.

        Raises:
            LedgerError: it was withheld.
        """
        entry = self.entry(trial.seq)
        if not isinstance(entry, TrialEntry):
            raise LedgerError(f"{trial.experiment_id}/{trial.trial_id} was withheld")
        return bytes(entry.record)

    def remarks(self, trial: TrialRow) -> list[Remark]:
        """All that was said of a trial, in the order it was said."""
        return find_remarks(self, trial.record)

    def review(self, trial: TrialRow, verdict: str, *, reviewer: str, note: str = "") -> int:
        """Say `pass`, `fail` or `defer` of a trial; the entry's number."""
        return append_review(self, trial, verdict, reviewer=reviewer, note=note)

    def supersede(
        self, trial: TrialRow, by: TrialRow, cause: str, *, reason: str, author: str
    ) -> int:
        """Say that another trial stands in for this one; the entry's number."""
        return append_supersession(self, trial, by, cause, reason=reason, author=author)

    def rescore(self, trial: TrialRow, score: TrialScore, *, reason: str, author: str) -> int:
        """Say how the same evidence is marked by other rules; the entry's number."""
        return append_rescore(self, trial, score, reason=reason, author=author)

    def note(self, text: str, *, author: str, about: Sequence[str] = ()) -> int:
        """Leave a remark, about digests of records or about nothing; the entry's number."""
        return append_note(self, text, author=author, about=about)

    def plan(self, experiment_id: str, plan: bytes, *, author: str) -> int:
        """Seal what is to be run, as JSON, before it is; the entry's number."""
        return append_plan(self, experiment_id, plan, author=author)

    def withhold(
        self,
        trial: TrialRow,
        *,
        reason: str,
        author: str,
        evidence: Sequence[str] | None = None,
    ) -> Withholding:
        """Take a trial's bytes out; with `evidence` only those files, all of them if none."""
        why = Why(reason, author)
        if evidence is None:
            return withhold_trial(self, trial, why)
        return withhold_evidence(self, trial, why, evidence)

    def withhold_entry(self, seq: int, *, reason: str, author: str) -> Withholding:
        """Take out an entry that is no trial, such as a note."""
        return withhold_entry(self, seq, Why(reason, author))

    def restore(self, trial: TrialRow, source: Path | str) -> Restored:
        """Bring back what was withheld of a trial, as far as a file or a directory has it."""
        return restore(self, trial.seq, Path(source))

    def withheld_unnamed(self) -> list[UnnamedWithholding]:
        """What was withheld without naming a trial; any experiment may be meant.

        Raises:
            DamageError: the log does not give what its checkpoint says.
        """
        self.refresh()
        return find_unnamed(self)

    def stats(self) -> LedgerStats:
        """Counts and bytes per experiment."""
        return measure(self)

    def lookup(self, name: str) -> TrialRow | AnyEntry | Withheld:
        """What somebody means: a trial, or an entry of another kind by its number."""
        found = find_one(self, name)
        return self.entry(found) if isinstance(found, int) else found
