"""Facts in a trial's directory that policies need, and contradictions between record and files.

A trial's record.json was written by its operator. The parts that can be recomputed from the
trial's own files are compared with them; the rest of a record cannot be checked.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from proctor.errors import InputError
from proctor.exchange.harbor_trial import RecordRequest, make_record
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
    """Facts in a trial's directory."""

    digests: tuple[str, ...] = ()
    claimed_model: str | None = None
    began: str | None = None
    ended: str | None = None
    contradictions: tuple[str, ...] = ()


def read_facts(
    trial: str, scored: FoundTrial | None, lock: LockDocument | None, record: bytes | None
) -> TrialFacts:
    """Read the facts in a trial's directory; empty for a trial without a result.

    If the trial has its own record, it is compared with the files.
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
    """The bytes of the record in a trial; None if there is no readable one."""
    try:
        return read_small(f"{trial}/{_OWN}") if has_record(Path(trial)) else None
    except OSError:
        return None


def _find_contradictions(trial: str, before: ReadBefore, record: bytes | None) -> Iterator[str]:
    """Messages for every field of a record that contradicts the trial's files."""
    if record is None:
        return
    try:
        parsed = parse_record(record, trial, salvage=True).record
        made, _ = make_record(RecordRequest(trial=trial, experiment=parsed.experiment_id), before)
    except InputError as error:
        yield f"cannot be compared with its files: {error}"
        return
    for field, recorded, found in _pairs(parsed, made):
        if recorded != found and UNRESOLVED not in (recorded, found):
            yield f"{field} is {recorded!r}; its files give {found!r}"
    files = parsed.inputs.input_files
    if files and checksum_of_list((file.path, file.hash) for file in files) != (
        parsed.task.task_revision
    ):
        yield "the digests of its input files do not give its task_revision"


def _pairs(parsed: TrialRecord, made: TrialRecord) -> Iterator[tuple[str, object, object]]:
    """The fields that can be compared: name, recorded value, value by the files."""
    yield "task.task_id", parsed.task.task_id, made.task.task_id
    yield "task.task_revision", parsed.task.task_revision, made.task.task_revision
    yield "agent.adapter", parsed.agent.adapter, made.agent.adapter
    yield "agent.model", parsed.agent.model, made.agent.model
    yield "limits", _limits(parsed), _limits(made)
    yield "evaluation.reward", parsed.evaluation.reward, made.evaluation.reward
    yield "timestamp", parsed.timestamp, made.timestamp


def _limits(record: TrialRecord) -> Mapping[str, object]:
    return find_run_conditions(record.agent.configuration, "", None).changed
