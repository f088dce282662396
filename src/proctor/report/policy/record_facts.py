"""What a trial's directory tells beyond its record, and where the record says something else.

Whoever ran the trial wrote its record.json. What can be read again in the trial's own files is held
against it; the rest of a record is its maker's word.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from proctor.errors import InputError
from proctor.exchange.harbor_trial import RecordRequest, make_bare_record
from proctor.exchange.trial_sources import ReadBefore
from proctor.files import read_small
from proctor.harbor.documents import LockDocument
from proctor.harbor.record import UNRESOLVED
from proctor.harbor.trial import FoundTrial
from proctor.ledger.submission import has_record
from proctor.record.comparable import find_run_conditions
from proctor.record.model import TrialRecord
from proctor.record.read import parse_record
from proctor.task.checksum import checksum_of_list

_OWN = "record.json"


@dataclass(frozen=True, slots=True)
class TrialFacts:
    """What is told of a trial beside its record."""

    digests: tuple[str, ...] = ()
    claimed_model: str | None = None
    began: str | None = None
    ended: str | None = None
    contradictions: tuple[str, ...] = ()


def find_facts(
    trial: str, scored: FoundTrial | None, lock: LockDocument | None, record: bytes | None
) -> TrialFacts:
    """The facts in a trial's directory, and in its record where it has one of its own.

    Of a trial without a result there are none.
    """
    if scored is None:
        return TrialFacts()
    document = scored.document
    asked = document.config.task
    locked = lock.find_digest(asked.path, asked.name) if lock else None
    digests = (locked, document.task_checksum)
    model = document.agent_info.model_info
    return TrialFacts(
        digests=tuple(digest for digest in digests if digest),
        claimed_model=document.config.agent.model_name or (model.name if model else None),
        began=document.started_at,
        ended=document.finished_at,
        contradictions=tuple(_find_contradictions(trial, ReadBefore(lock, scored), record)),
    )


def load_own_record(trial: str) -> bytes | None:
    """The bytes of the record that lies in a trial, None where there is none to be read."""
    try:
        return read_small(f"{trial}/{_OWN}") if has_record(Path(trial)) else None
    except OSError:
        return None


def _find_contradictions(trial: str, before: ReadBefore, record: bytes | None) -> Iterator[str]:
    """Where a record says something else than the trial's files do."""
    if record is None:
        return
    try:
        said = parse_record(record, trial, salvage=True).record
        made, _ = make_bare_record(
            RecordRequest(trial=trial, experiment=said.experiment_id), before
        )
    except InputError as error:
        yield f"cannot be compared with its files: {error}"
        return
    for field, told, found in _pairs(said, made):
        if told != found and UNRESOLVED not in (told, found):
            yield f"{field} is {told!r}; its files give {found!r}"
    files = said.inputs.input_files
    if files and checksum_of_list((file.path, file.hash) for file in files) != (
        said.task.task_revision
    ):
        yield "the digests of its input files do not make the task_revision that it names"


def _pairs(said: TrialRecord, made: TrialRecord) -> Iterator[tuple[str, object, object]]:
    """What a record and a trial's files both tell: the field, as recorded, as found."""
    yield "task.task_id", said.task.task_id, made.task.task_id
    yield "task.task_revision", said.task.task_revision, made.task.task_revision
    yield "agent.adapter", said.agent.adapter, made.agent.adapter
    yield "agent.model", said.agent.model, made.agent.model
    yield "limits", _limits(said), _limits(made)
    yield "evaluation.reward", said.evaluation.reward, made.evaluation.reward
    yield "timestamp", said.timestamp, made.timestamp


def _limits(record: TrialRecord) -> Mapping[str, object]:
    return find_run_conditions(record.agent.configuration, "", None).changed
