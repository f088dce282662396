"""Sealed trials as a Parquet file: a row a trial, first the columns of a list, then all it says.

A field of the record that is a text, a number or a truth has a column of its kind; whatever is an
object or an array has one of JSON text. What the trials did and what they left behind is not in
the table: of each file of evidence it has the path, the size and the digest.

Loaded on use: pyarrow comes with the extra `parquet` and is large.
"""

from collections.abc import Iterator, Sequence
from itertools import batched
from pathlib import Path
from typing import Any, BinaryIO

import msgspec
import pyarrow
import pyarrow.parquet

from proctor.errors import DamageError
from proctor.exchange.exporting import (
    Exported,
    Report,
    Selection,
    as_real,
    check_absent,
    find_at,
    new_file,
    put_at,
    read_trials,
    render_entry,
    report_path,
)
from proctor.ledger.entry import TrialEntry
from proctor.ledger.reader import LedgerReader
from proctor.ledger.row import PUBLIC
from proctor.sentence import count_of
from proctor.traces.entry import Object
from proctor.traces.loss import Loss, list_losses

_BATCH = 1000
"""Trials of a row group, which is what is held in memory."""
_TEXT, _WHOLE, _REAL, _TRUTH = (
    pyarrow.string(),
    pyarrow.int64(),
    pyarrow.float64(),
    pyarrow.bool_(),
)
_LISTED = {
    "seq": _WHOLE,
    "reward": _REAL,
    "evidence_files": _WHOLE,
    "evidence_bytes": _WHOLE,
}
"""Columns of a list that are no texts."""
_FIELDS = {
    "task_revision": ("record.task.task_revision", _TEXT),
    "harness_version": ("record.agent.adapter_revision", _TEXT),
    "runtime_image": ("record.environment.runtime_image", _TEXT),
    "compute_backend": ("record.environment.compute_backend", _TEXT),
    "instruction": ("record.inputs.instruction", _TEXT),
    "system_prompt": ("record.inputs.system_prompt", _TEXT),
    "output_status": ("record.outputs.agent_output.status", _TEXT),
    "output_path": ("record.outputs.agent_output.output_path", _TEXT),
    "output_format": ("record.outputs.agent_output.output_format", _TEXT),
    "output_error": ("record.outputs.agent_output.error_message", _TEXT),
    "raw_output_path": ("record.outputs.raw_output_path", _TEXT),
    "conversation_path": ("record.outputs.conversation_path", _TEXT),
    "trajectory_path": ("record.outputs.trajectory_path", _TEXT),
    "output_parseable": ("record.evaluation.validity.output_parseable", _TRUTH),
    "schema_valid": ("record.evaluation.validity.schema_valid", _TRUTH),
    "verifier_completed": ("record.evaluation.validity.verifier_completed", _TRUTH),
    "total_seconds": ("record.timing.total_seconds", _REAL),
    "agent_seconds": ("record.timing.agent_seconds", _REAL),
    "setup_seconds": ("record.timing.setup_seconds", _REAL),
    "verification_seconds": ("record.timing.verification_seconds", _REAL),
    "tokens_in": ("record.cost.tokens_in", _WHOLE),
    "tokens_out": ("record.cost.tokens_out", _WHOLE),
    "cache_read_tokens": ("record.cost.cache_read_tokens", _WHOLE),
    "cache_write_tokens": ("record.cost.cache_write_tokens", _WHOLE),
    "cost_usd": ("record.cost.estimated_cost_usd", _REAL),
    "advisor_calls": ("record.cost.advisor_calls", _WHOLE),
    "advisor_input_tokens": ("record.cost.advisor_input_tokens", _WHOLE),
    "advisor_output_tokens": ("record.cost.advisor_output_tokens", _WHOLE),
    "cost_basis": ("cost_basis", _TEXT),
    "slot_task": ("slot.task", _TEXT),
    "slot_attempt": ("slot.attempt", _WHOLE),
    "source_kind": ("source.kind", _TEXT),
    "source_name": ("source.name", _TEXT),
    "source_seq": ("source.seq", _WHOLE),
    "source_root": ("source.root", _TEXT),
}
"""Columns of one field each: where it stands, and what it is."""
_JSON = {
    "reward_breakdown": "record.evaluation.breakdown",
    "validity_errors": "record.evaluation.validity.errors",
    "error_taxonomy": "record.evaluation.error_taxonomy",
    "confidence": "record.evaluation.confidence",
    "annotations": "record.evaluation.annotations",
    "harness_configuration": "record.agent.configuration",
    "tool_versions": "record.environment.tool_versions",
    "input_files": "record.inputs.input_files",
    "agent_result": "record.outputs.agent_result",
    "adaptation": "record.adaptation",
    "findings": "findings",
    "score": "score",
    "evidence": "evidence",
}
"""Columns of JSON text."""
_OF_LIST = {
    "experiment_id": "record.experiment_id",
    "trial_id": "record.trial_id",
    "completeness": "record.completeness",
    "dataset_id": "record.dataset_id",
    "task_id": "record.task.task_id",
    "harness": "record.agent.adapter",
    "model": "record.agent.model",
    "reward": "record.evaluation.reward",
    "timestamp": "record.timestamp",
    "reason_code": "reason_code",
}
"""Columns of a list that say a field of what is sealed."""

_NAMES = tuple(PUBLIC)
_SCHEMA = pyarrow.schema(
    [
        *((name, _LISTED.get(name, _TEXT)) for name in _NAMES),
        *((name, kind) for name, (_, kind) in _FIELDS.items()),
        *((name, _TEXT) for name in _JSON),
    ]
)


def export_trials(selection: Selection, target: Path) -> Exported:
    """Write the trials' rows to a new file.

    Raises:
        InputError: nothing is left of the trials.
        LedgerError: something is there, or it cannot be written.
        DamageError: the ledger does not hold what it should.
    """
    beside = report_path(target)
    check_absent(beside)
    with new_file(target) as file, new_file(beside) as losses:
        report = Report(losses)
        with pyarrow.parquet.ParquetWriter(file, _SCHEMA) as writer:
            for rows in batched(_make_rows(selection, report), _BATCH):
                writer.write_table(pyarrow.Table.from_pylist(list(rows), schema=_SCHEMA))
        file.flush()
        _report_losses(selection.ledger, file, report)
    return report.exported(target, beside)


def _make_rows(selection: Selection, report: Report) -> Iterator[Object]:
    for trial in read_trials(selection, report):
        document = trial.document()
        row: Object = trial.row.public()
        # A list also names datasets that only the job knew; a field of the record stays its own.
        row["dataset_id"] = find_at(document, _OF_LIST["dataset_id"])
        for name, (path, kind) in _FIELDS.items():
            row[name] = _fit(find_at(document, path), kind)
        for name, path in _JSON.items():
            found = find_at(document, path)
            row[name] = None if found is None else msgspec.json.encode(found).decode()
        report.trials += 1
        yield row


def _fit(value: object, kind: Any) -> object:
    """A value that a column of that kind can hold; None for one that it cannot."""
    match value:
        case bool():
            return value if kind == _TRUTH else None
        case int() if kind == _WHOLE:
            return value if -(1 << 63) <= value < 1 << 63 else None
        case int() | float() if kind == _REAL:
            return as_real(value)
        case str() if kind == _TEXT:
            return value
    return None


def _report_losses(ledger: LedgerReader, file: BinaryIO, report: Report) -> None:
    """Read the written table again, and hold every row against its trial."""
    file.seek(0)
    for batch in pyarrow.parquet.ParquetFile(pyarrow.PythonFile(file, mode="r")).iter_batches():
        rows: Sequence[Object] = batch.to_pylist()
        for row in rows:
            entry = ledger.entry(row["seq"])
            if not isinstance(entry, TrialEntry):
                raise DamageError(f"entry {row['seq']} was withheld while it was exported")
            name = f"{row['experiment_id']}/{row['trial_id']}"
            report.lose(name, _find_lost(entry, row))


def _find_lost(entry: TrialEntry, row: Object) -> Iterator[Loss]:
    document = render_entry(entry)
    yield from list_losses(document, _read_back(row))
    if entry.evidence:
        n_files = count_of(len(entry.evidence), "file")
        yield Loss("evidence", n_files, "only their paths, sizes and digests are in the table")


def _read_back(row: Object) -> Object:
    document: Object = {}
    for name, path in _OF_LIST.items():
        put_at(document, path, row[name])
    for name, (path, _) in _FIELDS.items():
        put_at(document, path, row[name])
    for name, path in _JSON.items():
        if row[name] is not None:
            put_at(document, path, msgspec.json.decode(row[name]))
    return document
