"""Import a directory tree of aec-bench's records, of any generation.

    EXPERIMENT/TRIAL.json, and the files in EXPERIMENT/_artifacts/TRIAL/

A record of the second generation is converted to the first as far as possible; its two original
files are added to the evidence. Deterministic; does not seal.
"""

from collections.abc import Collection
from pathlib import Path

from proctor.errors import InputError, RecordError
from proctor.exchange.submission import find_unreachable
from proctor.ledger.entry import Source
from proctor.ledger.exchange.aec_tree import ORIGINAL, SOURCE, find_own_path
from proctor.ledger.sealing import Submission
from proctor.ledger.submission import list_files, make_refused_finding
from proctor.record.document import parse_document
from proctor.record.evidence import find_evidence
from proctor.record.ids import check_id
from proctor.record.model import TrialRecord
from proctor.record.read import (
    LoadedRecord,
    load_record,
    manifest_path,
    parse_record,
    render_record,
)


def find_records(root: Path) -> list[Path]:
    """List the records of a tree, by experiment and name.

    Raises:
        InputError: there is no such directory, or no record in it.
    """
    try:
        experiments = sorted(
            path
            for path in root.iterdir()
            if path.is_dir() and not path.is_symlink() and not path.name.startswith(("_", "."))
        )
        found = [path for each in experiments for path in sorted(each.glob("*.json"))]
    except OSError as error:
        raise InputError(f"{root}: cannot be read: {error.strerror}") from error
    if not found:
        raise InputError(f"{root}: no records; expected EXPERIMENT/TRIAL.json in it")
    return found


def submit_record(path: Path) -> Submission:
    """Read a record of a tree with its evidence.

    Raises:
        RecordError: it breaks the format, or its path does not match its ids.
    """
    if path.is_symlink():
        raise RecordError(f"{path}: is a link, which is not followed; expected a record")
    loaded = load_record(path)
    record = loaded.record
    check_id(record.trial_id, f"{path}: trial_id")
    if (record.experiment_id, record.trial_id) != (path.parent.name, path.stem):
        raise RecordError(
            f"{path}: the record is trial {record.trial_id!r} of {record.experiment_id!r}; "
            "its path does not match"
        )
    # The originals of the second generation are kept as evidence next to the converted record.
    is_second = loaded.generation == "G2"
    artifacts = path.parent / "_artifacts" / record.trial_id
    files, refused = _list_artifacts(artifacts)
    own = _with_own_paths(record, files)
    if own != record:
        loaded = parse_record(render_record(own, loaded.kept), str(path))
        record = loaded.record
    # Absolute paths are a container's and cannot be checked; relative ones must exist.
    named = [each.path for each in find_evidence(record, artifacts) if each.is_problem]
    unseen = [each for each in named if Path(each).is_absolute()]
    return Submission(
        record=render_record(record) if is_second else loaded.original,
        loaded=None if is_second else loaded,
        where=str(path),
        root=artifacts,
        evidence=tuple(sorted(files)),
        unseen=frozenset(unseen),
        findings=(*find_unreachable(unseen), *make_refused_finding(refused)),
        attached=_find_originals(path, loaded) if is_second else {},
        source=Source(kind=SOURCE, name=f"{path.parent.name}/{path.name}"),
    )


def _with_own_paths(record: TrialRecord, files: Collection[str]) -> TrialRecord:
    """The record as it was before it was exported: see `aec_tree`."""
    outputs = record.outputs
    named = {
        key: find_own_path(record, getattr(outputs, key), files)
        for key in ("conversation_path", "trajectory_path")
    }
    return record.model_copy(update={"outputs": outputs.model_copy(update=named)})


def _find_originals(path: Path, loaded: LoadedRecord) -> dict[str, bytes]:
    originals = {f"{ORIGINAL}/{path.name}": loaded.original}
    if loaded.manifest is not None:
        run_id = parse_document(loaded.original, str(path)).tree["run_id"]
        originals[f"{ORIGINAL}/_runs/{manifest_path(path, run_id).name}"] = loaded.manifest
    return originals


def _list_artifacts(directory: Path) -> tuple[list[str], list[str]]:
    """List a record's regular files, and the entries that are something else. Follows no links."""
    for place in (directory.parent, directory):
        if place.is_symlink():
            return [], [f"{place.name}/"]
    if not directory.is_dir():
        return [], []
    return list_files(str(directory), left_out=())
