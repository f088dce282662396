"""Everything known about one trial, sealed or in a job's directory, for its pages.

    with opened_trial(source, "nightly", "fix-bug__a1B2c3D") as known: …

A trial in a job is described by the entry that sealing it would make, without sealing it. What
cannot be read is described in `problems`, and the rest is still available. Only files that the
trial itself lists are opened, and links are not followed.
"""

import contextlib
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO, Literal
from urllib.parse import quote

from proctor.errors import (
    DamageError,
    InputError,
    MissingArtifactError,
    NotSealedError,
    NotThereError,
)
from proctor.exchange.harbor_trial import RecordRequest, make_record
from proctor.ledger.counting import ATTEMPT
from proctor.ledger.entry import TrialEntry, Withheld, WithholdEntry, decode_line
from proctor.ledger.keeping import open_files
from proctor.ledger.reader import LedgerReader
from proctor.ledger.review import Remark, list_remarks
from proctor.ledger.row import TrialRow
from proctor.ledger.sealing import Submission
from proctor.ledger.submission import (
    ATTEMPTS,
    TrialContext,
    has_record,
    list_attempts,
    list_files,
    submit_record,
    submit_trial,
)
from proctor.ledger.traced_trials import trace_entry
from proctor.ledger.tree import leaf_hash
from proctor.ledger.trial_index import TrialFilter
from proctor.ledger.withhold import list_withholdings
from proctor.record.ids import make_id
from proctor.record.model import TrialRecord
from proctor.record.read import parse_record, render_record
from proctor.report.in_jobs import entry_of
from proctor.sentence import count_of
from proctor.traces.traced_trial import TracedTrial
from proctor.traces.trial_summary import TrialSummary
from proctor.web.data_source import DataSource, find_row
from proctor.web.format import trial_path
from proctor.web.lru import LruCache

# Counting a long trace takes a second; reopening the page does not repeat it.
SUMMARIES = LruCache[TrialSummary](64)
_SUBMISSIONS = LruCache[Submission](64)
_MOST_NAMED = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialFile:
    """One file of a trial."""

    path: str
    """Relative to the trial, with slashes."""
    size: int | None
    """In bytes; None if unknown."""
    sha256: str | None = None
    """Of its sealed bytes; None in a job, where files are not hashed for a list."""
    changed_ns: int | None = None
    """Time of the last modification, in a job."""
    state: Literal["here", "withheld", "lost"] = "here"
    withheld_by: WithholdEntry | None = None

    @property
    def is_here(self) -> bool:
        """Whether it can be read."""
        return self.state == "here"


class Directory:
    """Files in a directory, of which only the listed ones are opened."""

    def __init__(self, root: Path, names: frozenset[str]) -> None:
        self._root = root
        self._names = names

    @contextlib.contextmanager
    def open(self, name: str) -> Iterator[str]:
        """The path of a listed regular file that is not behind a link."""
        self.open_binary(name).close()
        yield str(self._root / name)

    def open_binary(self, name: str) -> BinaryIO:
        """Open the file itself, safe against a later replacement.

        Raises:
            NotThereError: the trial does not list it.
            MissingArtifactError: it is gone, or is no longer a regular file.
        """
        if name not in self._names:
            raise NotThereError(f"the trial lists no file {name[:200]!r}")
        try:
            return next(open_files(self._root, [name], str(self._root)))[1]
        except NotSealedError as error:
            raise MissingArtifactError(f"{name}: the file cannot be read, or is gone") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialView:
    """One trial, and access to its files."""

    experiment: str
    trial: str
    traced: TracedTrial
    files: tuple[TrialFile, ...] = ()
    entry: TrialEntry | None = None
    """The entry as sealed, or as it would be; None if withheld or unreadable."""
    ledger: LedgerReader | None = None
    """None in a job."""
    is_sound: bool = True
    """Whether the ledger has no known damage."""
    row: TrialRow | None = None
    """None in a job."""
    leaf: str | None = None
    """Hash of its line in the tree."""
    remarks: tuple[Remark, ...] = ()
    """Later entries about it."""
    related: tuple[str, ...] = ()
    """Other attempts and reruns of the same trial."""
    problems: tuple[str, ...] = ()
    """Problems with it, one sentence each."""
    damage: str | None = None
    """Why its line is not what was sealed."""

    @property
    def record(self) -> TrialRecord | None:
        """Its record, if there is one that can be read."""
        return self.traced.record

    @property
    def is_withheld(self) -> bool:
        """Whether its record was withheld from the ledger."""
        return self.row is not None and self.entry is None and self.damage is None

    @property
    def key(self) -> Hashable:
        """Changes whenever one of its files does."""
        where = self.row.record if self.row else self.traced.name
        return where, tuple(
            (each.path, each.size, each.changed_ns, each.sha256, each.state) for each in self.files
        )

    def find_file(self, path: str) -> TrialFile | None:
        """The file of that name, if the trial lists it."""
        return next((file for file in self.files if file.path == path), None)

    def file_path(self, path: str) -> str:
        """The address of the page of one of its files; `?raw=1` gives the bytes."""
        return f"{trial_path(self.experiment, self.trial)}/files/{quote(path)}"


@contextlib.contextmanager
def opened_trial(
    source: DataSource, experiment: str, trial: str, *, files_only: bool = False
) -> Iterator[TrialView]:
    """Open one trial; its files are readable inside the context.

    `files_only` skips the record of a trial in a job, which would read its whole trace.
    """
    with source.opened() as ledger:
        if ledger is not None:
            is_sound = source.damage() is None
            row = find_row(ledger, experiment, trial)
            yield replace(_know_sealed(ledger, row), is_sound=is_sound)
        else:
            place = source.trial_directory(experiment, trial)
            known = _know_in_job(place, experiment, trial)
            yield known if files_only else _with_record(known, place)


def load_trial(row: TrialRow, ledger: LedgerReader | None) -> TrialView:
    """Load the trial of a row, sealed or in a directory."""
    if ledger is not None and row.place is None:
        return _know_sealed(ledger, row)
    place = Path(row.place or "")
    return _with_record(_know_in_job(place, row.experiment_id, row.trial_id), place)


def _know_sealed(ledger: LedgerReader, row: TrialRow) -> TrialView:
    indexed = ledger.index.entry(row.seq)
    nothing = Directory(Path(), frozenset())
    bare = TrialView(
        experiment=row.experiment_id,
        trial=row.trial_id,
        traced=TracedTrial(name=row.name, files=(), open_file=nothing.open, seq=row.seq),
        ledger=ledger,
        row=row,
        leaf=indexed.leaf.hex() if indexed else None,
        remarks=tuple(list_remarks(ledger, row.record)),
        related=_find_related(ledger, row.experiment_id, row.trial_id),
    )
    where = f"{ledger.where}: entry {row.seq}"
    try:
        line = ledger.line(row.seq)
        entry = decode_line(line, where)
        if isinstance(entry, Withheld):
            return bare
        if leaf_hash(line).hex() != bare.leaf or not isinstance(entry, TrialEntry):
            return replace(bare, damage=f"{where}: its line is not the one that was sealed")
        traced = trace_entry(ledger.artifacts, entry)
    except (DamageError, InputError) as error:
        return replace(bare, damage=str(error))
    return replace(bare, traced=traced, entry=entry, files=_list_sealed(ledger, entry))


def _list_sealed(ledger: LedgerReader, entry: TrialEntry) -> tuple[TrialFile, ...]:
    gone = {file.sha256 for file in entry.evidence if not ledger.artifacts.holds(file.sha256)}
    why = {sha256: each for each in (list_withholdings(ledger) if gone else ())
           for sha256 in each.artifacts if sha256 in gone}  # fmt: skip
    return tuple(
        TrialFile(
            path=file.path,
            size=file.size,
            sha256=file.sha256,
            state="here"
            if file.sha256 not in gone
            else "withheld"
            if file.sha256 in why
            else "lost",
            withheld_by=why.get(file.sha256),
        )
        for file in entry.evidence
    )


def _find_related(ledger: LedgerReader, experiment: str, trial: str) -> tuple[str, ...]:
    """The trial itself, its kept attempts and its reruns, starting from any of them."""
    base = _base_of(trial)
    own = ledger.index.trials(TrialFilter(experiment=experiment, trial=base))
    others = TrialFilter(experiment=experiment, trial_prefix=f"{base}.", first=100)
    found = sorted([*own, *ledger.index.trials(others)], key=lambda row: row.seq)
    names = (row.trial_id for row in found)
    return tuple(name for name in names if _base_of(name) == base and name != trial)


def _base_of(trial: str) -> str:
    for mark in (ATTEMPT, ".rerun-"):
        base, found, number = trial.rpartition(mark)
        if found and number.isdecimal():
            return base
    return trial


def _know_in_job(place: Path, experiment: str, trial: str) -> TrialView:
    try:
        names, refused = list_files(str(place))
        problems = [_describe_refused(refused)] if refused else []
    except NotSealedError as error:
        names, problems = [], [str(error)]
    return TrialView(
        experiment=experiment,
        trial=trial,
        traced=TracedTrial(
            name=str(place), files=tuple(names), open_file=Directory(place, frozenset(names)).open
        ),
        files=tuple(_look_at(place, name) for name in names),
        related=_find_related_places(place, trial),
        problems=tuple(problems),
    )


def _describe_refused(names: list[str]) -> str:
    shown = ", ".join(map(repr, names[:_MOST_NAMED])) + (", …" if len(names) > _MOST_NAMED else "")
    what = count_of(len(names), "file is", "files are")
    return f"{what} not shown: links, devices or names that are no text: {shown}"


def _look_at(place: Path, name: str) -> TrialFile:
    try:
        found = (place / name).lstat()
    except OSError:
        return TrialFile(path=name, size=None)
    return TrialFile(path=name, size=found.st_size, changed_ns=found.st_mtime_ns)


def _find_related_places(place: Path, trial: str) -> tuple[str, ...]:
    base, mark, _ = trial.rpartition(ATTEMPT)
    is_kept = bool(mark) and place.parent.name == ATTEMPTS
    whole, name = (place.parent.parent, base) if is_kept else (place, trial)
    try:
        kept = [f"{name}{ATTEMPT}{each.name}" for each in list_attempts(whole)]
    except InputError:
        return ()
    return tuple(each for each in [*kept, name] if each != trial)


def _with_record(known: TrialView, place: Path) -> TrialView:
    """Add what would be sealed of it; if that fails, the reason."""
    try:
        submission = _SUBMISSIONS.find_or_make(known.key, lambda: _submit(place, known.experiment))
        record = parse_record(submission.record, str(place), salvage=True).record
    except InputError as error:
        return replace(known, problems=(*known.problems, str(error)))
    code, findings = submission.reason_code, submission.findings
    traced = replace(known.traced, record=record, reason_code=code, findings=findings)
    return replace(known, traced=traced, entry=entry_of(submission))


def _submit(place: Path, experiment: str) -> Submission:
    if has_record(place):
        return submit_trial(place)
    record, basis = make_record(RecordRequest(trial=str(place), experiment=make_id(experiment)))
    return submit_record(render_record(record), place, TrialContext(cost_basis=basis.kind))
