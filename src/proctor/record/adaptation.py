"""The variation of a task that a file by itself describes. Whole records are read elsewhere."""

from pathlib import Path

from proctor.diagnostic import Diagnostic
from proctor.errors import RecordError
from proctor.record.document import load_bytes, parse_document
from proctor.record.model import AdaptationProvenance
from proctor.record.refusal import render_path
from proctor.record.validate import validate


def load_adaptation(path: Path) -> AdaptationProvenance:
    """What a file by itself says of the variation of a task; read strictly.

    Raises:
        RecordError: it cannot be read, or not as that.
    """
    document = parse_document(load_bytes(path), str(path))
    adaptation, kept = validate(AdaptationProvenance, document.tree, str(path))
    unknown = [
        Diagnostic("unknown-key", f"has the unknown key {render_path(item.path)}") for item in kept
    ]
    for found in (*document.diagnostics, *unknown):
        raise RecordError(f"{path}: {found.message}")
    return adaptation
