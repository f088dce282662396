"""Import a directory of loose traces: one partial record per trace.

    any/depth/NAME.jsonl      a trajectory or a conversation, recognised by its content
    any/depth/NAME.json       an ATIF file

Files called trajectory.jsonl, conversation.jsonl and trajectory.json in one directory belong to one
run. Links are not followed, hidden names are skipped. Trajectories and conversations are read in
pieces, so they may have any length; an ATIF file is one document and is read whole. Reading is
lenient. What a trace does not contain is `unresolved`, and the trial has no score. Deterministic;
does not seal.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from pydantic import ValidationError

from proctor.audit.file_kind import TRACES, FileKind, find_file_kind
from proctor.errors import InputError, RecordError, TraceError
from proctor.exchange.harbor_trial import LONGEST_SAID
from proctor.exchange.intake import Offer
from proctor.harbor.documents import AgentReport
from proctor.harbor.record import (
    NO_MODEL,
    UNRESOLVED,
    make_evaluation,
)
from proctor.harbor.trial_cost import Reported, make_trial_cost
from proctor.ledger.entry import Source
from proctor.ledger.sealing import Submission
from proctor.record.document import render_refusal
from proctor.record.ids import check_id, make_id, shown_name
from proctor.record.model import (
    AgentReference,
    EnvironmentSnapshot,
    InputRecord,
    OutputRecord,
    TaskReference,
    TimingRecord,
    TrialRecord,
)
from proctor.record.read import render_record
from proctor.record.rules import check_dataset_id, check_record
from proctor.times import parse_utc
from proctor.traces.atif.carry import ATIF_KEY
from proctor.traces.atif.convert import to_entries
from proctor.traces.atif.model import UNKNOWN_AGENT, Atif
from proctor.traces.atif.read import load_atif
from proctor.traces.conversation import read_turns
from proctor.traces.entry import Entry, TraceKind
from proctor.traces.media import collect_media, places_beside
from proctor.traces.trajectory import read_chunks
from proctor.traces.turn import Turn


@dataclass(slots=True)
class TraceFacts:
    """What a trace contains about its run."""

    said: dict[str, str] = field(default_factory=dict)
    """The first message of each role."""
    models: dict[str, None] = field(default_factory=dict)
    """Models that answered, in order."""
    began: datetime | None = None
    ended: datetime | None = None
    agent: str | None = None
    agent_version: str | None = None
    reported: AgentReport | None = None
    """Total tokens and cost, if the trace has them."""
    showing: list[tuple[int, Entry]] = field(default_factory=list)
    """Entries with media, with their line numbers."""
    is_empty: bool = True

    def take_entry(self, line: int, entry: Entry) -> None:
        """Add one entry of a trajectory."""
        self.is_empty = False
        self._hear(entry.role, entry.content)
        self._date(entry.timestamp)
        if entry.media:
            self.showing.append((line, entry))
        carried = entry.metadata.get(ATIF_KEY) if entry.metadata else None
        self._name_model(carried.get("model_name") if isinstance(carried, dict) else None)

    def take_turn(self, turn: Turn) -> None:
        """Add one turn of a conversation."""
        self.is_empty = False
        self._hear(turn.role, turn.text)
        self._date(turn.timestamp)
        self._name_model(turn.rest.get("model"))

    def take_atif(self, atif: Atif) -> None:
        """Add a whole ATIF document."""
        entries, _ = to_entries(atif)
        for place, entry in enumerate(entries, 1):
            self.take_entry(place, entry)
        for step in atif.steps:
            self._name_model(step.model_name)
            self._date(step.timestamp)
        self._name_model(None if self.models else atif.agent.model_name)
        if atif.agent != UNKNOWN_AGENT:
            self.agent, self.agent_version = atif.agent.name, atif.agent.version
        sums = atif.final_metrics
        if sums is not None:
            self.reported = AgentReport(
                n_input_tokens=sums.total_prompt_tokens,
                n_cache_tokens=sums.total_cached_tokens,
                n_output_tokens=sums.total_completion_tokens,
                cost_usd=sums.total_cost_usd,
            )

    def date_header(self, timestamp: object) -> None:
        """Add the time at which a trajectory's writer was opened."""
        self._date(timestamp if isinstance(timestamp, str) else None)

    def _hear(self, role: str, text: str | None) -> None:
        if text and role not in self.said and text.strip() and len(text) <= LONGEST_SAID:
            self.said[role] = text

    def _name_model(self, name: object) -> None:
        if isinstance(name, str) and name.strip():
            self.models[name] = None

    def _date(self, written: str | None) -> None:
        moment = parse_utc(written)
        if moment is not None:
            self.began = min(self.began or moment, moment)
            self.ended = max(self.ended or moment, moment)


def load_facts(path: Path, kind: TraceKind) -> TraceFacts:
    """Read the facts of one file.

    Raises:
        TraceError: it cannot be read, or nothing in it can be used.
    """
    facts = TraceFacts()
    match kind:
        case TraceKind.TRAJECTORY | TraceKind.OUTPUT:
            _take_trajectory(facts, str(path))
        case TraceKind.CONVERSATION:
            _take_conversation(facts, str(path))
        case TraceKind.ATIF:
            facts.take_atif(load_atif(path, salvage=True).atif)
    if facts.is_empty:
        raise TraceError(f"{path}: a {kind} with nothing usable in it")
    return facts


def _take_trajectory(facts: TraceFacts, path: str) -> None:
    for chunk in read_chunks(path, salvage=True):
        for header in chunk.headers:
            facts.date_header(header.timestamp)
        for line, entry in zip(chunk.lines, chunk.entries, strict=True):
            facts.take_entry(line, entry)


def _take_conversation(facts: TraceFacts, path: str) -> None:
    for item in read_turns(path, salvage=True):
        if isinstance(item, Turn):
            facts.take_turn(item)


# Stored in records, so it stays as it is.
NOT_SCORED = "not scored: a trace tells no reward"
_SUFFIXES = (".jsonl", ".json")
# File names that traces of one run have, the preferred first.
_TOGETHER = ("trajectory.jsonl", "conversation.jsonl", "trajectory.json")


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceOptions:
    """Information about the runs that their traces do not contain."""

    experiment: str | None = None
    """None: the directory's own name."""
    task: str | None = None
    dataset_id: str | None = None
    model: str | None = None
    agent: str | None = None
    when: datetime | None = None
    """Time of runs whose traces have no time."""


@dataclass(frozen=True, slots=True)
class _Found:
    """The traces of one run."""

    path: Path
    kind: TraceKind
    others: tuple[tuple[TraceKind, str], ...] = ()
    """Further traces of the same run, in the same directory."""


@dataclass(frozen=True, slots=True)
class FoundTraces:
    """The traces found in a directory."""

    offers: list[Offer]
    n_others: int
    """JSON files that are not traces."""


def find_traces(root: Path, options: TraceOptions) -> FoundTraces:
    """Find every trace below a directory, sorted by path.

    Raises:
        InputError: the directory does not exist, or has no traces.
        RecordError: a name is not a valid id.
    """
    if options.experiment is not None:
        check_id(options.experiment, "experiment")
    if options.dataset_id is not None:
        check_dataset_id(options.dataset_id)
    if not root.is_dir():
        what = "this is a file" if os.path.lexists(root) else "no such directory"
        raise InputError(f"{root}: {what}; expected a directory of traces")
    experiment = options.experiment or make_id(shown_name(root.resolve().name))
    found: list[_Found] = []
    closed: list[OSError] = []
    n_others = 0
    for folder, names in _walk(root, closed):
        traces, others = _sniff(folder, names)
        found += _group(folder, traces)
        n_others += others
    if not found and not closed:
        raise InputError(f"{root}: no trace in it; expected trajectories, conversations or ATIF")
    offers = [
        Offer(shown_name(str(each.path)), partial(submit_trace, root, each, experiment, options))
        for each in found
    ]
    offers += [Offer(shown_name(str(each.filename)), partial(_refuse, each)) for each in closed]
    return FoundTraces(offers, n_others)


def _refuse(error: OSError) -> Submission:
    raise TraceError(f"{error.filename}: cannot be read: {error.strerror}") from error


def _walk(root: Path, closed: list[OSError]) -> Iterator[tuple[Path, list[str]]]:
    """The files of every directory; unreadable directories are added to `closed`."""
    for folder, folders, names in os.walk(root, onerror=closed.append):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        yield (
            Path(folder),
            sorted(name for name in names if name.endswith(_SUFFIXES) and name[0] != "."),
        )


def _sniff(folder: Path, names: list[str]) -> tuple[dict[str, TraceKind], int]:
    """The traces among the files of a directory, and the number of other files."""
    traces: dict[str, TraceKind] = {}
    for name in names:
        path = folder / name
        if path.is_symlink() or not path.is_file():
            continue
        kind = _find_kind(path)
        if kind is not None:
            traces[name] = kind
    return traces, len(names) - len(traces)


def _find_kind(path: Path) -> TraceKind | None:
    try:
        thing = find_file_kind(str(path))
    except InputError:
        # Treat it as a trace, so that reading it reports the error.
        if os.access(path, os.R_OK):
            return None
        return TraceKind.ATIF if path.suffix == ".json" else TraceKind.TRAJECTORY
    # What commands printed is no trace of an agent to import.
    return TraceKind(str(thing)) if thing in TRACES - {FileKind.OUTPUT} else None


def _group(folder: Path, traces: dict[str, TraceKind]) -> Iterator[_Found]:
    """Group traces with the usual names to one run; every other trace is a run of its own."""
    usual = [name for name in _TOGETHER if name in traces]
    if usual:
        first, *rest = usual
        others = tuple((traces[name], name) for name in rest)
        yield _Found(folder / first, traces[first], others)
    for name, kind in traces.items():
        if name not in usual:
            yield _Found(folder / name, kind)


def submit_trace(root: Path, found: _Found, experiment: str, options: TraceOptions) -> Submission:
    """Read one trace and make its record.

    Raises:
        TraceError: it cannot be read, or its time is unknown.
        RecordError: it cannot be converted to a record.
    """
    path = found.path
    relative = path.relative_to(root).as_posix()
    if path.suffix == ".json" and found.kind is not TraceKind.ATIF:
        raise TraceError(f"{path}: a {found.kind}, whose name must end in .jsonl; rename it")
    facts = load_facts(path, found.kind)
    try:
        record, basis = _make_record(found, facts, (experiment, make_id(relative)), options)
    except ValidationError as error:
        raise RecordError(f"{path}: {render_refusal(error)}") from None
    check_record(record)
    files = [path.name, *(name for _, name in found.others), *_find_media(path, facts)]
    return Submission(
        record=render_record(record),
        where=shown_name(str(path)),
        root=path.parent,
        evidence=tuple(dict.fromkeys(files)),
        cost_basis=basis,
        source=Source(kind="traces", name=shown_name(f"{root.resolve().name}/{relative}")),
    )


def _find_media(path: Path, facts: TraceFacts) -> list[str]:
    """The media files of entries that are stored next to the trace."""
    folder = str(path.parent)
    shown = collect_media(facts.showing, f"{folder}/artifacts", places_beside(folder))
    places = [
        f"{each.beside or f'{folder}/artifacts'}/{each.path}"
        for each in shown.files
        if each.path is not None
    ]
    return sorted(place.removeprefix(f"{folder}/") for place in places)


def _make_record(
    found: _Found, facts: TraceFacts, ids: tuple[str, str], options: TraceOptions
) -> tuple[TrialRecord, str]:
    when = _find_time(found.path, facts, options)
    model = next(iter(facts.models)) if len(facts.models) == 1 else options.model or NO_MODEL
    reported = Reported((facts.reported,) if facts.reported else ())
    cost, basis = make_trial_cost(reported, None, None if model == NO_MODEL else model, when)
    record = TrialRecord(
        trial_id=ids[1],
        experiment_id=ids[0],
        dataset_id=options.dataset_id,
        timestamp=when,
        task=TaskReference(task_id=options.task or UNRESOLVED, task_revision=UNRESOLVED),
        agent=AgentReference(
            adapter=options.agent or facts.agent or UNRESOLVED,
            model=model,
            adapter_revision=facts.agent_version,
        ),
        environment=EnvironmentSnapshot(runtime_image=UNRESOLVED, compute_backend=UNRESOLVED),
        inputs=InputRecord(
            instruction=facts.said.get("user", UNRESOLVED), system_prompt=facts.said.get("system")
        ),
        outputs=_make_outputs(found),
        evaluation=make_evaluation(None, [], [NOT_SCORED]),
        timing=TimingRecord(
            total_seconds=(facts.ended - facts.began).total_seconds()
            if facts.began and facts.ended
            else 0.0
        ),
        cost=cost,
        completeness="partial",
    )
    return record, basis.kind


def _make_outputs(found: _Found) -> OutputRecord:
    all_of_it = [(found.kind, found.path.name), *found.others]
    spoken = [name for kind, name in all_of_it if kind is TraceKind.CONVERSATION]
    done = [name for kind, name in all_of_it if kind is not TraceKind.CONVERSATION]
    return OutputRecord(
        conversation_path=spoken[0] if spoken else None, trajectory_path=done[0] if done else None
    )


def _find_time(path: Path, facts: TraceFacts, options: TraceOptions) -> datetime:
    when = facts.ended or options.when
    if when is not None:
        return when
    written = datetime.fromtimestamp(path.stat().st_mtime, UTC).isoformat(timespec="seconds")
    raise TraceError(
        f"{path}: has no time of its run; pass --when TIME for such traces (the "
        f"file was last written at {written.replace('+00:00', 'Z')})"
    )
