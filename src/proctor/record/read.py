"""Bytes or a file to a record, in either temper.

Strict refuses at the first problem: a key that no generation has, a key given twice, a byte order
mark, a `complete` that is hollow, impossible token counts. Salvage reads on and returns them as
diagnostics. What a record cannot hold at all (a missing field, a wrong type, bytes that are no
JSON) is refused by both: nothing is repaired and nothing made up.

    schema_version 2                   G2
    completeness, and added keys       G1x
    completeness                       G1

Nothing here follows what a record names, apart from a G2 trial's manifest beside it.
"""

from importlib import import_module
from pathlib import Path

from proctor.diagnostic import Diagnostic
from proctor.digest import sha256_hex
from proctor.errors import RecordError
from proctor.record.additions import Kept, find_problems
from proctor.record.document import Document, load_bytes, parse_document
from proctor.record.loaded import LoadedRecord
from proctor.record.model import TrialRecord
from proctor.record.refusal import render_path
from proctor.record.rules import find_problems as find_record_problems
from proctor.record.validate import check_strict, validate

_LATEST = 2


def load_record(path: Path, *, salvage: bool = False) -> LoadedRecord:
    """The record in a file; for a G2 trial, with its manifest from `_runs` beside it.

    Raises:
        RecordError: it cannot be read, or not as a record.
    """
    data = load_bytes(path)
    document = parse_document(data, str(path))
    manifest = _read_manifest(path, document) if _is_g2(document) else None
    return _parse(document, data, str(path), manifest=manifest, salvage=salvage)


def parse_record(
    data: bytes, source: str, *, manifest: bytes | None = None, salvage: bool = False
) -> LoadedRecord:
    """The record in bytes; `source` says in messages where they are from.

    Raises:
        RecordError: they hold none, or, when strict, one with a problem.
    """
    document = parse_document(data, source)
    return _parse(document, data, source, manifest=manifest, salvage=salvage)


def _parse(
    document: Document, data: bytes, source: str, *, manifest: bytes | None, salvage: bool
) -> LoadedRecord:
    if _is_g2(document):
        # Records of that generation are rare, and what they may hold is much.
        reader = import_module("proctor.record.generation2_read")
        loaded: LoadedRecord = reader.parse_g2(data, manifest, source, salvage=salvage)
        return loaded
    _check_first_generation(document, source)
    record, kept = validate(TrialRecord, document.tree, source)
    notes = (*document.diagnostics, *_find_notes(record, kept))
    if not salvage:
        check_strict(record, notes, source)
    return LoadedRecord(
        generation="G1x" if any(item.is_known for item in kept) else "G1",
        record=record,
        original=data,
        kept=kept,
        diagnostics=notes,
    )


def _find_notes(record: TrialRecord, kept: tuple[Kept, ...]) -> list[Diagnostic]:
    unknown = [
        Diagnostic("unknown-key", f"{render_path(item.path)} is no key of the format")
        for item in kept
        if not item.is_known
    ]
    return [*unknown, *find_problems(kept), *find_record_problems(record)]


def _is_g2(document: Document) -> bool:
    version = document.tree.get("schema_version")
    return version == _LATEST and type(version) is int


def _check_first_generation(document: Document, source: str) -> None:
    if "schema_version" in document.tree:
        version = str(document.tree["schema_version"])[:40]
        raise RecordError(
            f"{source}: schema_version is {version}; expected {_LATEST}, or none in a record "
            "of the first generation"
        )
    if "completeness" not in document.tree:
        raise RecordError(
            f"{source}: has neither schema_version nor completeness; expected a TrialRecord"
        )


def _read_manifest(path: Path, document: Document) -> bytes | None:
    run_id = document.tree.get("run_id")
    if not isinstance(run_id, str):
        return None
    manifest = manifest_path(path, run_id)
    return load_bytes(manifest) if manifest.exists() else None


def manifest_path(path: Path, run_id: str) -> Path:
    """Where the manifest of a G2 trial's run lies."""
    return path.parent / "_runs" / f"{sha256_hex(run_id.encode())}.json"
