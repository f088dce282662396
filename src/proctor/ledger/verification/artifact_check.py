"""The step of a verification that reads the evidence: it is there, and what was sealed."""

from collections.abc import Iterator
from dataclasses import dataclass

from proctor.ledger.admission import is_digest
from proctor.ledger.artifacts import Artifacts
from proctor.ledger.verification.damage import DamageKind
from proctor.ledger.verification.evidence import ArtifactDamage, check_batch
from proctor.ledger.verification.excuses import excuses_of, find_unexcused
from proctor.ledger.verification.steps import Check, Scope


@dataclass(slots=True)
class ArtifactCounts:
    """How many artifacts were read, and how many were taken out."""

    read: int = 0
    withheld: int = 0


def check_artifacts(check: Check, scope: Scope) -> ArtifactCounts:
    """Read every artifact that an entry names."""
    found, artifacts = scope.found, Artifacts(check.directory)
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
    for line, sha256 in find_unexcused(check.directory, found, missing, excuses):
        message = f"artifact {sha256} is not there"
        damage = ArtifactDamage(line, sha256, DamageKind.MISSING_ARTIFACT, message)
        _tell_artifact(check, scope, damage)
    return counts


def _read_artifacts(check: Check, scope: Scope, counts: ArtifactCounts) -> Iterator[ArtifactDamage]:
    evidence = scope.found.evidence
    lines = scope.size if scope.is_same else len(scope.found)
    total = evidence.count(lines)
    batches = evidence.batches(check.directory, lines, scope.comparison.strange)
    for length, damages in check.workers.map(check_batch, batches):
        counts.read += length
        yield from damages
        check.progress("artifacts", min(counts.read, total), total)


def _tell_artifact(check: Check, scope: Scope, damage: ArtifactDamage) -> None:
    seq = scope.seq_of(damage.line)
    if seq is not None:
        name = damage.sha256
        where = f"artifacts/sha256/{name[:2]}/{name}.zst"
        check.findings.add(damage.kind, where, f"entry {seq}: {damage.message}", seq)
