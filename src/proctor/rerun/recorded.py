"""A trial that is on record: what it was told, what it scored, and the trace that it left."""

from collections.abc import Callable
from dataclasses import dataclass

import msgspec
from pydantic import ValidationError

from proctor.errors import NotReplayableError
from proctor.harbor.configs import TrialConfig
from proctor.harbor.documents import TrialDocument, WrittenRewards
from proctor.job.settings import VerifierCompat
from proctor.traces.entry import TraceKind
from proctor.traces.trace import TRIAL_TRACES

LONGEST_TRACE = 128 << 20
"""Bytes of a trace that is run again, as of one that is read for a record."""


@dataclass(frozen=True, slots=True)
class TraceFile:
    """A trace as it was kept."""

    kind: TraceKind
    name: str
    """Its file name: the name is part of how a trace is recognised."""
    data: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedTrial:
    """One trial on record."""

    name: str
    config: TrialConfig
    result: TrialDocument
    rewards: WrittenRewards | None
    """What counts, or is claimed to: null for a number that is not finite; None for none."""
    trace: TraceFile | None
    """None where it left none."""
    image: str | None = None
    """What its environment was made from, with a digest; None where no record says it."""
    cwd: str | None = None
    """Where relative paths of its config start from."""
    verifier_compat: VerifierCompat | None = None


type Read = Callable[[str, int], bytes | None]
"""A file of a trial by its name, no longer than so many bytes; None where there is none."""


def find_trace_file(read: Read) -> TraceFile | None:
    """The first trace of a trial that has a byte in it, in the order in which they are preferred.

    Raises:
        NotReplayableError: it is there, and cannot be had.
    """
    for kind, name in TRIAL_TRACES:
        data = read(name, LONGEST_TRACE)
        if data:
            return TraceFile(kind, name.rpartition("/")[2], data)
    return None


class _Environment(msgspec.Struct, frozen=True):
    runtime_image: str | None = None


class _Record(msgspec.Struct, frozen=True):
    """As much of a record as says where the trial ran."""

    environment: _Environment = _Environment()


_decode_record = msgspec.json.Decoder(_Record).decode


def find_image(record: bytes | None) -> str | None:
    """What a trial's environment was made from, by its record; None where that does not say."""
    try:
        return _decode_record(record).environment.runtime_image if record else None
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def parse_config(data: bytes, where: str) -> TrialConfig:
    """What a trial was told, by its config.json.

    Raises:
        NotReplayableError: it is none.
    """
    try:
        return TrialConfig.model_validate_json(data)
    except ValidationError as error:
        fault = error.errors()[0]
        key = ".".join(map(str, fault["loc"])) or "it"
        raise NotReplayableError(f"{where}: {key}: {fault['msg']}") from error
