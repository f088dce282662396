"""The ledger for programs: open it, seal trials, list them, review them.

    with Ledger.open("ledger") as ledger:
        sealed = ledger.seal(record, evidence=["agent/trajectory.jsonl"], root=trial)
        for trial in ledger.trials(TrialFilter(experiment="nightly")):
            print(trial.trial_id, trial.reward)

Reading needs no key. The first write loads the user's key, unless one was given.
`docs/guide/ledger.md` has runnable examples.
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
from proctor.ledger.query import find_trial, list_trials, resolve_name
from proctor.ledger.review import (
    Remark,
    append_note,
    append_plan,
    append_rescore,
    append_review,
    append_supersession,
    list_remarks,
)
from proctor.ledger.row import TrialRow
from proctor.ledger.sealing import Sealed, Secrets, Submission, seal
from proctor.ledger.submission import submit_trial
from proctor.ledger.trial_index import TrialFilter
from proctor.ledger.withhold import Why, Withholding, withhold_evidence, withhold_trial

__all__ = ["Ledger", "Secrets", "Submission", "TrialFilter", "TrialRow", "TrialScore"]


class Ledger(OpenLedger):
    """An open ledger."""

    @classmethod
    def open_or_create(cls, directory: Path | str, *, origin: str | None = None) -> "Ledger":
        """Open the ledger for writing with the user's key; create it if there is none."""
        key = find_key(None, os.environ)
        made, _ = open_or_create(Path(directory), key, origin=origin)
        made.close()
        return cls.open(directory, key=key)

    @contextlib.contextmanager
    def writing(self) -> Iterator[None]:
        """Hold the write lock with an up-to-date index; loads the user's key if none was given."""
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

        `secrets` are values, by name, that must occur in neither.
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
        """Seal a trial that proctor ran, from its directory; all of its files are evidence."""
        return self.seal_all([submit_trial(Path(trial), experiment=experiment)], secrets)[0]

    def seal_all(
        self, submissions: Sequence[Submission], secrets: Mapping[str, str] | None = None
    ) -> list[Sealed]:
        """Seal several trials with one signature, all or none."""
        self._find_key()
        return seal(self, submissions, Secrets(dict(secrets or {})))

    def trials(self, wanted: TrialFilter | None = None) -> list[TrialRow]:
        """The trials that match a filter, in the order they were sealed."""
        return list_trials(self, wanted)

    def find(self, name: str) -> TrialRow:
        """One trial: by id, EXPERIMENT/TRIAL, entry number, record digest, or a prefix of these."""
        return find_trial(self, name)

    def record(self, trial: TrialRow) -> bytes:
        """The record's bytes as stored; their SHA-256 is `trial.record`.

        Raises:
            LedgerError: it was withheld.
        """
        entry = self.entry(trial.seq)
        if not isinstance(entry, TrialEntry):
            raise LedgerError(f"{trial.name} was withheld")
        return bytes(entry.record)

    def remarks(self, trial: TrialRow) -> list[Remark]:
        """All entries about a trial, in the order of the log."""
        return list_remarks(self, trial.record)

    def review(self, trial: TrialRow, verdict: str, *, reviewer: str, note: str = "") -> int:
        """Append a review: `pass`, `fail` or `defer`; returns its entry number."""
        return append_review(self, trial, verdict, reviewer=reviewer, note=note)

    def supersede(
        self, trial: TrialRow, by: TrialRow, cause: str, *, reason: str, author: str
    ) -> int:
        """Append that another trial replaces this one; returns the entry number."""
        return append_supersession(self, trial, by, cause, reason=reason, author=author)

    def rescore(self, trial: TrialRow, score: TrialScore, *, reason: str, author: str) -> int:
        """Append another score for the same evidence; returns the entry number."""
        return append_rescore(self, trial, score, reason=reason, author=author)

    def note(self, text: str, *, author: str, about: Sequence[str] = ()) -> int:
        """Append a note, optionally about records (by digest); returns the entry number."""
        return append_note(self, text, author=author, about=about)

    def plan(self, experiment_id: str, plan: bytes, *, author: str) -> int:
        """Seal a plan, as JSON, before it is run; returns the entry number."""
        return append_plan(self, experiment_id, plan, author=author)

    def withhold(
        self,
        trial: TrialRow,
        *,
        reason: str,
        author: str,
        evidence: Sequence[str] | None = None,
    ) -> Withholding:
        """Withhold a trial; with `evidence` only these files, or all files if it is empty."""
        why = Why(reason, author)
        if evidence is None:
            return withhold_trial(self, trial, why)
        return withhold_evidence(self, trial, why, evidence)

    def lookup(self, name: str) -> TrialRow | AnyEntry | Withheld:
        """Find a trial by its name, or an entry of another kind by its number."""
        found = resolve_name(self, name)
        return self.entry(found) if isinstance(found, int) else found
