"""Export sealed trials as a Parquet file: one row per trial, list columns first, then all fields.

A text, number or boolean of the record has a column of its type; an object or array has a column of
JSON text. Traces and evidence are not in the table: it has the path, size and digest of each
evidence file.

Loaded on use: pyarrow is large and comes with the extra `parquet`.
"""

import sys
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

# Trials per row group, which are held in memory together.
_BATCH = 1000
_TEXT, _WHOLE, _REAL, _TRUTH = (
    pyarrow.string(),
    pyarrow.int64(),
    pyarrow.float64(),
    pyarrow.bool_(),
)
# Columns of the trial list that are not text.
_LISTED = {
    "seq": _WHOLE,
    "reward": _REAL,
    "evidence_files": _WHOLE,
    "evidence_bytes": _WHOLE,
}
# Columns with one field each: its path, and its type.
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
# Columns of JSON text.
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
# Columns of the trial list that repeat a field of the sealed trial.
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

_NAMES = tuple(PUBLIC)
_SCHEMA = pyarrow.schema(
    [
        *((name, _LISTED.get(name, _TEXT)) for name in _NAMES),
        *((name, kind) for name, (_, kind) in _FIELDS.items()),
        *((name, _TEXT) for name in _JSON),
    ]
)


def export_trials(selection: Selection, target: Path) -> Exported:
    """Write one row per trial to a new file."""
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
        for name, (path, kind) in _FIELDS.items():
            row[name] = _fit(find_at(document, path), kind)
        for name, path in _JSON.items():
            found = find_at(document, path)
            row[name] = None if found is None else msgspec.json.encode(found).decode()
        report.trials += 1
        yield row


def _fit(value: object, kind: Any) -> object:
    """Return a value that fits the column's type; None if it does not fit."""
    match value:
        case bool():
            return value if kind == _TRUTH else None
        case int() if kind == _WHOLE:
            return value if -(1 << 63) <= value < 1 << 63 else None
        case int() | float() if kind == _REAL:
            # An int may be larger than any float.
            return float(value) if abs(value) <= sys.float_info.max else None
        case str() if kind == _TEXT:
            return value
    return None


def _report_losses(ledger: LedgerReader, file: BinaryIO, report: Report) -> None:
    """Read the written table back, and compare every row with its trial."""
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
