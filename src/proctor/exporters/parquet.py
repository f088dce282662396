"""Sealed trials as a Parquet file: a row a trial, with the columns of a list.

Loaded on use: pyarrow comes with the extra `parquet` and is large.
"""

import os
from pathlib import Path

import pyarrow
import pyarrow.parquet

from proctor.errors import LedgerError
from proctor.exporters.chosen import Chosen, Exported
from proctor.ledger.query import TrialRow

_TYPES = {
    "seq": pyarrow.int64(),
    "reward": pyarrow.float64(),
    "evidence_files": pyarrow.int64(),
    "evidence_bytes": pyarrow.int64(),
}
"""All other columns are texts."""


def export_trials(chosen: Chosen, target: Path) -> Exported:
    """Write the trials' rows to a new file.

    Raises:
        LedgerError: something is there, or it cannot be written.
    """
    rows, path = chosen.rows, target
    names = TrialRow.__struct_fields__
    schema = pyarrow.schema([(name, _TYPES.get(name, pyarrow.string())) for name in names])
    columns = [
        pyarrow.array([getattr(row, name) for row in rows], schema.field(name).type)
        for name in names
    ]
    temporary = path.with_name(f".{path.name}.{os.urandom(4).hex()}.tmp")
    try:
        if path.exists():
            raise LedgerError(f"{path}: there is something already; an export replaces nothing")
        pyarrow.parquet.write_table(pyarrow.table(columns, schema=schema), temporary)
        temporary.rename(path)
    except OSError as error:
        raise LedgerError(f"{path}: cannot be written: {error}") from error
    finally:
        temporary.unlink(missing_ok=True)
    return Exported(output=str(target), trials=len(rows))
