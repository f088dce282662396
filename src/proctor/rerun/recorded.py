"""A recorded trial: its config, its score, and its trace."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import msgspec
from pydantic import ValidationError
from pydantic_core import from_json

from proctor.errors import NotReplayableError
from proctor.harbor.configs import TrialConfig, set_unstated_environment
from proctor.harbor.documents import TrialDocument, WrittenRewards
from proctor.job.settings import VerifierCompat
from proctor.traces.entry import TraceKind
from proctor.traces.trace import TRIAL_TRACES
from proctor.trial.models import MODEL_CALLS

LARGEST_DOCUMENT = 1 << 24
"""Largest config.json, result.json or record.json, in bytes."""
LONGEST_TRACE = 128 << 20
"""Largest trace that is run again, in bytes; the same limit as for a record."""


@dataclass(frozen=True, slots=True)
class TraceFile:
    """A recorded trace file."""

    kind: TraceKind
    name: str
    """Its file name, by which the kind of a trace is recognised too."""
    data: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedTrial:
    """One recorded trial."""

    name: str
    config: TrialConfig
    result: TrialDocument
    rewards: WrittenRewards | None
    """The rewards that count; null for a number that is not finite; None if not scored."""
    trace: TraceFile | None
    """None if it left no trace."""
    calls: Mapping[str, bytes] = field(default_factory=dict)
    """Its recorded exchanges with models: contents of files by their paths in the trial."""
    revision: str | None = None
    """What its record says of the agent's revision."""
    image: str | None = None
    """The image of its environment, with a digest; None if not recorded."""
    cwd: str | None = None
    """Directory that relative paths in its config start from."""
    verifier_compat: VerifierCompat | None = None


type Read = Callable[[str, int], bytes | None]
"""Reads a file of a trial by name, up to a size; None if it does not exist."""


def read_recorded(
    name: str,
    config: TrialConfig,
    result: TrialDocument,
    rewards: WrittenRewards | None,
    record: bytes | None,
    read: Read,
) -> RecordedTrial:
    """Read what else a trial left; `record` is its record, None if there is none."""
    stated = _parse_record(record)
    return RecordedTrial(
        name=name,
        config=config,
        result=result,
        rewards=rewards,
        trace=_find_trace_file(read),
        calls=_find_calls(read, result),
        revision=stated.agent.adapter_revision,
        image=stated.environment.runtime_image,
    )


def _find_trace_file(read: Read) -> TraceFile | None:
    """Return the first trace of a trial that is not empty, in order of preference."""
    for kind, name in TRIAL_TRACES:
        if kind is TraceKind.OUTPUT:
            continue  # it has no steps
        data = read(name, LONGEST_TRACE)
        if data:
            return TraceFile(kind, name.rpartition("/")[2], data)
    return None


def _find_calls(read: Read, result: TrialDocument) -> dict[str, bytes]:
    """Return the files with recorded exchanges with models, of the agent or of its steps."""
    names = [f"agent/{MODEL_CALLS}"]
    names += [f"steps/{step.step_name}/{names[0]}" for step in result.step_results or ()]
    found: dict[str, bytes] = {}
    for name in names:
        try:
            data = read(name, LONGEST_TRACE)
        except NotReplayableError:
            # Without them, the commands of its trace are run again.
            return {}
        if data:
            found[name] = data
    return found


class _Environment(msgspec.Struct, frozen=True):
    runtime_image: str | None = None


class _Agent(msgspec.Struct, frozen=True):
    adapter_revision: str | None = None


class _Record(msgspec.Struct, frozen=True):
    """The parts of a record that say where the trial ran, and which agent."""

    environment: _Environment = _Environment()
    agent: _Agent = _Agent()


_decode_record = msgspec.json.Decoder(_Record).decode


def find_image(record: bytes | None) -> str | None:
    """The image of a trial's environment, from its record; None if not recorded."""
    return _parse_record(record).environment.runtime_image


def _parse_record(record: bytes | None) -> _Record:
    try:
        return _decode_record(record) if record else _Record()
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return _Record()


# A simulated user that the agent talked to; a trial whose work was only verified once more.
_ONLY_LATER = ("user_agent", "source_trial")


def parse_config(data: bytes, where: str) -> TrialConfig:
    """Parse the config.json of a trial.

    Raises:
        NotReplayableError: it is not a trial's config, or that of a kind of trial that only later
            releases of harbor run.
    """
    try:
        config = TrialConfig.model_validate_json(data)
    except ValidationError as error:
        fault = error.errors()[0]
        key = ".".join(map(str, fault["loc"])) or "it"
        raise NotReplayableError(f"{where}: {key}: {fault['msg']}") from error
    try:
        stated = from_json(data, allow_inf_nan=False)
    except ValueError as error:
        # pydantic's models accept more than JSON has, such as NaN.
        raise NotReplayableError(f"{where}: {error}") from error
    for name in _ONLY_LATER:
        if stated.get(name) is not None:
            raise NotReplayableError(
                f"{where}: {name} is a key of harbor 0.25 that proctor does not support"
            )
    set_unstated_environment(config.environment, data)
    return config
