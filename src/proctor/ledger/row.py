"""One trial as a row: what every list, board, comparison, gate, report, policy and page reads.

A row is made from an entry of the log or from a trial in a job directory (`read_row`), or read from
the index, whose columns are the fields of the row (`COLUMNS`). To add a field, add it here and give
it a value in `read_row`.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from operator import attrgetter
from typing import Annotated, Any, Final, Protocol, get_type_hints

import msgspec

from proctor.errors import DamageError
from proctor.ledger.entry import (
    AnyEntry,
    RescoreEntry,
    ReviewEntry,
    Subject,
    SupersedeEntry,
    TrialEntry,
    TrialScore,
    Withheld,
    WithholdEntry,
    evidence_digest,
    record_digest,
)
from proctor.record.comparable import (
    UNKNOWN,
    RunConditions,
    TaskConditions,
    find_requested_model,
    find_run_conditions,
    find_task_conditions,
    settings_digest,
    verifier_digest,
)
from proctor.record.reasons import ReasonCode
from proctor.reward.number import find_primary, is_finite
from proctor.times import parse_utc, render_utc

type Reward = Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)] | float | None
"""A reward that SQLite can hold."""

_LARGEST_COUNT: Final = (1 << 63) - 1
_CACHED: Final = 512
NOT_IN_A_LOG: Final = -1


class Stated(Protocol):
    """What is stated of a trial beside its record: an entry, or what would be sealed."""

    @property
    def score(self) -> TrialScore | None:
        """Its score by its files."""

    @property
    def reason_code(self) -> str | None:
        """Why it is not scored."""


class TrialRow(msgspec.Struct, frozen=True, gc=False):
    """One trial. If its entry was withheld, all fields but the ids are null."""

    seq: int
    """Position of its entry in the log; -1 in a job directory."""
    experiment_id: str
    trial_id: str
    record: str
    """SHA-256 of the record's bytes, as the log has them or as they would be sealed."""
    status: str
    """sealed, diagnostic (a partial record) or, in a job directory, unsealed: read from its files,
    whether or not a ledger has it too; or why the trial does not count: see `ledger.counting`."""
    completeness: str | None = None
    """complete or partial."""
    dataset_id: str | None = None
    """The recorded dataset, else the one that harbor's group names. Boards are made for these."""
    recorded_dataset: str | None = None
    """The dataset on record."""
    task_id: str | None = None
    agent: str | None = None
    revision: str | None = None
    """Version of the agent's adapter."""
    model: str | None = None
    configuration: str | None = None
    """Digest of the agent's settings."""
    run_conditions: RunConditions | None = None
    task_conditions: TaskConditions | None = None
    reward: Reward = None
    """From the certificate of its score, else from the record. Null: not scored, or scored without
    a number, which `reason_code` tells apart; neither is 0."""
    reason_code: str | None = None
    """Why it is not scored."""
    exception: str | None = None
    """The exception that the trial raised; it may have a score as well."""
    timestamp: str | None = None
    """When the trial ran, in UTC."""
    seconds: float | None = None
    setup_seconds: float | None = None
    agent_seconds: float | None = None
    verification_seconds: float | None = None
    cost_usd: float | None = None
    """Null: unknown, which is not 0."""
    tokens_in: int | None = None
    tokens_out: int | None = None
    advisor_calls: int | None = None
    findings: tuple[str, ...] = ()
    """Codes of its integrity findings, sorted, each once."""
    source: str | None = None
    """Where it was imported from; null: proctor ran it."""
    evidence: str | None = None
    """SHA-256 over the list of its evidence."""
    evidence_files: int = 0
    evidence_bytes: int = 0
    review: str | None = None
    """Verdict of its latest review: pass, fail or defer. Not a column, because later entries set
    it."""
    place: str | None = None
    """Its directory; null in a ledger."""

    @property
    def name(self) -> str:
        """The name in commands and on pages: EXPERIMENT/TRIAL."""
        return f"{self.experiment_id}/{self.trial_id}"

    def public(self, keys: Iterable[str] | None = None) -> dict[str, Any]:
        """The row as commands write it in JSON, with all keys or some of them."""
        return {key: getattr(self, PUBLIC[key]) for key in keys or PUBLIC}

    @property
    def subject(self) -> Subject:
        """The trial as other entries name it."""
        return Subject(experiment_id=self.experiment_id, trial_id=self.trial_id, record=self.record)


# Reading an entry


class _Task(msgspec.Struct, frozen=True):
    task_id: str
    task_revision: str = UNKNOWN


class _Agent(msgspec.Struct, frozen=True):
    adapter: str
    model: str
    adapter_revision: str | None = None
    configuration: msgspec.Raw = msgspec.Raw(b"{}")


class _Environment(msgspec.Struct, frozen=True):
    runtime_image: str = UNKNOWN
    compute_backend: str = UNKNOWN


class _Timing(msgspec.Struct, frozen=True):
    total_seconds: float | None = None
    setup_seconds: float | None = None
    agent_seconds: float | None = None
    verification_seconds: float | None = None


class _Cost(msgspec.Struct, frozen=True):
    tokens_in: int | None = None
    tokens_out: int | None = None
    estimated_cost_usd: float | None = None
    advisor_calls: int | None = None


class ErrorTag(msgspec.Struct, frozen=True):
    """A category that a person or the runner gave to an error."""

    category: str
    source: str | None = None


class _Evaluation(msgspec.Struct, frozen=True):
    reward: Reward
    breakdown: dict[str, Any] | None = None
    error_taxonomy: tuple[ErrorTag, ...] | None = None


class _File(msgspec.Struct, frozen=True):
    path: str
    hash: str
    source: str | None = None


class _Inputs(msgspec.Struct, frozen=True):
    input_files: msgspec.Raw = msgspec.Raw(b"null")


class _Record(msgspec.Struct, frozen=True, kw_only=True):
    """The fields of a TrialRecord that a row is made from."""

    trial_id: str
    experiment_id: str
    timestamp: str
    task: _Task
    agent: _Agent
    evaluation: _Evaluation
    completeness: str
    dataset_id: str | None = None
    environment: _Environment = _Environment()
    inputs: _Inputs = _Inputs()
    timing: _Timing | None = None
    cost: _Cost | None = None


_DECODER = msgspec.json.Decoder(_Record)
_SETTINGS = msgspec.json.Decoder(dict[str, Any])
_FILES = msgspec.json.Decoder(tuple[_File, ...] | None)
_ENCODER = msgspec.json.Encoder(order="sorted")


def read_row(entry: TrialEntry, *, status: str | None = None, place: str | None = None) -> TrialRow:
    """Make the row of an admitted trial; later entries about it are not considered.

    `status` and `place` are given for a trial in a job directory, which has no position.
    """
    record, configuration, run_conditions, task_conditions = _read_record(entry)
    agent, cost, timing = record.agent, record.cost or _Cost(), record.timing or _Timing()
    models = _requested_model(bytes(agent.configuration)), agent.model
    reward = _find_reward(entry, record.evaluation.reward)
    moment = parse_utc(record.timestamp)
    return TrialRow(
        seq=entry.seq if place is None else NOT_IN_A_LOG,
        experiment_id=record.experiment_id,
        trial_id=record.trial_id,
        record=record_digest(entry),
        status=status or admitted_status(record.completeness),
        completeness=record.completeness,
        dataset_id=record.dataset_id or find_dataset(entry.score, agent.adapter, *models),
        recorded_dataset=record.dataset_id,
        task_id=record.task.task_id,
        agent=agent.adapter,
        revision=agent.adapter_revision,
        model=agent.model,
        configuration=configuration,
        run_conditions=run_conditions,
        task_conditions=task_conditions,
        reward=reward,
        reason_code=find_reason(entry, reward, record.evaluation.breakdown),
        exception=find_exception(entry, record.evaluation.error_taxonomy),
        # In UTC, so that strings sort like times; unchanged if it is not a time.
        timestamp=render_utc(moment, "microseconds") if moment else record.timestamp,
        seconds=timing.total_seconds,
        setup_seconds=timing.setup_seconds,
        agent_seconds=timing.agent_seconds,
        verification_seconds=timing.verification_seconds,
        cost_usd=cost.estimated_cost_usd,
        tokens_in=_count(cost.tokens_in),
        tokens_out=_count(cost.tokens_out),
        advisor_calls=_count(cost.advisor_calls),
        findings=tuple(sorted({str(each.get("code", "?")) for each in entry.findings})),
        source=entry.source.kind if entry.source else None,
        evidence=evidence_digest(entry),
        evidence_files=len(entry.evidence),
        evidence_bytes=sum(file.size for file in entry.evidence),
        place=place,
    )


def read_ids(entry: TrialEntry) -> tuple[str, str]:
    """The experiment and trial of an entry; much faster than making its row."""
    record, *_ = _read_record(entry)
    return record.experiment_id, record.trial_id


def _read_record(entry: TrialEntry) -> tuple[_Record, str, RunConditions, TaskConditions]:
    """Decode the parts of an entry that may be invalid: record, settings digest, conditions."""
    try:
        record = _DECODER.decode(entry.record)
        agent, environment = record.agent, record.environment
        settings = bytes(agent.configuration)
        profile = entry.score.profile if entry.score else None
        verifier = _digest_verifier(bytes(record.inputs.input_files))
        revision, image = record.task.task_revision, environment.runtime_image
        configuration = _digest_settings(agent.adapter_revision, settings)
        run_conditions = _run_conditions(settings, environment.compute_backend, profile)
        task_conditions = _task_conditions(settings, revision, image, verifier)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise DamageError(f"entry {entry.seq}: no TrialRecord in it: {error}") from error
    return record, configuration, run_conditions, task_conditions


def admitted_status(completeness: str | None) -> str:
    """The status with which a record is admitted: only complete records are `sealed`."""
    return "sealed" if completeness == "complete" else "diagnostic"


def _find_reward(entry: TrialEntry, recorded: Reward) -> Reward:
    """The reward by the certificate if there is one, as in claims; else the recorded one."""
    certificate = entry.score.certificate if entry.score else None
    if certificate is None:
        return recorded
    written = certificate.get("rewards")
    if not isinstance(written, dict) or not written:
        return None
    try:
        rewards = {
            key: value if isinstance(value, int) else float.fromhex(value)
            for key, value in written.items()
        }
        primary = find_primary(rewards)
        return float(primary) if primary is not None and is_finite(primary) else None
    except (TypeError, ValueError, OverflowError):
        return None  # claims refuse anything but a number


def find_reason(said: Stated, reward: Reward, breakdown: Mapping[str, object] | None) -> str | None:
    """Why a trial is not scored; whether it has rewards decides its certificate, else its record.

    A record that was imported without a reward may say no reason; one of rewards without a number
    may say one.
    """
    if reward is not None:
        return said.reason_code
    certificate = said.score.certificate if said.score else None
    has_rewards = (
        bool(certificate.get("rewards")) if certificate is not None else has_only_numbers(breakdown)
    )
    return None if has_rewards else said.reason_code or str(ReasonCode.HARBOR_REWARD_MISSING)


def has_only_numbers(breakdown: Mapping[str, object] | None) -> bool:
    """Whether the breakdown of a record can be used as its rewards."""
    return bool(breakdown) and all(
        isinstance(value, int | float) and not isinstance(value, bool) and is_finite(value)
        for value in (breakdown or {}).values()
    )


def find_exception(entry: TrialEntry, tags: Sequence[ErrorTag] | None) -> str | None:
    """The exception a trial raised, by its certificate or else by the tags of its runner."""
    certificate = entry.score.certificate if entry.score else None
    if certificate is not None:
        found = certificate.get("exception")
        return found if isinstance(found, str) else None
    return next((tag.category for tag in tags or () if tag.source == "mechanical"), None)


def find_dataset(score: TrialScore | None, adapter: str, *models: str | None) -> str | None:
    """The dataset in harbor's group name of a trial: `agent__model__dataset`.

    Harbor uses the name of the requested model, without its provider; the record has the model that
    answered, whose name may differ. `models` are both.
    """
    certificate = score.certificate if score else None
    group = certificate.get("group") if certificate else None
    if not isinstance(group, str):
        return None
    # Names may contain `__` themselves: strip known names instead of splitting.
    rest = group.removeprefix(f"{adapter}__")
    for model in models:
        for name in (model, model.partition("/")[2], model.rpartition("/")[2]) if model else ():
            if name and rest.startswith(f"{name}__"):
                return rest.removeprefix(f"{name}__") or None
    return rest or None


def _count(value: int | None) -> int | None:
    """A count that fits into SQLite; a larger one counts as unknown."""
    return value if value is None or 0 <= value <= _LARGEST_COUNT else None


# Cached, because all trials of a run have the same settings and input files.


@lru_cache(maxsize=_CACHED)
def _digest_settings(adapter_revision: str | None, settings: bytes) -> str:
    return settings_digest(adapter_revision, _SETTINGS.decode(settings))


@lru_cache(maxsize=_CACHED)
def _requested_model(settings: bytes) -> str | None:
    return find_requested_model(_SETTINGS.decode(settings))


@lru_cache(maxsize=_CACHED)
def _run_conditions(settings: bytes, backend: str, profile: str | None) -> RunConditions:
    return _as_stored(find_run_conditions(_SETTINGS.decode(settings), backend, profile))


@lru_cache(maxsize=_CACHED)
def _task_conditions(
    settings: bytes, revision: str, image: str, verifier: str | None
) -> TaskConditions:
    return _as_stored(find_task_conditions(_SETTINGS.decode(settings), revision, image, verifier))


def _as_stored[Conditions: (RunConditions, TaskConditions)](found: Conditions) -> Conditions:
    """Conditions after a round trip through JSON, as in the index: a limit of 8 is 8.0."""
    return msgspec.json.decode(_ENCODER.encode(found), type=type(found))


@lru_cache(maxsize=_CACHED)
def _digest_verifier(listed: bytes) -> str | None:
    files = _FILES.decode(listed) or ()
    return verifier_digest((each.path, each.hash) for each in files if each.source == "verifier")


# The columns of the index

COLUMNS: Final = tuple(
    name for name in TrialRow.__struct_fields__ if name not in ("review", "place")
)
"""The columns: the first fields of the row, in order."""
DOCUMENTS: Final = (COLUMNS.index("run_conditions"), COLUMNS.index("task_conditions"))
"""Columns that refer to a document, which is stored once for all trials that share it."""
_all_columns = attrgetter(*COLUMNS)
_FINDINGS: Final = COLUMNS.index("findings")
_RECORD: Final = COLUMNS.index("record")
_KINDS: Final = {str: "TEXT", int: "INTEGER", float: "REAL"}

PUBLIC: Final = {
    "seq": "seq",
    "experiment_id": "experiment_id",
    "trial_id": "trial_id",
    "record": "record",
    "status": "status",
    "completeness": "completeness",
    "dataset_id": "dataset_id",
    "task_id": "task_id",
    "harness": "agent",
    "model": "model",
    "reward": "reward",
    "timestamp": "timestamp",
    "reason_code": "reason_code",
    "evidence_files": "evidence_files",
    "evidence_bytes": "evidence_bytes",
    "review": "review",
}
"""The keys of a row in the JSON, CSV and Parquet that commands write, with their fields."""

type Columns = tuple[Any, ...]
"""A row as the index stores it, with documents as JSON."""


def declare_columns() -> str:
    """The column definitions in SQL."""
    hints = get_type_hints(TrialRow)
    return ", ".join(_declare(name, hints[name]) for name in COLUMNS)


def _declare(name: str, hint: Any) -> str:
    if name == "seq":
        return "seq INTEGER PRIMARY KEY"
    if name == "reward":
        return "reward"  # no type, so that SQLite keeps integers as integers
    if COLUMNS.index(name) in DOCUMENTS:
        return f"{name} INTEGER"
    if name == "findings":
        return "findings TEXT"
    kind = next(kind for kind in _KINDS if kind is hint or kind in getattr(hint, "__args__", ()))
    return f"{name} {_KINDS[kind]}{' NOT NULL' if kind is hint else ''}"


def to_columns(row: TrialRow) -> Columns:
    """Encode a row for the index."""
    values = list(_all_columns(row))
    for column in DOCUMENTS:
        if values[column] is not None:
            values[column] = _ENCODER.encode(values[column])
    values[_FINDINGS] = " ".join(row.findings)
    return tuple(values)


def from_columns(
    rows: Iterable[Columns], documents: Mapping[int, bytes], reviews: Mapping[str, str]
) -> Iterator[TrialRow]:
    """Decode rows of the index; trials with equal conditions share one object."""
    decoded: dict[int, tuple[Any, dict[int | None, Any]]] = {
        column: (kind, {None: None})
        for column, kind in zip(DOCUMENTS, (RunConditions, TaskConditions), strict=True)
    }
    codes: dict[str, tuple[str, ...]] = {}
    for stored in rows:
        values = list(stored)
        for column, (kind, known) in decoded.items():
            number = values[column]
            if number not in known:
                known[number] = msgspec.json.decode(documents[number], type=kind)
            values[column] = known[number]
        text = values[_FINDINGS]
        if text not in codes:
            codes[text] = tuple(text.split())
        values[_FINDINGS] = codes[text]
        values.append(reviews.get(values[_RECORD]))
        yield TrialRow(*values)


# The index rows that other entries add, in the order of index.py


type RemarkColumns = tuple[str, int, str, str | None, int]
"""Record, position, kind, verdict, and whether the record is the subject of the entry."""

IS_WITHHELD = "SELECT 1 FROM entries WHERE seq = ? AND kind = '' AND lower(hex(leaf)) = ?"
"""Whether the line that a withholding names by position and leaf hash is withheld now."""


def withheld_columns(entry: WithholdEntry) -> Columns | None:
    """The row of a trial whose line was withheld; None if no trial's line was."""
    subject = entry.subject
    if subject is None or entry.entry is None:
        return None
    row = TrialRow(entry.entry, subject.experiment_id, subject.trial_id, subject.record, "withheld")
    return to_columns(row)


def remark_columns(entry: AnyEntry) -> list[RemarkColumns]:
    """The rows for the trials that an entry is about."""
    match entry:
        case ReviewEntry():
            return [(entry.subject.record, entry.seq, entry.kind, entry.verdict, 1)]
        case RescoreEntry():
            return [(entry.subject.record, entry.seq, entry.kind, None, 1)]
        case SupersedeEntry():
            by = (entry.by.record, entry.seq, entry.kind, None, 0)
            return [(entry.subject.record, entry.seq, entry.kind, None, 1), by]
        case WithholdEntry() if entry.subject is not None:
            return [(entry.subject.record, entry.seq, entry.kind, None, 1)]
        case _:
            return []


def evidence_key(sha256: str) -> int:
    """The first 64 bits of a digest, as the index has it: two digests may share them."""
    return int.from_bytes(bytes.fromhex(sha256[:16]), signed=True)


def kind_and_time(entry: AnyEntry | Withheld) -> tuple[str, str]:
    """Kind and time of an entry; both empty if it was withheld."""
    return ("", "") if isinstance(entry, Withheld) else (entry.kind, entry.at)
