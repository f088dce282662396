"""Verifies a ledger: recomputes all of it, and names everything that is not as it was signed.

1. The checkpoints are parsed, the ledger's own and the older ones that are given.
2. Every line is hashed; trials are decoded, unless the verification is fast.
3. The keys are followed from the first entry on, and the signatures checked.
4. The log is compared with what was signed.
5. Signed lines must be valid entries, and no two the same trial; withheld lines must be named by an
   entry.
6. Every artifact that an entry names is read, unless the verification is fast.
7. An index that does not match is rebuilt.

Nothing else is written. If entries are appended meanwhile, the ledger is read again.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from proctor.digest import is_digest
from proctor.errors import DamageError, NoteError
from proctor.files import read_head
from proctor.ledger.admission import render_duplicate, render_misnamed
from proctor.ledger.artifacts import FileArtifacts
from proctor.ledger.derived import INDEX, find_folder
from proctor.ledger.entry import Subject, TrialEntry, WithholdEntry, decode_line
from proctor.ledger.ledger import find_remote
from proctor.ledger.log import FileLog, LogStore, read_line
from proctor.ledger.note import (
    LARGEST_NOTE,
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
    check_submissions,
    check_withheld,
    no_progress,
    note_unsigned_lines,
    number_lines,
    open_index,
    parse_own,
    read_log,
    report_older_signatures,
)

# Identities: no two entries are the same trial. A withheld trial keeps its name, which its
# withholding states; if its line is present after all, it must be that trial.


def check_identities(check: Check, scope: Scope) -> None:
    """Find trials that are in two entries, and entries that are named as two trials."""
    # Without decoded trials there is nothing to compare; a log that differs is reported already.
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
    """The trials of withheld lines, according to their withholdings."""
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
    """The trial in a present line, or None."""
    place, length = scope.found.place_of(line)
    try:
        entry = decode_line(read_line(check.log, place, length), f"entry {line}")
        return read_row(entry).subject if isinstance(entry, TrialEntry) else None
    except DamageError:
        return None


# Evidence: every artifact must be present with the sealed bytes.


# Missing evidence is allowed if an entry withholds it from the trial that names it. Another trial
# may name the same bytes; for that one they must still be present.


type WithheldEvidence = tuple[str, str, str]
"""Experiment, trial and SHA-256 of withheld evidence."""


def list_withheld_evidence(withholdings: Iterable[WithholdEntry]) -> set[WithheldEvidence]:
    """The evidence that entries withhold, by trial."""
    return {
        (entry.subject.experiment_id, entry.subject.trial_id, sha256)
        for entry in withholdings
        if entry.subject is not None
        for sha256 in entry.artifacts
    }


def find_missing_evidence(
    log: LogStore, found: FoundLog, missing: set[str], withheld_evidence: set[WithheldEvidence]
) -> Iterator[tuple[int, str]]:
    """The lines of trials that name missing evidence which is not withheld from them."""
    for line, sha256 in found.evidence.naming(missing):
        where, length = found.place_of(line)
        try:
            entry = decode_line(read_line(log, where, length), "the line")
        except DamageError:
            entry = None
        row = read_row(entry) if isinstance(entry, TrialEntry) else None
        if row is None or (row.experiment_id, row.trial_id, sha256) not in withheld_evidence:
            yield line, sha256


# Artifacts read between two reports of progress.
_REPORT_EVERY = 64


@dataclass(slots=True)
class ArtifactCounts:
    """The number of artifacts read, and of those withheld."""

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
            _add_damage(check, scope, damage)
    withheld_evidence = list_withheld_evidence(withholdings)
    for line, sha256 in find_missing_evidence(check.log, found, missing, withheld_evidence):
        message = f"artifact {sha256} is missing"
        damage = ArtifactDamage(line, sha256, DamageKind.MISSING_ARTIFACT, message)
        _add_damage(check, scope, damage)
    return counts


def _read_artifacts(check: Check, scope: Scope, counts: ArtifactCounts) -> Iterator[ArtifactDamage]:
    evidence = scope.found.evidence
    lines = scope.size if scope.is_same else len(scope.found)
    total = evidence.count(lines)
    for artifact in evidence.artifacts(lines, scope.comparison.strange):
        counts.read += 1
        if damage := find_artifact_damage(check.artifacts, *artifact):
            yield damage
        if counts.read % _REPORT_EVERY == 0 or counts.read == total:
            check.progress("artifacts", min(counts.read, total), total)


def _add_damage(check: Check, scope: Scope, damage: ArtifactDamage) -> None:
    seq = scope.seq_of(damage.line)
    if seq is not None:
        name = damage.sha256
        where = f"artifacts/sha256/{name[:2]}/{name}.zst"
        check.findings.add(damage.kind, where, f"entry {seq}: {damage.message}", seq)


_TRIES = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """The result of a verification."""

    where: str
    """The name of the ledger in messages."""
    origin: str | None
    """Name of the log; None if the checkpoint cannot be read."""
    size: int
    """The number of signed entries."""
    root: str | None
    """Root of their tree, in hex."""
    key: str | None
    """The trusted public key."""
    is_key_given: bool
    """Whether it was given; otherwise it is the one that the first entry names."""
    is_fast: bool
    """Whether trials were not decoded and artifacts not read."""
    since: tuple[str, ...]
    """The older checkpoints that it was compared with."""
    withheld: int
    """Withheld entries."""
    withheld_artifacts: int
    """Withheld artifacts that entries name."""
    artifacts: int
    """Artifacts that were read."""
    bytes_read: int
    """Bytes of the segments."""
    damage: list[Damage]
    notes: list[str]

    @property
    def is_sound(self) -> bool:
        """Whether there is no damage."""
        return not self.damage


def verify_ledger(
    directory: Path | str,
    *,
    key: VerifierKey | None = None,
    since: Sequence[Path | str] = (),
    fast: bool = False,
    progress: Progress | None = None,
) -> Verification:
    """Verify a ledger completely; its damage is in the result."""
    directory = Path(directory)
    log = FileLog(directory)
    log.check_begun()
    folder = find_folder(directory)
    remote = find_remote(directory)
    check = Check(
        log=log,
        artifacts=FileArtifacts(directory) if remote is None else remote.artifacts,
        where=log.where if remote is None else remote.url,
        given=key,
        is_fast=fast,
        progress=progress or no_progress,
        index=None if folder is None else folder / INDEX,
    )
    return verify_log(check, since)


def verify_log(check: Check, since: Sequence[Path | str] = ()) -> Verification:
    """`verify_ledger` for any log and artifact store.

    Raises:
        LedgerError: the ledger has another format.
        NoteError: an older checkpoint is invalid.
    """
    log = check.log
    older = [(str(path), _load_older(Path(path))) for path in since]
    before = _read_checkpoint(log)
    result = _verify(check, before, older)
    for _ in range(_TRIES):
        # Damage may be due to a writer: what was read is then a mix of two states.
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
    """Run the steps, numbered as at the top of this file."""
    findings = check.findings
    own = parse_own(data, findings)  # (1)
    with NamedEvidence() as named, open_index(check, own) as index_reader:
        found = FoundLog(named)
        check_format(check.log, own, index_reader)
        read_log(check, found, index_reader)  # (2)
        signed = check_signatures(check, found, own, given)  # (3)
        evidence = Evidence(found, index_reader, lambda: number_lines(check, found))
        comparison = judge_log(evidence, signed.own, signed.older, findings)  # (4)
        scope = Scope(found, own.tree.size if own else len(found), comparison)
        report_older_signatures(check, scope, signed)
        check_keys(check, scope, signed)
        check_entries(scope, findings)  # (5)
        check_submissions(scope, findings)
        withheld = check_withheld(scope, findings)
        check_identities(check, scope)
        counts = check_artifacts(check, scope)  # (6)
        note_unsigned_lines(scope, findings)
        if own is not None and signed.is_own_signed and not comparison.differences:
            check_gaps(check, scope)
            check_index(check, scope, own, index_reader)  # (7)
    trusted = signed.keys.trusted
    return Verification(
        where=check.where or check.log.where,
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
