"""A record with what it rests on, for which the record's own format has no place."""

import msgspec

from proctor.record.cost import CostBasis
from proctor.record.model import TrialRecord
from proctor.record.rules import Missing
from proctor.traces.entry import Object


class PinnedFile(msgspec.Struct, frozen=True):
    """A file and the digest that was computed of it."""

    path: str
    """Relative to the trial, with `/`."""
    sha256: str
    size: int
    """In bytes."""


class Pins(msgspec.Struct, frozen=True, kw_only=True):
    """What fixes the inputs of a trial, and who says so."""

    task_checksum: str | None
    """Harbor's digest of the task directory."""
    task_lock_digest: str | None
    """Harbor's digest of what it would publish of the task, without its `sha256:`."""
    task_dataset_digest: str | None = None
    """The task's digest in a manifest of dataset digest v1."""
    is_task_recomputed: bool = False
    """Whether the digests were computed from the task's files; else they are the job's word."""
    configuration_sha256: str
    """Of agent.configuration as canonical JSON."""
    image_digest: str | None = None
    """Of the image, where the task names it by digest; harbor does not record what it built."""
    model_requested: str | None = None
    """The model that the agent was told to use."""
    models_reported: tuple[str, ...] = ()
    """The models that the trace says have answered."""
    trace: PinnedFile | None = None
    """The trace that the record names."""
    media: tuple[PinnedFile, ...] = ()
    """What entries of the trace name and lies with the trial."""


class MadeRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What came of one trial."""

    record: TrialRecord
    pins: Pins
    cost_basis: CostBasis
    """Where the record's amount of money comes from."""
    evidence: tuple[PinnedFile, ...]
    """Every plain file of the trial."""
    missing: tuple[Missing, ...]
    """What keeps the record from being complete."""
    notes: tuple[str, ...] = ()
    """What a reader of the record should know."""
    redactions: tuple[Object, ...] = ()
    """Secrets that were taken out: name, count, salted digest."""
