"""A submission from an experiment in a ledger, at a position of the log.

The sealed files of its trials are unpacked to a temporary directory and audited like any job.
Trials that `proctor run` sealed came one by one, without the job's own files: plan and totals of
the job are therefore not available.
"""

import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from pathlib import Path

from proctor.audit.job import Audit, audit_job
from proctor.errors import LedgerError
from proctor.files import find_room
from proctor.harbor.documents import LockDocument, load_lock
from proctor.harbor.trial import FoundTrial
from proctor.ledger.counting import SUPERSEDED
from proctor.ledger.entry import SupersedeEntry, TrialEntry
from proctor.ledger.exchange.harbor_jobs import Room, trial_path, write_jobs
from proctor.ledger.note import VerifierKey
from proctor.ledger.query import load_position, render_missing
from proctor.ledger.reader import LedgerReader
from proctor.ledger.review import list_remarks
from proctor.ledger.row import TrialRow
from proctor.ledger.traced_trials import trace_entry
from proctor.ledger.trial_sealing import group_reruns
from proctor.ledger.verification.verify import Verification, render_unnamed, verify_ledger
from proctor.report.policy.from_jobs import count_lost, replace_kept
from proctor.report.policy.record_facts import read_facts
from proctor.report.policy.submission import Replacement, SealedIn, Submission, SubmittedTrial
from proctor.traces.traced_trial import FoundTrace, opened_traces

# Files unpacked for one experiment, at most.
_MOST_FILES = 500_000
_ONLY_OWNER = (
    "that the run happened as it was sealed: an owner can seal invented files; "
    "`proctor audit --rerun` repeats trials"
)


def verify_sealed(
    directory: Path, key: VerifierKey | None = None, since: Sequence[str] = ()
) -> SealedIn:
    """Verify a whole ledger."""
    found = verify_ledger(directory, key=key, since=since)
    return SealedIn(
        damage=tuple(f"{each.kind}: {each.where}: {each.message}" for each in found.damage),
        unchecked=tuple(_find_unchecked(found)),
        unnamed=render_unnamed(found.unnamed),
    )


def _find_unchecked(found: Verification) -> Iterator[str]:
    if not found.is_key_given:
        yield (
            "whose ledger it is: self-signed; pass --key to check who signed it (its owner prints "
            "it with `proctor ledger key`)"
        )
    if not found.since:
        yield (
            "that its owner did not cut or rewrite the ledger: pass --since with a checkpoint "
            "that you kept"
        )


@contextmanager
def opened_experiment(
    ledger: LedgerReader, experiment: str, sealed: SealedIn, *, at: int | None = None
) -> Iterator[Submission]:
    """An experiment as a submission; its files are unpacked inside the `with` block.

    Raises:
        LedgerError: the ledger has no such experiment.
        DamageError: the ledger is damaged.
    """
    position = load_position(ledger, at=at, experiment=experiment)
    if not position.trials:
        raise LedgerError(render_missing(ledger, experiment))
    with tempfile.TemporaryDirectory(prefix="proctor-policy-") as scratch:
        yield _Unpacked(ledger, Path(scratch)).submit(experiment, position.trials, sealed)


class _Unpacked:
    """The sealed trials of an experiment, unpacked to temporary directories."""

    def __init__(self, ledger: LedgerReader, scratch: Path) -> None:
        self._ledger = ledger
        self._scratch = scratch
        # Trials by their path among the jobs, each with the lock of its job.
        self._found: dict[str, tuple[FoundTrial, LockDocument | None]] = {}
        # Positions of trials that were not unpacked.
        self._too_large: set[int] = set()
        # Names in their job of trials that a resume ran again, by position.
        self._former_names: dict[int, str] = {}
        # Names of their earlier runs.
        self._replaced: set[str] = set()

    def submit(self, name: str, rows: list[TrialRow], sealed: SealedIn) -> Submission:
        """Unpack and audit all of it."""
        by_name = {each.name: each for each in rows}
        for base, names in group_reruns({each.name: each.status for each in rows}).items():
            # The last run is unpacked under the trial's own name; the earlier runs do not count.
            self._former_names[by_name[names[-1]].seq] = by_name[base].trial_id
            self._replaced |= set(names[:-1])
        present = [each for each in rows if each.name not in self._replaced]
        places = [each.seq for each in present]
        room = Room(find_room(str(self._scratch)), _MOST_FILES)
        given_back = write_jobs(self._ledger, places, self._scratch, self._former_names, room)
        self._too_large = given_back.too_large
        jobs = sorted(each for each in self._scratch.iterdir() if each.is_dir())
        audits = list(map(self._audit, jobs))
        trials = list(map(self._submit, rows))
        kept = [replace_kept(each.row) for each in trials if each.is_kept]
        return Submission(
            name=name,
            trials=trials,
            audits=audits,
            replacements=[*kept, *_find_superseded(self._ledger, rows)],
            lost_attempts=sum(map(count_lost, audits)),
            has_jobs=bool(jobs) and all((job / "result.json").exists() for job in jobs),
            sealed=sealed,
            unchecked=(*given_back.refused, _ONLY_OWNER),
        )

    def _audit(self, job: Path) -> Audit:
        audit = audit_job(str(job))
        lock = load_lock(str(job)) if audit.job.lock else None
        for found in audit.job.trials:
            self._found[os.path.relpath(found.directory, self._scratch)] = found, lock
        return audit

    def _submit(self, row: TrialRow) -> SubmittedTrial:
        entry = self._ledger.entry(row.seq)
        if not isinstance(entry, TrialEntry):
            return SubmittedTrial(row=row, open_traces=_open_nothing, is_withheld=True)
        if row.name in self._replaced:
            return SubmittedTrial(row=row, open_traces=_open_nothing)
        if entry.seq in self._too_large:
            return SubmittedTrial(row=row, open_traces=_open_nothing, is_too_large=True)
        place = trial_path(entry, self._former_names.get(row.seq))
        scored, lock = self._found.get(place, (None, None))
        directory = str(self._scratch / place)
        facts = read_facts(directory, scored, lock, bytes(entry.record))
        return SubmittedTrial(
            row=row,
            open_traces=partial(opened_traces, trace_entry(self._ledger.artifacts, entry)),
            place=directory,
            digests=facts.digests,
            began=facts.began,
            ended=facts.ended,
            claimed_model=facts.claimed_model,
            contradictions=facts.contradictions,
        )


def _find_superseded(ledger: LedgerReader, rows: Sequence[TrialRow]) -> Iterator[Replacement]:
    """Replacements of superseded trials, with the causes on record."""
    for row in rows:
        if row.status != SUPERSEDED:
            continue
        for remark in list_remarks(ledger, row.record):
            entry = remark.entry
            if isinstance(entry, SupersedeEntry) and entry.subject.record == row.record:
                message = f"was replaced by {entry.by.trial_id}: {entry.reason}"
                yield Replacement(row.name, entry.cause, message)


def _open_nothing() -> AbstractContextManager[list[FoundTrace]]:
    return nullcontext([])
