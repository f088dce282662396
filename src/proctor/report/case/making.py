"""Makes a case from a sealed trial: its entries with proofs, and as much evidence as fits.

Depends only on the ledger under a checkpoint: the same input gives the same bytes.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import msgspec

from proctor import __version__
from proctor.errors import DamageError, InputError, LedgerError
from proctor.ledger.artifacts import ArtifactStore
from proctor.ledger.claims.proof import signed_tree
from proctor.ledger.entry import (
    AnyEntry,
    EvidenceFile,
    TrialEntry,
    Withheld,
    WithholdEntry,
    decode_line,
)
from proctor.ledger.note import Checkpoint
from proctor.ledger.reader import LedgerReader
from proctor.ledger.row import TrialRow
from proctor.ledger.tiles import TiledTree
from proctor.ledger.tree import check_inclusion, inclusion_path, leaf_hash
from proctor.report.case.document import (
    FORMAT,
    LARGEST_UNPACKED,
    Case,
    CaseEntry,
    LeftOut,
    PackedFile,
)
from proctor.report.case.facts import REWARD_FILES
from proctor.report.case.opened import OpenedCase, open_case, pack
from proctor.report.case.page import render_page, script_digest
from proctor.report.case.steps import find_traces

# Limit for the unpacked size of all embedded files, as a multiple of --max-size: a browser holds
# them all at once.
_UNPACKED: Final = 8
# Bytes reserved for the first steps, which are known only after the files were chosen.
_FIRST_STEPS_ROOM: Final = 16_384


@dataclass(frozen=True, slots=True)
class MadeCase:
    """A case and its page."""

    opened: OpenedCase
    page: bytes


def make_case(
    ledger: LedgerReader, row: TrialRow, checkpoint: Checkpoint, *, largest: int
) -> MadeCase:
    """Make the case of a sealed trial in at most `largest` bytes; call `refresh` first.

    Raises:
        LedgerError: the trial was withheld, or sealed after the checkpoint.
        DamageError: the ledger does not match the checkpoint, or evidence is missing or altered.
        InputError: even a page without evidence is larger.
    """
    tree = signed_tree(ledger, checkpoint, "the checkpoint")
    name = row.name
    if row.seq >= tree.size:
        raise LedgerError(f"{name}: entry {row.seq}; the checkpoint has {tree.size:,} entries")
    places = {row.seq, *ledger.index.places("key", size=tree.size)}
    places |= set(ledger.index.remarks(record=row.record, size=tree.size))
    packed = [_pack_entry(ledger, tree, seq) for seq in sorted(places)]
    entries = {each.seq: entry for each, entry in packed if entry is not None}
    trial = entries.get(row.seq)
    if not isinstance(trial, TrialEntry):
        raise LedgerError(f"{name}: withheld; `proctor show {row.seq}` shows why")
    bare = Case(
        format=FORMAT,
        proctor=__version__,
        script=script_digest(),
        trial=row.seq,
        checkpoint=checkpoint.render().decode(),
        entries=[each for each, _ in packed],
        files=[],
        left_out=[LeftOut(sha256=sha256, why="size") for sha256 in _digests(trial)],
    )
    room = largest - len(render_page(open_case(bare, name))) - _FIRST_STEPS_ROOM
    if room < 0:
        raise InputError(
            f"{name}: the page has {largest - room:,} bytes without any evidence; pass a "
            "larger --max-size"
        )
    withheld = _find_withheld(ledger, entries.values(), row)
    _check_disclosed(ledger, row, withheld, tree.size)
    files, left_out = _choose_files(ledger.artifacts, trial, withheld, room, largest)
    opened = open_case(msgspec.structs.replace(bare, files=files, left_out=left_out), name)
    return MadeCase(opened, render_page(opened))


def _pack_entry(
    ledger: LedgerReader, tree: TiledTree, seq: int
) -> tuple[CaseEntry, AnyEntry | None]:
    line = ledger.line(seq)
    entry = decode_line(line, f"{ledger.where}: entry {seq}")
    leaf, nodes = tree.leaf(seq), inclusion_path(tree.subtree, tree.size, seq)
    check_inclusion(leaf, seq, tree.size, nodes, tree.root())
    path = [node.hex() for node in nodes]
    if isinstance(entry, Withheld):
        return CaseEntry(seq=seq, line=None, leaf=leaf.hex(), path=path), None
    if leaf_hash(line) != leaf:
        raise DamageError(
            f"{ledger.where}: the line of entry {seq} is not the one that was sealed; "
            "run `proctor ledger verify`"
        )
    return CaseEntry(seq=seq, line=line.decode(), leaf=None, path=path), entry


def _digests(trial: TrialEntry) -> list[str]:
    return list(dict.fromkeys(file.sha256 for file in trial.evidence))


def _find_withheld(ledger: LedgerReader, entries: Iterable[AnyEntry], row: TrialRow) -> set[str]:
    """Digests of evidence that was withheld from this trial and is missing.

    Withheld evidence may have been restored, or kept because another trial names it.
    """
    withholdings = [entry for entry in entries if isinstance(entry, WithholdEntry)]
    ours = [entry for entry in withholdings if entry.subject and entry.subject.record == row.record]
    named = {sha256 for entry in ours for sha256 in entry.artifacts}
    return {sha256 for sha256 in named if not ledger.artifacts.holds(sha256)}


def _check_disclosed(ledger: LedgerReader, row: TrialRow, withheld: set[str], size: int) -> None:
    """Refuse a checkpoint from before evidence was withheld: no entry under it explains the gap."""
    places = ledger.index.remarks(record=row.record, kind="withhold")
    later = [ledger.entry(seq) for seq in places if seq >= size]
    for entry in later:
        if (
            _find_withheld(ledger, [entry] if isinstance(entry, WithholdEntry) else [], row)
            - withheld
        ):
            raise LedgerError(
                f"{row.name}: entry {entry.seq} withheld evidence of it "
                f"after the checkpoint of {size:,} entries; use a newer one"
            )


def _choose_files(
    artifacts: ArtifactStore, trial: TrialEntry, withheld: set[str], room: int, largest: int
) -> tuple[list[PackedFile], list[LeftOut]]:
    """Choose the embedded files, most important first, and the reasons for the rest."""
    files: dict[str, PackedFile] = {}
    unpacked = min(_UNPACKED * largest, LARGEST_UNPACKED)
    for file in _order(trial):
        if file.sha256 in files or file.sha256 in withheld:
            continue
        if file.size > unpacked:
            artifacts.check(file.sha256, file.size)
            continue
        packed = PackedFile(
            sha256=file.sha256, deflate=pack(artifacts.load(file.sha256, file.size))
        )
        # The other bytes of its JSON line are balanced by its line in `left_out`.
        if len(packed.deflate) <= room:
            files[file.sha256] = packed
            room -= len(packed.deflate)
            unpacked -= file.size
    digests = _digests(trial)
    left_out = [
        LeftOut(sha256=sha256, why="withheld" if sha256 in withheld else "size")
        for sha256 in digests
        if sha256 not in files
    ]
    return [files[sha256] for sha256 in digests if sha256 in files], left_out


def _order(trial: TrialEntry) -> list[EvidenceFile]:
    """Reward files first, then the verifier's files, traces, and the rest by size."""
    traces = set(find_traces([file.path for file in trial.evidence], ()))

    def rank(file: EvidenceFile) -> tuple[int, int, str]:
        is_verifiers = "verifier/" in file.path
        kinds = (file.path in REWARD_FILES, is_verifiers, file.path in traces, True)
        return kinds.index(True), file.size, file.path

    return sorted(trial.evidence, key=rank)
