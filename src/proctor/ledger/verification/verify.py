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

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from proctor.errors import DamageError, KeyFileError, LedgerError, NoteError
from proctor.files import read_head
from proctor.ledger.derived import INDEX, find_folder
from proctor.ledger.note import (
    LARGEST_NOTE,
    Algorithm,
    Checkpoint,
    VerifierKey,
    parse_checkpoint,
)
from proctor.ledger.segments import (
    find_segments,
    has_checkpoint,
    read_checkpoint,
    render_absence,
    segment_path,
)
from proctor.ledger.verification.artifact_check import check_artifacts
from proctor.ledger.verification.attested import check_attestations
from proctor.ledger.verification.damage import Damage, Findings
from proctor.ledger.verification.evidence import NamedEvidence
from proctor.ledger.verification.found import FoundLog
from proctor.ledger.verification.identities import check_identities
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
    settle_doubts,
    tell_behind,
)
from proctor.ledger.verification.workers import Workers

_WORTH_IT = 1 << 25
"""Below 32 MiB, starting another process takes longer than it saves."""
_TRIES = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """What a ledger was found to be."""

    directory: Path
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
    processes: int | None = None,
    progress: Progress | None = None,
) -> Verification:
    """Check all of a ledger; what is wrong with it is in what this returns.

    Raises:
        LedgerError: there is no ledger, or one of another format.
        NoteError: what is given as an older checkpoint is none.
        KeyFileError: the key is a cosigner's, which signs no ledger of its own.
    """
    directory = Path(directory)
    if key is not None and key.algorithm is not Algorithm.ED25519:
        raise KeyFileError(f"{key}: a cosigner's key; expected the key of the ledger itself")
    if not has_checkpoint(directory) and not find_segments(directory / "entries"):
        found = "no checkpoint and no entries" if directory.exists() else "nothing"
        raise LedgerError(render_absence(directory, found))
    older = [(str(path), _load_older(Path(path))) for path in since]
    with Workers(_count(directory, processes)) as workers:
        check = Check(directory, key, fast, workers, progress or _say_nothing)
        if (folder := find_folder(directory)) is not None:
            check.index = folder / INDEX
        before = _read_checkpoint(directory)
        result = _verify(check, before, older)
        for _ in range(_TRIES):
            # Somebody appended or withheld meanwhile, and what was read is of two moments.
            if result.is_sound or (now := _read_checkpoint(directory)) == before:
                break
            before = now
            result = _verify(replace(check, findings=Findings(), index_problem=None), before, older)
    return result


def _say_nothing(_what: str, _done: int, _total: int) -> None:
    """For whoever does not want to know how far it is."""


def _load_older(path: Path) -> Checkpoint:
    try:
        data = read_head(str(path), LARGEST_NOTE + 1)
    except OSError as error:
        raise NoteError(f"{path}: the checkpoint cannot be read: {error.strerror}") from error
    return parse_checkpoint(data, str(path))


def _read_checkpoint(directory: Path) -> bytes | None:
    try:
        return read_checkpoint(directory)
    except OSError:
        return None


def _count(directory: Path, processes: int | None) -> int:
    if processes is not None:
        return processes
    try:
        entries = directory / "entries"
        segments = (segment_path(entries, number) for number in find_segments(entries))
        total = sum(path.lstat().st_size for path in segments)
    except (OSError, DamageError):
        total = 0
    return min(2, len(os.sched_getaffinity(0))) if total >= _WORTH_IT else 1


def _verify(
    check: Check, data: bytes | None, given: Sequence[tuple[str, Checkpoint]]
) -> Verification:
    """The steps, as the top of this file numbers them."""
    findings = check.findings
    own = parse_own(data, findings)  # (1)
    with NamedEvidence() as named, open_index(check, own) as remembered:
        found = FoundLog(named)
        check_format(check.directory, own, remembered)
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
        directory=check.directory,
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
