"""The evidence of one sealed trial, unpacked to temporary copies for reading.

Does not read its record, whose model is slow to load.
"""

import contextlib
from collections.abc import Iterable

import msgspec

from proctor.ledger.artifacts import ArtifactStore, unpacked
from proctor.ledger.entry import EvidenceFile, TrialEntry
from proctor.traces.traced_trial import Named, Opened, Part, list_parts, order_parts


class _Outputs(msgspec.Struct, frozen=True):
    """The paths of traces in a record."""

    trajectory_path: str | None = None
    conversation_path: str | None = None


class _Record(msgspec.Struct, frozen=True):
    outputs: _Outputs = _Outputs()


class SealedEvidence:
    """The files that are here: what was withheld is left out."""

    def __init__(self, artifacts: ArtifactStore, evidence: Iterable[EvidenceFile]) -> None:
        self.files = {file.path: file for file in evidence if artifacts.holds(file.sha256)}
        self._artifacts = artifacts

    def open(self, name: str) -> Opened:
        """A temporary copy, checked against the digest that was sealed."""
        return unpacked(self._artifacts, self.files[name])

    def list_parts(self, entry: TrialEntry) -> list[Part]:
        """The files that may be traces, steps in order; `entry` is that of the trial."""
        named = Named()
        with contextlib.suppress(msgspec.MsgspecError):
            outputs = msgspec.json.decode(entry.record, type=_Record).outputs
            named = Named(outputs.trajectory_path, outputs.conversation_path)
        return order_parts(list_parts(tuple(self.files), named), self.files, self.open)
