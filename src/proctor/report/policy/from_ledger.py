"""A submission from an experiment in a ledger, as it stood at a position of the log.

What is sealed of its trials is unpacked beside the ledger's account of them and audited like any
job. Trials that `proctor run` sealed came in one by one: the job's own files, and so its plan and
its total, are not among what is sealed.
"""

import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path

from proctor.audit.job import Audit, audit_job
from proctor.errors import LedgerError
from proctor.files import find_room
from proctor.harbor.documents import LockDocument, load_lock
from proctor.harbor.trial import FoundTrial
from proctor.ledger.claims.proof import load_checkpoint
from proctor.ledger.counting import SUPERSEDED
from proctor.ledger.entry import KeyEntry, SupersedeEntry, TrialEntry
from proctor.ledger.exchange.harbor_jobs import Room, find_place, write_jobs
from proctor.ledger.note import VerifierKey, parse_verifier_key
from proctor.ledger.query import load_position, render_missing
from proctor.ledger.reader import LedgerReader
from proctor.ledger.review import find_remarks
from proctor.ledger.row import TrialRow
from proctor.ledger.traced_trials import trace_entry
from proctor.ledger.trial_sealing import find_reruns
from proctor.ledger.verification.verify import Verification, verify_ledger
from proctor.report.policy.from_jobs import count_lost, replace_kept
from proctor.report.policy.record_facts import find_facts
from proctor.report.policy.submission import Replacement, SealedIn, Submission, SubmittedTrial
from proctor.traces.traced_trial import FoundTrace, opened_traces

_MOST_FILES = 500_000
"""Files that are unpacked of one experiment."""
_ONLY_OWNER = (
    "that the run happened as it was sealed: an owner can seal what never happened; "
    "`proctor audit --rerun` runs trials again"
)


def verify_as_asked(
    directory: Path, key: VerifierKey | None = None, since: Sequence[str] = ()
) -> SealedIn:
    """What a whole ledger was found to be.

    Raises:
        LedgerError: there is none.
    """
    found = verify_ledger(directory, key=key, since=since)
    return SealedIn(
        str(directory),
        damage=tuple(f"{each.kind}: {each.where}: {each.message}" for each in found.damage),
        unchecked=tuple(_find_unchecked(found)),
        kept=tuple(map(load_checkpoint, since)),
    )


def with_coverage(sealed: SealedIn, ledger: LedgerReader, attempts: Sequence[TrialRow]) -> SealedIn:
    """How much of the ledger a submission needs, and whose it is; call `refresh` before."""
    entries = map(ledger.entry, ledger.index.places("key"))
    keys = [parse_verifier_key(entry.key) for entry in entries if isinstance(entry, KeyEntry)]
    places = [attempt.seq for attempt in attempts]
    return replace(
        sealed,
        log_keys=frozenset(key.public for key in keys),
        covered=max(places, default=-1) + 1,
    )


def _find_unchecked(found: Verification) -> Iterator[str]:
    if not found.is_key_given:
        yield "whose ledger it is: no --key was given, and its own first entry names one"
    if not found.since:
        yield (
            "that its owner did not cut or rewrite the ledger: pass --since with a checkpoint "
            "that you kept"
        )


@contextmanager
def opened_experiment(
    ledger: LedgerReader, experiment: str, sealed: SealedIn, *, at: int | None = None
) -> Iterator[Submission]:
    """An experiment as a submission; its files are unpacked as long as it is looked at.

    Raises:
        LedgerError: the ledger has no such experiment.
        DamageError: the ledger does not hold what it should.
    """
    position = load_position(ledger, at=at, experiment=experiment)
    if not position.trials:
        raise LedgerError(render_missing(ledger, experiment))
    found = replace(sealed, unnamed=tuple(position.unnamed))
    with tempfile.TemporaryDirectory(prefix="proctor-policy-") as scratch:
        yield _Unpacked(ledger, Path(scratch)).submit(experiment, position.trials, found)


class _Unpacked:
    """The sealed trials of an experiment, as directories for a while."""

    def __init__(self, ledger: LedgerReader, scratch: Path) -> None:
        self._ledger = ledger
        self._scratch = scratch
        self._found: dict[str, tuple[FoundTrial, LockDocument | None]] = {}
        """Trials by their place among the jobs, each with the lock of its job."""
        self._too_large: set[int] = set()
        """Places in the log of trials that were not unpacked."""
        self._lay_as: dict[int, str] = {}
        """What trials that a resume ran again were called in their job, by their place."""
        self._replaced: set[str] = set()
        """Names of the runs before those."""

    def submit(self, name: str, attempts: list[TrialRow], sealed: SealedIn) -> Submission:
        """All of it."""
        by_name = {each.name: each for each in attempts}
        for base, names in find_reruns({each.name: each.status for each in attempts}).items():
            # It lay in the job under its own name; what it replaced is in no number.
            self._lay_as[by_name[names[-1]].seq] = by_name[base].trial_id
            self._replaced |= set(names[:-1])
        present = [each for each in attempts if each.name not in self._replaced]
        places = [each.seq for each in present]
        room = Room(find_room(str(self._scratch)), _MOST_FILES)
        given_back = write_jobs(self._ledger, places, self._scratch, self._lay_as, room)
        self._too_large = given_back.too_large
        jobs = sorted(each for each in self._scratch.iterdir() if each.is_dir())
        audits = list(map(self._audit, jobs))
        trials = list(map(self._submit, attempts))
        kept = [replace_kept(each.attempt) for each in trials if each.is_kept]
        return Submission(
            name=name,
            trials=trials,
            audits=audits,
            replacements=[*kept, *_find_superseded(self._ledger, attempts)],
            lost_attempts=sum(map(count_lost, audits)),
            has_jobs=bool(jobs) and all((job / "result.json").exists() for job in jobs),
            sealed=with_coverage(sealed, self._ledger, attempts),
            unchecked=(*given_back.refused, _ONLY_OWNER),
        )

    def _audit(self, job: Path) -> Audit:
        audit = audit_job(str(job))
        lock = load_lock(str(job)) if audit.job.lock else None
        for found in audit.job.trials:
            self._found[os.path.relpath(found.directory, self._scratch)] = found, lock
        return audit

    def _submit(self, attempt: TrialRow) -> SubmittedTrial:
        entry = self._ledger.entry(attempt.seq)
        if not isinstance(entry, TrialEntry):
            return SubmittedTrial(attempt=attempt, open_traces=_open_nothing, is_withheld=True)
        if attempt.name in self._replaced:
            return SubmittedTrial(attempt=attempt, open_traces=_open_nothing)
        if entry.seq in self._too_large:
            return SubmittedTrial(attempt=attempt, open_traces=_open_nothing, is_too_large=True)
        place = find_place(entry, self._lay_as.get(attempt.seq))
        scored, lock = self._found.get(place, (None, None))
        directory = str(self._scratch / place)
        facts = find_facts(directory, scored, lock, bytes(entry.record))
        return SubmittedTrial(
            attempt=attempt,
            open_traces=partial(opened_traces, trace_entry(self._ledger.artifacts, entry)),
            place=directory,
            digests=facts.digests,
            began=facts.began,
            ended=facts.ended,
            claimed_model=facts.claimed_model,
            contradictions=facts.contradictions,
        )


def _find_superseded(ledger: LedgerReader, attempts: Sequence[TrialRow]) -> Iterator[Replacement]:
    """What the ledger says of trials that others stand in for."""
    for attempt in attempts:
        if attempt.status != SUPERSEDED:
            continue
        for remark in find_remarks(ledger, attempt.record):
            entry = remark.entry
            if isinstance(entry, SupersedeEntry) and entry.subject.record == attempt.record:
                message = f"was replaced by {entry.by.trial_id}: {entry.reason}"
                yield Replacement(attempt.name, entry.cause, message)


def _open_nothing() -> AbstractContextManager[list[FoundTrace]]:
    return nullcontext([])
