"""Check trial records of every generation, and the files they name, if available."""

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path

import msgspec

from proctor.audit.checks.checked import Checked, Tally
from proctor.audit.file_kind import TRACES, FileKind, find_file_kind
from proctor.diagnostic import Diagnostic
from proctor.errors import InputError, RecordError
from proctor.record.evidence import Evidence, find_evidence
from proctor.record.ids import check_id
from proctor.record.model import TrialRecord
from proctor.record.read import LoadedRecord, load_record
from proctor.record.reasons import name_outcome
from proctor.record.rules import explain_partial, find_foreign
from proctor.sentence import count_of

_GOOD = ("verified", "present")
# If several directories were searched for a file, the first of these states counts.
_STANDING = (*_GOOD, "differs", "refused", "absent")


def check_record_file(path: str, evidence: tuple[str, ...] = ()) -> Checked:
    """Check a record: its format, its rules and, given directories, the files it names."""
    loaded = load_record(Path(path), salvage=True)
    tally = Tally()
    tally.add(loaded.diagnostics)
    tally.add(_find_unsafe_ids(loaded.record))
    tally.add(_find_notes(loaded))
    unchecked: tuple[str, ...] = ()
    found = _find_files(loaded.record, evidence)
    if evidence:
        tally.add(
            Diagnostic(f"file-{each.state}", each.message) for each in found if each.is_problem
        )
        absent = [each.path for each in found if each.state == "absent"]
        unchecked = tuple(f"{name}: in none of the given directories" for name in absent)
    elif named := _count_named(loaded.record):
        files = count_of(named, "file")
        unchecked = (f"{files} that it names; pass their directory with --evidence DIR",)
    return Checked(
        path=path,
        thing=FileKind.RECORD,
        summary=_summarize(loaded, found if evidence else ()),
        diagnostics=tally.kept,
        more=tally.more,
        unchecked=unchecked,
    )


def _summarize(loaded: LoadedRecord, found: Sequence[Evidence]) -> str:
    record = loaded.record
    reward, has_rewards = record.evaluation.reward, bool(record.evaluation.breakdown)
    shown = name_outcome(None, has_rewards=has_rewards) if reward is None else f"{reward}"
    text = (
        f"{loaded.generation}, {record.completeness}, {record.trial_id} of "
        f"{record.experiment_id}, reward {shown}"
    )
    states: Counter[str] = Counter(each.state for each in found)
    counts = [f"files {state} {states[state]:,}" for state in _GOOD if states[state]]
    return ", ".join([text, *counts])


def _find_unsafe_ids(record: TrialRecord) -> Iterable[Diagnostic]:
    """Ids that must not become part of a path."""
    for what in ("trial_id", "experiment_id"):
        try:
            check_id(getattr(record, what), what)
        except RecordError as error:
            yield Diagnostic("unsafe-id", str(error))


def _find_notes(loaded: LoadedRecord) -> Iterable[Diagnostic]:
    """Why it is partial, what aec-bench cannot represent, and what a record has no field for."""
    for why in explain_partial(loaded.record):
        yield Diagnostic("partial", f"not complete: {why}", is_problem=False)
    for found in find_foreign(loaded.record):
        yield Diagnostic(found.code, found.message, is_problem=False)
    for place in loaded.without_place:
        message = f"{place} has no field in a record of the first generation; the original is kept"
        yield Diagnostic("without-place", message, is_problem=False)


def _find_files(record: TrialRecord, roots: Sequence[str]) -> list[Evidence]:
    """Each file that the record names, with its best state among the directories."""
    by_field: dict[str, Evidence] = {}
    for root in roots:
        if not Path(root).is_dir():
            raise RecordError(f"{root}: not a directory; expected one with a record's files")
        for found in map(partial(_look_into, root), find_evidence(record, Path(root))):
            known = by_field.get(found.field)
            if known is None or _rank(found) < _rank(known):
                by_field[found.field] = found
    return list(by_field.values())


def _look_into(root: str, found: Evidence) -> Evidence:
    """Check that a file named as a trace is a trace."""
    if found.state != "present" or not found.field.startswith("outputs."):
        return found
    try:
        thing = str(find_file_kind(str(Path(root, found.path))))
    except InputError:
        thing = "file of another kind"
    if thing in TRACES:
        return found
    message = f"{found.field}: {found.path!r} is a {thing}; expected a trace"
    return msgspec.structs.replace(found, state="refused", message=message, is_problem=True)


def _rank(found: Evidence) -> int:
    return _STANDING.index(found.state)


def _count_named(record: TrialRecord) -> int:
    outputs = record.outputs
    traces = (outputs.trajectory_path, outputs.conversation_path)
    return len(record.inputs.input_files or ()) + sum(path is not None for path in traces)
