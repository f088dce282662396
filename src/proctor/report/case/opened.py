"""A parsed case, with its files unpacked.

Only the format is checked here; the proofs are checked in `checking`.
"""

import base64
import binascii
import zlib
from dataclasses import dataclass

from proctor.digest import sha256_hex
from proctor.errors import DamageError
from proctor.ledger.claims.document import check_unique
from proctor.ledger.entry import EvidenceFile, KeyEntry, TrialEntry, decode_line, record_digest
from proctor.ledger.note import Checkpoint, parse_checkpoint
from proctor.report.case.document import LARGEST_UNPACKED, Case, PackedFile
from proctor.report.case.spelled import Spelled


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenedCase:
    """The content of a case file."""

    case: Case
    trial: TrialEntry
    entry: Spelled
    """The trial's entry, with its original bytes."""
    record: str
    """SHA-256 of the record's bytes."""
    checkpoint: Checkpoint
    keys: tuple[KeyEntry, ...]
    """Entries that name the ledger's keys, in order."""
    path: tuple[str, ...]
    """The inclusion proof of the trial's entry."""
    remarks: tuple[tuple[int, Spelled | None], ...]
    """Entries about the trial, by position; None if withheld."""
    files: dict[str, bytes]
    """Contents by SHA-256, of files that match it."""
    altered: tuple[str, ...]
    """Digests of files whose content differs."""

    @property
    def evidence(self) -> tuple[EvidenceFile, ...]:
        """The evidence that the entry names."""
        return self.trial.evidence

    @property
    def left_out(self) -> dict[str, str]:
        """Why files are not in the page, by SHA-256."""
        return {each.sha256: each.why for each in self.case.left_out}

    @property
    def name(self) -> str:
        """EXPERIMENT/TRIAL."""
        record = self.entry.at("record")
        return f"{record.at('experiment_id').say()}/{record.at('trial_id').say()}"


def open_case(case: Case, where: str) -> OpenedCase:
    """Parse the entries of a case and unpack its files.

    Raises:
        ProofFileError: a part of it cannot be parsed, or is ambiguous.
        NoteError: its checkpoint is invalid.
        DamageError: a line is not an entry.
    """
    checkpoint = parse_checkpoint(case.checkpoint.encode(), f"{where}: checkpoint")
    keys: list[KeyEntry] = []
    remarks: list[tuple[int, Spelled | None]] = []
    own: tuple[TrialEntry, bytes, list[str]] | None = None
    for packed in case.entries:
        line = None if packed.line is None else packed.line.encode()
        if line is None:
            remarks.append((packed.seq, None))
            continue
        check_unique(line, f"{where}: entry {packed.seq}")
        entry = decode_line(line, f"entry {packed.seq}")
        if packed.seq == case.trial and isinstance(entry, TrialEntry):
            own = entry, line, packed.path
        elif isinstance(entry, KeyEntry):
            keys.append(entry)
        else:
            remarks.append((packed.seq, Spelled(line)))
    if own is None:
        raise DamageError(f"entry {case.trial}, which the case is about, is not a trial in it")
    trial, line, path = own
    files, altered = _unpack(case.files, trial)
    return OpenedCase(
        case=case,
        trial=trial,
        entry=Spelled(line),
        record=record_digest(trial),
        checkpoint=checkpoint,
        keys=tuple(keys),
        path=tuple(path),
        remarks=tuple(remarks),
        files=files,
        altered=altered,
    )


def _unpack(
    packed: list[PackedFile], trial: TrialEntry
) -> tuple[dict[str, bytes], tuple[str, ...]]:
    sizes = {file.sha256: file.size for file in trial.evidence}
    total = sum(sizes.get(file.sha256, 0) for file in packed)
    if total > LARGEST_UNPACKED:
        message = f"the files in the page have {total:,} bytes unpacked; expected at most"
        raise DamageError(f"{message} {LARGEST_UNPACKED:,}")
    files: dict[str, bytes] = {}
    altered: list[str] = []
    for file in packed:
        if file.sha256 not in sizes:
            raise DamageError(
                f"the page holds a file {file.sha256[:80]!r} that the entry does not name"
            )
        plain = unpack(file.deflate, sizes[file.sha256])
        if plain is None or sha256_hex(plain) != file.sha256:
            altered.append(file.sha256)
        else:
            files[file.sha256] = plain
    return files, tuple(altered)


def pack(data: bytes) -> str:
    """Compress bytes for a case file."""
    return base64.b64encode(zlib.compress(data, 9)).decode()


def unpack(coded: str, size: int) -> bytes | None:
    """Decompress exactly `size` bytes; None if there are more, fewer or invalid ones."""
    unpacker = zlib.decompressobj()
    try:
        packed = base64.b64decode(coded, validate=True)
        plain = unpacker.decompress(packed, size + 1)
    except (zlib.error, binascii.Error, ValueError, OverflowError):
        return None
    is_whole = unpacker.eof and not unpacker.unused_data and not unpacker.unconsumed_tail
    # Base64 allows unused bits at the end; only the canonical text is accepted.
    is_plain = base64.b64encode(packed).decode() == coded
    return plain if is_whole and is_plain and len(plain) == size else None
