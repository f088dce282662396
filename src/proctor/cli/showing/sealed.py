"""`proctor show` of a sealed trial, or of another entry of a ledger.

Records were checked when they were sealed and are not checked again here: use `ledger verify` or
`check` for that.
"""

import contextlib
import importlib
import json
import os
from collections.abc import Iterator, Mapping
from typing import Any, cast

import click
import msgspec

from proctor.cli.options import check_apart, check_unused
from proctor.cli.output import print_json
from proctor.cli.showing.changes import ChangedTrial, render_summary, show_changes
from proctor.cli.showing.options import Selection, ShowOptions
from proctor.cli.showing.trace import (
    Source,
    View,
    describe_traces,
    show_traces,
    warn_if_empty,
)
from proctor.cli.showing.trial_text import (
    LABEL,
    LONGEST,
    cut_line,
    render_failures,
    render_record_fields,
)
from proctor.cli.stdout import SentBytes, send, send_bytes
from proctor.errors import DamageError, InputError, LedgerError
from proctor.ledger.artifacts import unpacked
from proctor.ledger.derived import find_cache
from proctor.ledger.entry import (
    AnyEntry,
    EvidenceFile,
    RescoreEntry,
    ReviewEntry,
    SupersedeEntry,
    TrialEntry,
    Withheld,
    WithholdEntry,
    record_digest,
)
from proctor.ledger.log import is_ledger
from proctor.ledger.place import ledger_directory, open_reader
from proctor.ledger.query import resolve_name
from proctor.ledger.reader import LedgerReader
from proctor.ledger.review import list_remarks
from proctor.ledger.row import TrialRow
from proctor.ledger.sealed_evidence import SealedEvidence
from proctor.ledger.step_parts import LARGE, read_sealed_steps
from proctor.record.reasons import outcome_of
from proctor.sentence import printable, render_size
from proctor.traces.failures import TrialFailures, read_failures
from proctor.traces.traced_trial import Part, TracedTrial, open_parts
from proctor.trial.finding import level_of

# Traces of a sealed trial. Files are unpacked to temporary copies and checked against their sealed
# digests. For single steps of a large trajectory, only parts are unpacked (see
# ledger/step_parts.py).


@contextlib.contextmanager
def sealed_traces(
    ledger: LedgerReader, entry: TrialEntry, selection: Selection
) -> Iterator[list[Source]]:
    """The traces of a trial, steps in order; empty if it has none."""
    evidence = SealedEvidence(ledger.artifacts, entry.evidence)
    with contextlib.ExitStack() as stack:
        sources = []
        for part in evidence.list_parts(entry):
            quick = _find_quickly(ledger, part, evidence.files, selection)
            if quick is not None:
                sources.append(quick)
                continue
            sources += [
                Source(each.kind, each.path, each.name, each.part, each.passed_over)
                for each in open_parts([part], evidence.open, stack)
            ]
        yield sources


def _find_quickly(
    ledger: LedgerReader, part: Part, kept: Mapping[str, EvidenceFile], selection: Selection
) -> Source | None:
    """The selected steps of a large trajectory, if it need not be unpacked completely."""
    if selection.steps is None or not part.candidates:
        return None
    kind, name = part.candidates[0]
    if not kind.is_lines or kept[name].size < LARGE:
        return None
    cache = find_cache(os.environ)
    steps = read_sealed_steps(ledger.artifacts, kept[name].sha256, selection.steps, cache)
    return None if steps is None else Source(kind, "", name, part.name, steps=steps)


_MOST_FILES = 50


def show(name: str, directory: str | None, options: ShowOptions) -> None:
    """Print a sealed trial or an entry.

    Raises:
        InputError: there is no such thing, neither a file nor sealed.
        DamageError: its bytes are not what was sealed.
    """
    for first, second in (("raw", "as_json"), ("raw", "evidence_path"), ("as_json", "full")):
        check_apart(first, second)
    check_apart("evidence_path", "as_json")
    if options.changes:
        options.check_unchosen("--changes")
        check_apart("changes", "raw")
        check_apart("changes", "evidence_path")
    if options.raw or options.evidence is not None:
        options.check_unused_for("--raw and --evidence, which give bytes as they are")
    place = ledger_directory(directory, os.environ)
    if directory is None and not is_ledger(place):
        raise InputError(
            f"{name}: there is no such file, and no ledger at {place} that could contain it; "
            "--ledger or PROCTOR_LEDGER names one"
        )
    with open_reader(place) as ledger:
        found = resolve_name(ledger, name)
        if isinstance(found, TrialRow):
            _show_trial(ledger, found, options)
        else:
            options.check_unused_for("an entry that is not a trial")
            check_unused("an entry that is not a trial", changes=options.changes)
            _show_entry(ledger, found, options)


def _show_trial(ledger: LedgerReader, row: TrialRow, options: ShowOptions) -> None:
    entry = ledger.entry(row.seq)
    if isinstance(entry, TrialEntry):
        if record_digest(entry) != row.record:
            raise DamageError(
                f"{ledger.where}: entry {row.seq} holds a record with the SHA-256 "
                f"{record_digest(entry)}; sealed was {row.record}"
            )
        if options.raw:
            send_bytes(bytes(entry.record))
            return
        if options.evidence is not None:
            _send_evidence(ledger, row, entry, options.evidence)
            return
        if options.changes:
            show_changes(_changed(ledger, row, entry), options)
            return
    elif (
        options.raw
        or options.evidence is not None
        or options.changes
        or not options.selection.is_all
    ):
        raise LedgerError(f"{row.name}: withheld; `proctor show {row.seq}` says why")
    _print_trial(ledger, row, entry, options)


def _print_trial(
    ledger: LedgerReader, row: TrialRow, entry: AnyEntry | Withheld, options: ShowOptions
) -> None:
    def sources() -> contextlib.AbstractContextManager[list[Source]]:
        if isinstance(entry, TrialEntry):
            return sealed_traces(ledger, entry, options.selection)
        return contextlib.nullcontext([])

    def head() -> Iterator[str]:
        yield from map(printable, _render_trial(ledger, row, entry, options))

    def tail() -> Iterator[str]:
        if isinstance(entry, TrialEntry):
            yield from map(printable, _render_evidence(ledger, entry, is_full=options.full))

    if not options.as_json:
        show_traces(row.name, sources, options, head, tail)
    elif options.selection.is_all:
        document = _describe(row, entry, _find_remarks(ledger, row))
        document["failures"] = msgspec.to_builtins(_failures_of(ledger, row, entry))
        send(json.dumps(document, indent=2))
    else:
        view = View(options.selection, options.full)
        traces = describe_traces(row.name, sources, options, view)
        print_json({"thing": "sealed trial", "name": row.name, "seq": row.seq, "traces": traces})
        warn_if_empty(row.name, view)


def _find_remarks(ledger: LedgerReader, row: TrialRow) -> list[AnyEntry | Withheld]:
    return [remark.entry for remark in list_remarks(ledger, row.record)]


def _send_evidence(ledger: LedgerReader, row: TrialRow, entry: TrialEntry, path: str) -> None:
    """Print a file's bytes, after all of them were checked."""
    found = next((file for file in entry.evidence if file.path == path), None)
    if found is None:
        raise InputError(
            f"{row.name}: has no evidence {path[:200]!r}; `proctor show {row.seq}` lists it"
        )
    ledger.artifacts.check(found.sha256, found.size)
    ledger.artifacts.copy(found.sha256, cast(Any, SentBytes()))


def _describe(
    row: TrialRow, entry: AnyEntry | Withheld, remarks: list[AnyEntry | Withheld]
) -> dict[str, object]:
    document: dict[str, object] = {"thing": "sealed trial", **row.public()}
    document["record_sha256"] = document.pop("record")
    document["entry"] = _builtins(entry)
    document["remarks"] = [_builtins(remark) for remark in remarks]
    return document


def _builtins(entry: AnyEntry | Withheld) -> object:
    return msgspec.json.decode(msgspec.json.encode(entry))


def _render_trial(
    ledger: LedgerReader,
    row: TrialRow,
    entry: AnyEntry | Withheld,
    options: ShowOptions,
) -> Iterator[str]:
    failures = _failures_of(ledger, row, entry)
    yield from render_failures(failures, lambda f: f"proctor show {row.seq} --evidence {f}")
    yield f"{row.trial_id}, {row.status}, of experiment {row.experiment_id}"
    yield f"  entry        {row.seq}"
    yield f"  sha256       {row.record}"
    if isinstance(entry, TrialEntry):
        longest = None if options.full else LONGEST
        fields = _fields(row, entry)
        yield from (f"  {label:<{LABEL}}  {cut_line(text, longest)}" for label, text in fields)
        yield from (f"  not complete: {cut_line(why, longest)}" for why in _explain(row, entry))
        for finding in entry.findings:
            code, message = str(finding.get("code")), str(finding.get("message"))
            yield f"  finding  {level_of(code)}  {code}: {cut_line(message, longest)}"
        yield from render_summary(_changed(ledger, row, entry))
    for remark in _find_remarks(ledger, row):
        yield f"  {_render_remark(remark)}"


def _explain(row: TrialRow, entry: TrialEntry) -> list[str]:
    """Why the trial is diagnostic, if it is."""
    if msgspec.json.decode(entry.record).get("completeness") == "complete":
        return []
    # Records are slow to import, and only a partial one has to be explained.
    rules = importlib.import_module("proctor.record.rules")
    reader = importlib.import_module("proctor.record.read")
    loaded = reader.parse_record(bytes(entry.record), row.name, salvage=True)
    explained: list[str] = rules.explain_partial(loaded.record)
    return explained


def _failures_of(ledger: LedgerReader, row: TrialRow, entry: AnyEntry | Withheld) -> TrialFailures:
    if not isinstance(entry, TrialEntry):
        return TrialFailures()
    changed = _changed(ledger, row, entry)
    trial = TracedTrial(name=row.name, files=tuple(changed.files), open_file=changed.open_file)
    return read_failures(trial, row.reward)


def _changed(ledger: LedgerReader, row: TrialRow, entry: TrialEntry) -> ChangedTrial:
    sealed = {file.path: file for file in entry.evidence}
    gone = {path for path, file in sealed.items() if not ledger.artifacts.holds(file.sha256)}
    return ChangedTrial(
        name=row.name,
        files=[path for path in sealed if path not in gone],
        open_file=lambda name: unpacked(ledger.artifacts, sealed[name]),
        findings=entry.findings,
        reward=row.reward,
        gone=gone,
    )


def _fields(row: TrialRow, entry: TrialEntry) -> Iterator[tuple[str, str]]:
    yield "sealed at", entry.at
    record = msgspec.json.decode(entry.record)
    # The certificate decides, as in lists and scores.
    record["evaluation"]["reward"] = row.reward
    yield from render_record_fields(
        record,
        dataset=row.dataset_id,
        outcome=outcome_of(row),
        reason=row.reason_code if row.reward is None else None,
        cost_basis=entry.cost_basis,
    )
    if entry.score is not None:
        yield "scored by", entry.score.profile
    if entry.slot is not None:
        yield "slot", f"attempt {entry.slot.attempt} at {entry.slot.task}"
    if entry.source is not None:
        yield "source", f"{entry.source.kind} {entry.source.name}"


def _render_evidence(ledger: LedgerReader, entry: TrialEntry, *, is_full: bool) -> Iterator[str]:
    shown = entry.evidence if is_full else entry.evidence[:_MOST_FILES]
    width = max((len(render_size(file.size)) for file in shown), default=0)
    for file in shown:
        gone = "" if ledger.artifacts.holds(file.sha256) else "  (not here)"
        yield f"  evidence  {_render_file(file, width)}{gone}"
    if left := len(entry.evidence) - len(shown):
        yield f"  evidence  … {left:,} more files; --full lists them"


def _render_file(file: EvidenceFile, width: int) -> str:
    return f"{file.sha256[:16]}…  {render_size(file.size):>{width}}  {file.path}"


def _render_remark(remark: AnyEntry | Withheld) -> str:
    match remark:
        case ReviewEntry():
            note = f": {remark.note}" if remark.note else ""
            return _dated(remark, f"review  {remark.verdict} by {remark.reviewer}{note}")
        case SupersedeEntry():
            other, subject = remark.by.name, remark.subject.name
            why = f"({remark.cause}) by {remark.author}: {remark.reason}"
            return _dated(remark, f"superseded  {other} replaces {subject} {why}")
        case RescoreEntry():
            why = f"by {remark.author}: {remark.reason}"
            return _dated(remark, f"rescored  {remark.score.profile} {why}")
        case WithholdEntry():
            what = "its bytes" if remark.entry is not None else "evidence"
            return _dated(remark, f"withheld  {what} by {remark.author}: {remark.reason}")
        case _:
            return f"[entry {remark.seq}]  withheld"


def _dated(entry: AnyEntry, text: str) -> str:
    return f"[entry {entry.seq}, {entry.at[:19]}Z]  {cut_line(text, LONGEST)}"


def _show_entry(ledger: LedgerReader, seq: int, options: ShowOptions) -> None:
    line = ledger.line(seq)
    entry = ledger.entry(seq)
    if options.evidence is not None:
        raise click.UsageError("--evidence cannot be used with an entry that is not a trial")
    if options.raw:
        send_bytes(line)
        return
    document = _builtins(entry)
    if options.as_json:
        send(json.dumps({"thing": "entry", "entry": document}, indent=2))
        return
    kind = "withheld" if isinstance(entry, Withheld) else entry.kind
    send(f"entry {seq}, {kind}")
    for key, value in cast("dict[str, object]", document).items():
        if key not in ("seq", "kind"):
            text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
            send(printable(f"  {key:<11}  {cut_line(text, None if options.full else LONGEST)}"))
