"""Verify: recompute all of a ledger, and name apart whatever is not as it was signed.

1. The checkpoints are read, the ledger's own and the older ones that are given.
2. Every line is hashed; trials are decoded, unless it shall be fast.
3. The keys are followed from the first entry on, and the signatures checked.
4. The log is held against what was signed.
5. What is signed must be entries, and no two the same trial; what was taken out must have an
   entry that says so.
6. Every artifact that an entry names is read, unless it shall be fast.
7. Attestations must name the entries that are there.
8. An index that is out of step is made anew.

Nothing else is written. A ledger that somebody appends to meanwhile is read again.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from proctor.digest import is_digest
from proctor.errors import DamageError, KeyFileError, NoteError
from proctor.files import read_head
from proctor.ledger.admission import render_duplicate, render_misnamed
from proctor.ledger.artifacts import FileArtifacts
from proctor.ledger.attestation import find_false, survey_log
from proctor.ledger.derived import INDEX, find_folder
from proctor.ledger.entry import Subject, TrialEntry, WithholdEntry, decode_line
from proctor.ledger.log import FileLog, LogStore, read_line
from proctor.ledger.note import (
    LARGEST_NOTE,
    Algorithm,
    Checkpoint,
    VerifierKey,
    parse_checkpoint,
)
from proctor.ledger.row import read_row
from proctor.ledger.verification.damage import Damage, DamageKind, Findings
from proctor.ledger.verification.evidence import (
    ArtifactDamage,
    NamedEvidence,
    find_artifact_damage,
)
from proctor.ledger.verification.found import FoundLog
from proctor.ledger.verification.judge import Evidence, judge_log
from proctor.ledger.verification.steps import (
    Check,
    Progress,
    Scope,
    check_entries,
    check_format,
    check_gaps,
    check_index,
    check_keys,
    check_signatures,
    check_withheld,
    number_lines,
    open_index,
    parse_own,
    read_log,
    say_nothing,
    settle_doubts,
    tell_behind,
)
from proctor.sentence import count_of

# Identities: no two entries of a log are the same trial, withheld ones included
#
# A trial that was withheld keeps its name: the entry that says so names it. Where its line is there
# after all, it has to be that trial. Where trials are not decoded nothing is looked at, nor in a
# log that differs from what was signed: that is told already.


def check_identities(check: Check, scope: Scope) -> None:
    """Name every trial that two entries are, and every entry that is said to be two trials."""
    if check.is_fast or not scope.is_same:
        return
    withheld = _name_withheld(check, scope)
    evidence = scope.found.evidence
    evidence.identify(
        (line, subject.experiment_id, subject.trial_id) for line, subject in withheld.items()
    )
    for first, last, experiment_id, trial_id in evidence.duplicates(scope.size):
        message = render_duplicate(first, last, experiment_id, trial_id)
        where = scope.found.where(last)
        check.findings.add(DamageKind.DUPLICATE_TRIAL, where, message, last)


def _name_withheld(check: Check, scope: Scope) -> dict[int, Subject]:
    """The trials whose lines were taken out, by what entries say of them."""
    withheld: dict[int, Subject] = {}
    for seq, entry in scope.entries(scope.found.withholdings):
        if entry.subject is None or entry.entry is None:
            continue
        found: Subject | None
        if entry.entry in scope.found.withheld:
            found = withheld.setdefault(entry.entry, entry.subject)
        else:
            found = _read_subject(check, scope, entry.entry)
        if found != entry.subject:
            message = render_misnamed(seq, entry.entry, entry.subject, found)
            where = scope.found.where(seq)
            check.findings.add(DamageKind.DUPLICATE_TRIAL, where, message, seq)
    return withheld


def _read_subject(check: Check, scope: Scope, line: int) -> Subject | None:
    """The trial in a line that is there; None where it is none."""
    place, length = scope.found.place_of(line)
    try:
        entry = decode_line(read_line(check.log, place, length), f"entry {line}")
        return read_row(entry).subject if isinstance(entry, TrialEntry) else None
    except DamageError:
        return None


# Whether the log holds what attestations say of their experiments
#
# It takes a second reading of the log, and only where there are attestations.


def check_attestations(check: Check, scope: Scope) -> None:
    """Recompute every attestation; one that the log contradicts is damage."""
    stated = scope.entries(scope.found.attestations)
    if not stated:
        return
    try:
        survey = survey_log(check.log, scope.size)
    except DamageError as error:
        said = count_of(len(stated), "attestation")
        check.findings.note(f"{said} not recomputed, since the log cannot be read: {error}")
        return
    for seq, message in find_false(survey, stated):
        where = scope.found.where(seq)
        check.findings.add(DamageKind.FALSE_ATTESTATION, where, message, seq)


# The step of a verification that reads the evidence: it is there, and what was sealed


# Excuses: evidence that is missing may be, where an entry says so of the very trial that names it
#
# Another trial may name the same bytes; for that one they still have to be there.


type Excuse = tuple[str, str, str]
"""Experiment, trial and SHA-256 of something that was taken out."""


def excuses_of(withholdings: Iterable[WithholdEntry]) -> set[Excuse]:
    """What entries say was taken out of which trials."""
    return {
        (entry.subject.experiment_id, entry.subject.trial_id, sha256)
        for entry in withholdings
        if entry.subject is not None
        for sha256 in entry.artifacts
    }


def find_unexcused(
    log: LogStore, found: FoundLog, missing: set[str], excuses: set[Excuse]
) -> Iterator[tuple[int, str]]:
    """The lines that name something missing, and are of a trial that nothing excuses."""
    for line, sha256 in found.evidence.naming(missing):
        where, length = found.place_of(line)
        try:
            entry = decode_line(read_line(log, where, length), "the line")
        except DamageError:
            entry = None
        row = read_row(entry) if isinstance(entry, TrialEntry) else None
        if row is None or (row.experiment_id, row.trial_id, sha256) not in excuses:
            yield line, sha256


_TOLD_EVERY = 64
"""Artifacts after which it is said how many were read."""


@dataclass(slots=True)
class ArtifactCounts:
    """How many artifacts were read, and how many were taken out."""

    read: int = 0
    withheld: int = 0


def check_artifacts(check: Check, scope: Scope) -> ArtifactCounts:
    """Read every artifact that an entry names."""
    found, artifacts = scope.found, check.artifacts
    withholdings = [entry for _, entry in scope.entries(found.withholdings)]
    said = {sha256 for entry in withholdings for sha256 in entry.artifacts if is_digest(sha256)}
    taken_out = {sha256 for sha256 in said if not artifacts.holds(sha256)}
    counts = ArtifactCounts(withheld=len(taken_out))
    if check.is_fast:
        return counts
    missing: set[str] = set()
    for damage in _read_artifacts(check, scope, counts):
        if damage.sha256 in taken_out:
            counts.read -= 1
            missing.add(damage.sha256)
        else:
            _tell_artifact(check, scope, damage)
    excuses = excuses_of(withholdings)
    for line, sha256 in find_unexcused(check.log, found, missing, excuses):
        message = f"artifact {sha256} is not there"
        damage = ArtifactDamage(line, sha256, DamageKind.MISSING_ARTIFACT, message)
        _tell_artifact(check, scope, damage)
    return counts


def _read_artifacts(check: Check, scope: Scope, counts: ArtifactCounts) -> Iterator[ArtifactDamage]:
    evidence = scope.found.evidence
    lines = scope.size if scope.is_same else len(scope.found)
    total = evidence.count(lines)
    for artifact in evidence.artifacts(lines, scope.comparison.strange):
        counts.read += 1
        if damage := find_artifact_damage(check.artifacts, *artifact):
            yield damage
        if counts.read % _TOLD_EVERY == 0 or counts.read == total:
            check.progress("artifacts", min(counts.read, total), total)


def _tell_artifact(check: Check, scope: Scope, damage: ArtifactDamage) -> None:
    seq = scope.seq_of(damage.line)
    if seq is not None:
        name = damage.sha256
        where = f"artifacts/sha256/{name[:2]}/{name}.zst"
        check.findings.add(damage.kind, where, f"entry {seq}: {damage.message}", seq)


_TRIES = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """What a ledger was found to be."""

    where: str
    """The ledger that was checked, as messages name it."""
    origin: str | None
    """Name of the log; None where the checkpoint cannot be read."""
    size: int
    """Entries that are signed."""
    root: str | None
    """Root of their tree, as hex."""
    key: str | None
    """The public key that is trusted."""
    is_key_given: bool
    """Whether it was given; else it is the one that the first entry names."""
    is_fast: bool
    """Whether trials were not decoded and artifacts not read."""
    since: tuple[str, ...]
    """The older checkpoints that it was held against."""
    withheld: int
    """Entries that were taken out."""
    withheld_artifacts: int
    """Artifacts that entries name and that were taken out."""
    artifacts: int
    """Artifacts that were read."""
    bytes_read: int
    """Of the segments."""
    damage: list[Damage]
    notes: list[str]

    @property
    def is_sound(self) -> bool:
        """Whether nothing is wrong with it."""
        return not self.damage


def verify_ledger(
    directory: Path | str,
    *,
    key: VerifierKey | None = None,
    since: Sequence[Path | str] = (),
    fast: bool = False,
    progress: Progress | None = None,
) -> Verification:
    """Check all of a ledger; what is wrong with it is in what this returns.

    Raises:
        LedgerError: there is no ledger, or one of another format.
        NoteError: what is given as an older checkpoint is none.
        KeyFileError: the key is a cosigner's, which signs no ledger of its own.
    """
    directory = Path(directory)
    log = FileLog(directory)
    log.check_begun()
    folder = find_folder(directory)
    check = Check(
        log=log,
        artifacts=FileArtifacts(directory),
        given=key,
        is_fast=fast,
        progress=progress or say_nothing,
        index=None if folder is None else folder / INDEX,
    )
    return verify_log(check, since)


def verify_log(check: Check, since: Sequence[Path | str] = ()) -> Verification:
    """The same for a log and artifacts wherever they are kept.

    Raises:
        LedgerError: it is a ledger of another format.
        NoteError: what is given as an older checkpoint is none.
        KeyFileError: the key is a cosigner's, which signs no ledger of its own.
    """
    key, log = check.given, check.log
    if key is not None and key.algorithm is not Algorithm.ED25519:
        raise KeyFileError(f"{key}: a cosigner's key; expected the key of the ledger itself")
    older = [(str(path), _load_older(Path(path))) for path in since]
    before = _read_checkpoint(log)
    result = _verify(check, before, older)
    for _ in range(_TRIES):
        # Somebody appended or withheld meanwhile, and what was read is of two moments.
        if result.is_sound or (now := _read_checkpoint(log)) == before:
            break
        before = now
        result = _verify(replace(check, findings=Findings(), index_problem=None), before, older)
    return result


def _load_older(path: Path) -> Checkpoint:
    try:
        data = read_head(str(path), LARGEST_NOTE + 1)
    except OSError as error:
        raise NoteError(f"{path}: the checkpoint cannot be read: {error.strerror}") from error
    return parse_checkpoint(data, str(path))


def _read_checkpoint(log: LogStore) -> bytes | None:
    try:
        return log.read_checkpoint()
    except OSError:
        return None


def _verify(
    check: Check, data: bytes | None, given: Sequence[tuple[str, Checkpoint]]
) -> Verification:
    """The steps, as the top of this file numbers them."""
    findings = check.findings
    own = parse_own(data, findings)  # (1)
    with NamedEvidence() as named, open_index(check, own) as remembered:
        found = FoundLog(named)
        check_format(check.log, own, remembered)
        read_log(check, found, remembered)  # (2)
        signed = check_signatures(check, found, own, given)  # (3)
        evidence = Evidence(found, remembered, lambda: number_lines(check, found))
        comparison = judge_log(evidence, signed.own, signed.older, findings)  # (4)
        scope = Scope(found, own.tree.size if own else len(found), comparison)
        settle_doubts(check, scope, signed)
        check_keys(check, scope, signed)
        check_entries(scope, findings)  # (5)
        withheld = check_withheld(scope, findings)
        check_identities(check, scope)
        counts = check_artifacts(check, scope)  # (6)
        tell_behind(scope, findings)
        if own is not None and signed.is_own_signed and not comparison.differences:
            check_gaps(check, scope)
            check_attestations(check, scope)  # (7)
            check_index(check, scope, own, remembered)  # (8)
    trusted = signed.keys.trusted
    return Verification(
        where=check.log.where,
        origin=own.origin if own else None,
        size=scope.size,
        root=own.tree.root.hex() if own else None,
        key=str(trusted) if trusted else None,
        is_key_given=check.given is not None,
        is_fast=check.is_fast,
        since=tuple(where for where, _ in given),
        withheld=withheld,
        withheld_artifacts=counts.withheld,
        artifacts=counts.read,
        bytes_read=check.total,
        damage=findings.damages,
        notes=[*findings.notes, *findings.unlisted()],
    )
