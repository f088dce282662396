"""A record that was read, with all that the file held beyond it. It reads nothing."""

from typing import Literal

import msgspec

from proctor.diagnostic import Diagnostic
from proctor.record.additions import Kept
from proctor.record.model import TrialRecord

type Generation = Literal["G1", "G1x", "G2"]
"""G1: the documented format; G1x: with added keys; G2: schema_version 2, in two documents."""


class LoadedRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What one file held."""

    generation: Generation
    record: TrialRecord
    """As far as a record of the first generation can hold it."""
    original: bytes
    """The file's bytes, untouched."""
    kept: tuple[Kept, ...] = ()
    """Keys beyond the first generation; `render_record(record, kept)` writes them back. None for
    G2, whose keys stand elsewhere: there, `original` is the only whole copy."""
    manifest: bytes | None = None
    """The run manifest that a G2 record was read with, untouched."""
    without_place: tuple[str, ...] = ()
    """G2 only: what the two documents say that the record has no place for; manifest keys begin
    with "manifest."."""
    diagnostics: tuple[Diagnostic, ...] = ()
    """What was noticed; a strict reader leaves only notes that break nothing."""
