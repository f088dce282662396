"""What boards and comparisons need of a sealed record, beyond what lists do: for the index.

Trials of one run are set up alike, but for a few words: what is read of the settings and of the
input files is kept for the next one with the same bytes.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final

import msgspec

from proctor.errors import DamageError
from proctor.ledger.entry import TrialEntry
from proctor.ledger.head import (
    AgentHead,
    EvaluationHead,
    RecordHead,
    Reward,
    TaskHead,
    find_certified_reward,
)
from proctor.record.comparable import (
    UNKNOWN,
    find_requested_model,
    find_run_conditions,
    find_task_conditions,
    settings_digest,
    verifier_digest,
)

_LARGEST_COUNT = (1 << 63) - 1
_KEPT: Final = 512
"""Settings, and conditions, that are kept."""
_NOTHING: Final = msgspec.Raw(b"{}")
_NO_FILES: Final = msgspec.Raw(b"null")


class _Task(TaskHead, frozen=True):
    task_revision: str = UNKNOWN


class _Agent(AgentHead, frozen=True):
    adapter_revision: str | None = None
    configuration: msgspec.Raw = _NOTHING


class _Environment(msgspec.Struct, frozen=True):
    runtime_image: str = UNKNOWN
    compute_backend: str = UNKNOWN


class _Timing(msgspec.Struct, frozen=True):
    total_seconds: float | None = None


class _Cost(msgspec.Struct, frozen=True):
    tokens_in: int | None = None
    tokens_out: int | None = None
    estimated_cost_usd: float | None = None
    advisor_calls: int | None = None


class ErrorTag(msgspec.Struct, frozen=True):
    """What somebody, or the runner itself, called an error."""

    category: str
    source: str | None = None


class _Evaluation(EvaluationHead, frozen=True):
    error_taxonomy: tuple[ErrorTag, ...] | None = None


class _File(msgspec.Struct, frozen=True):
    path: str
    hash: str
    source: str | None = None


class _Inputs(msgspec.Struct, frozen=True):
    input_files: msgspec.Raw = _NO_FILES


class _Record(RecordHead, frozen=True, kw_only=True):
    """All of a head, and what conditions are read from: one look at a record gives both."""

    task: _Task
    agent: _Agent
    evaluation: _Evaluation
    environment: _Environment = _Environment()
    inputs: _Inputs = _Inputs()
    timing: _Timing | None = None
    cost: _Cost | None = None


class Sitter(msgspec.Struct, frozen=True, array_like=True):
    """Who sat, and at what: the same for many trials, so that the index keeps it once."""

    experiment: str
    dataset: str | None
    agent: str
    revision: str | None
    model: str
    configuration: str
    source: str | None
    collection: str | None


class Standing(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """How a sealed trial stands among others."""

    head: RecordHead
    reward: Reward
    """What the certificate of its score gives; without one, what is on record."""
    revision: str | None
    """Of the agent's adapter."""
    configuration: str
    """Digest of the agent's own settings."""
    run_conditions: bytes
    """RunConditions, as JSON."""
    task_conditions: bytes
    """TaskConditions, as JSON."""
    source: str | None
    """Where it was brought in from; null: proctor ran it."""
    cost_usd: float | None
    tokens_in: int | None
    tokens_out: int | None
    advisor_calls: int | None
    seconds: float | None
    findings: str
    """Codes of its integrity findings, each once, sorted, with spaces between."""
    collection: str | None
    """The dataset on record, else what the job that ran it calls the place its tasks are from."""
    exception: str | None
    """What broke in the trial, if something did; it may have a score all the same."""
    sitter: bytes
    """Sitter, as JSON."""


_DECODER = msgspec.json.Decoder(_Record)
_SETTINGS = msgspec.json.Decoder(dict[str, Any])
_FILES = msgspec.json.Decoder(tuple[_File, ...] | None)
_ENCODER = msgspec.json.Encoder(order="sorted")


def read_standing(entry: TrialEntry) -> Standing:
    """The standing of a trial that is sealed, or could be.

    Raises:
        DamageError: there is no record in it.
    """
    try:
        record = _DECODER.decode(entry.record)
        agent, environment = record.agent, record.environment
        settings = bytes(agent.configuration)
        profile = entry.score.profile if entry.score else None
        configuration = _digest_settings(agent.adapter_revision, settings)
        run = _render_run(settings, environment.compute_backend, profile)
        task = _render_task(
            settings,
            record.task.task_revision,
            environment.runtime_image,
            _find_verifier(bytes(record.inputs.input_files)),
        )
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise DamageError(f"entry {entry.seq}: no TrialRecord in it: {error}") from error
    cost = record.cost or _Cost()
    sitter = Sitter(
        record.experiment_id,
        record.dataset_id,
        agent.adapter,
        agent.adapter_revision,
        agent.model,
        configuration,
        entry.source.kind if entry.source else None,
        record.dataset_id or _find_collection(entry, agent),
    )
    return Standing(
        head=record,
        reward=_find_reward(entry, record.evaluation.reward),
        revision=sitter.revision,
        configuration=sitter.configuration,
        run_conditions=run,
        task_conditions=task,
        source=sitter.source,
        cost_usd=cost.estimated_cost_usd,
        tokens_in=_count(cost.tokens_in),
        tokens_out=_count(cost.tokens_out),
        advisor_calls=_count(cost.advisor_calls),
        seconds=record.timing.total_seconds if record.timing else None,
        findings=" ".join(sorted({str(each.get("code", "?")) for each in entry.findings})),
        collection=sitter.collection,
        exception=find_exception(entry, record.evaluation.error_taxonomy),
        sitter=_ENCODER.encode(sitter),
    )


def _find_reward(entry: TrialEntry, stated: Reward) -> Reward:
    """One number for lists, boards and claims: the certificate decides, where there is one."""
    is_certified = entry.score is not None and entry.score.certificate is not None
    return find_certified_reward(entry) if is_certified else stated


@lru_cache(maxsize=_KEPT)
def _digest_settings(adapter_revision: str | None, settings: bytes) -> str:
    return settings_digest(adapter_revision, _SETTINGS.decode(settings))


@lru_cache(maxsize=_KEPT)
def _render_run(settings: bytes, backend: str, profile: str | None) -> bytes:
    return _ENCODER.encode(find_run_conditions(_SETTINGS.decode(settings), backend, profile))


@lru_cache(maxsize=_KEPT)
def _render_task(settings: bytes, revision: str, image: str, verifier: str | None) -> bytes:
    told = _SETTINGS.decode(settings)
    return _ENCODER.encode(find_task_conditions(told, revision, image, verifier))


def find_dataset(entry: TrialEntry) -> str | None:
    """The dataset of a sealed trial, as lists, boards and claims name it.

    Raises:
        DamageError: there is no record in it.
    """
    return read_standing(entry).collection


def _find_collection(entry: TrialEntry, agent: _Agent) -> str | None:
    """The dataset's part of the group that the trial is counted in: `agent__model__dataset`.

    Harbor names the model that was requested, without its provider; the record names the one that
    answered, which may be called otherwise.
    """
    certificate = entry.score.certificate if entry.score else None
    group = certificate.get("group") if certificate else None
    if not isinstance(group, str):
        return None
    rest = group.removeprefix(f"{agent.adapter}__")
    for model in (_read_requested_model(bytes(agent.configuration)), agent.model):
        for name in (model, model.partition("/")[2], model.rpartition("/")[2]) if model else ():
            if name and rest.startswith(f"{name}__"):
                return rest.removeprefix(f"{name}__") or None
    return rest or None


@lru_cache(maxsize=_KEPT)
def _read_requested_model(settings: bytes) -> str | None:
    return find_requested_model(_SETTINGS.decode(settings))


def find_exception(entry: TrialEntry, tags: Sequence[ErrorTag] | None) -> str | None:
    """What a trial raised, for boards and claims alike: its certificate says, or else its record.

    Without a certificate, why it has no score counts as an error, as it does in every claim.
    """
    certificate = entry.score.certificate if entry.score else None
    if certificate is not None:
        found = certificate.get("exception")
        return found if isinstance(found, str) else None
    mechanical = (tag.category for tag in tags or () if tag.source == "mechanical")
    return entry.reason_code or next(mechanical, None)


@lru_cache(maxsize=_KEPT)
def _find_verifier(listed: bytes) -> str | None:
    files = _FILES.decode(listed) or ()
    return verifier_digest((each.path, each.hash) for each in files if each.source == "verifier")


def _count(value: int | None) -> int | None:
    """A number for the index; more than it can hold is not known."""
    return value if value is None or 0 <= value <= _LARGEST_COUNT else None
