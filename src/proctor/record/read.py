"""Read records from bytes or files, strictly or leniently, and write them.

Strict reading refuses the first problem: an unknown key, a repeated key, a byte order mark, a
wrong `complete`, impossible token counts. Lenient reading (`salvage`) continues and returns them as
diagnostics. What a record cannot represent (a missing field, a wrong type, invalid JSON) is refused
by both: nothing is repaired or invented.

    schema_version 2                   G2
    completeness, and added keys       G1x
    completeness                       G1

Records are written as JSON with an indent of 2, keys in the order of the format, every optional key
present, no final newline, and pydantic's text for numbers and times, as aec-bench does. Files that
a record names are not opened, except the manifest of a G2 trial.
"""

import json
import re
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

import msgspec
from pydantic_core import PydanticSerializationError, to_json

from proctor.diagnostic import Diagnostic
from proctor.digest import sha256_hex
from proctor.errors import RecordError
from proctor.record.document import (
    Document,
    UnknownKey,
    check_strict,
    find_addition_problems,
    load_bytes,
    parse_document,
    put_back,
    render_path,
    validate,
)
from proctor.record.model import TrialRecord
from proctor.record.rules import find_problems

type Generation = Literal["G1", "G1x", "G2"]
"""G1: the documented format; G1x: with added keys; G2: schema_version 2, in two documents."""


class LoadedRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The contents of one record file."""

    generation: Generation
    record: TrialRecord
    """The record, as far as the first generation has fields for it."""
    original: bytes
    """The file's bytes, unchanged."""
    document: dict[str, Any]
    """The parsed JSON object, without the keys in `kept`."""
    kept: tuple[UnknownKey, ...] = ()
    """Keys beyond the first generation; `render_record(record, kept)` writes them back. Empty for
    G2, which has a different structure: there, only `original` is complete."""
    manifest: bytes | None = None
    """The run manifest that a G2 record was read with, unchanged."""
    without_place: tuple[str, ...] = ()
    """G2 only: paths in the two documents that the record has no field for; manifest keys begin
    with "manifest."."""
    diagnostics: tuple[Diagnostic, ...] = ()
    """Problems and notes; after strict reading only notes."""


_LATEST = 2


def load_record(path: Path, *, salvage: bool = False) -> LoadedRecord:
    """Read the record in a file; for a G2 trial, with its manifest from `_runs` next to it."""
    data = load_bytes(path)
    document = parse_document(data, str(path))
    manifest = _read_manifest(path, document) if _is_g2(document) else None
    return _parse_document(document, data, str(path), manifest=manifest, salvage=salvage)


def parse_record(data: bytes, source: str, *, salvage: bool = False) -> LoadedRecord:
    """Parse a record; `source` names the origin of the bytes in messages."""
    document = parse_document(data, source)
    return _parse_document(document, data, source, manifest=None, salvage=salvage)


def _parse_document(
    document: Document, data: bytes, source: str, *, manifest: bytes | None, salvage: bool
) -> LoadedRecord:
    if _is_g2(document):
        # Loaded only when needed: these records are rare and their models are many.
        reader = import_module("proctor.record.generation2")
        loaded: LoadedRecord = reader.parse_g2(data, manifest, source, salvage=salvage)
        return loaded
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
    record, kept = validate(TrialRecord, document.tree, source)
    unknown = [
        Diagnostic("unknown-key", f"{render_path(item.path)} is not a key of the format")
        for item in kept
        if not item.is_known
    ]
    notes = (
        *document.diagnostics,
        *unknown,
        *find_addition_problems(kept),
        *find_problems(record),
    )
    if not salvage:
        check_strict(record, notes, source)
    return LoadedRecord(
        generation="G1x" if any(item.is_known for item in kept) else "G1",
        record=record,
        original=data,
        document=document.tree,
        kept=kept,
        diagnostics=notes,
    )


def _is_g2(document: Document) -> bool:
    version = document.tree.get("schema_version")
    return version == _LATEST and type(version) is int


def _read_manifest(path: Path, document: Document) -> bytes | None:
    run_id = document.tree.get("run_id")
    if not isinstance(run_id, str):
        return None
    manifest = manifest_path(path, run_id)
    return load_bytes(manifest) if manifest.exists() else None


def manifest_path(path: Path, run_id: str) -> Path:
    """Path of the manifest of a G2 trial's run."""
    return path.parent / "_runs" / f"{sha256_hex(run_id.encode())}.json"


def render_record(record: TrialRecord, kept: Sequence[UnknownKey] = ()) -> bytes:
    """Render a record to bytes.

    Raises:
        RecordError: something in it cannot be written, or `kept` does not fit it.
    """
    try:
        if not kept:
            return record.model_dump_json(indent=2).encode()
        tree = record.model_dump(mode="json")
        put_back(tree, kept)
        return to_json(tree, indent=2)
    except PydanticSerializationError as error:
        raise RecordError(f"{record.trial_id!r} cannot be written: {error}") from error


_IDS = {
    key: re.compile(rb'("%s":\s*)"(?:[^"\\]|\\.)*"' % key.encode())
    for key in ("trial_id", "experiment_id")
}
_OBJECT = msgspec.json.Decoder(dict[str, Any])


def replace_id(data: bytes, key: str, value: str) -> bytes | None:
    """Replace the `trial_id` or `experiment_id` in a record's bytes; None if impossible."""
    record = _OBJECT.decode(data)
    if record.get(key) == value:
        return data
    written = json.dumps(value).encode()
    changed = _IDS[key].sub(lambda found: found[1] + written, data, count=1)
    # The pattern may have matched the same words inside an earlier text: compare the results.
    return changed if _OBJECT.decode(changed) == {**record, key: value} else None
