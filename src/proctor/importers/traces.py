"""A directory of loose traces, as trials to be sealed: one partial record a trace.

    any/depth/NAME.jsonl      a trajectory or a conversation, told by what is in it
    any/depth/NAME.json       an ATIF file

Files called trajectory.jsonl, conversation.jsonl and trajectory.json in one directory are of one
run. Links are not followed, hidden names are passed over. A trace says little: what it does not
tell is `unresolved`, and it has no score. Pure: the same files give the same trials. Nothing is
sealed here.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from pydantic import ValidationError

from proctor.audit.things import TRACES, find_thing
from proctor.errors import InputError, RecordError, TraceError
from proctor.harbor.evaluation import make_evaluation
from proctor.harbor.spending import NO_MODEL, Reported, make_trial_cost
from proctor.importers.intake import Offer
from proctor.importers.trace_told import Told, load_told
from proctor.importers.trial_inputs import UNRESOLVED
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
from proctor.trajectory.media import collect_media, places_beside
from proctor.trajectory.trace import TraceKind

NOT_SCORED = "not scored: a trace tells no reward"
_SUFFIXES = (".jsonl", ".json")
_TOGETHER = ("trajectory.jsonl", "conversation.jsonl", "trajectory.json")
"""Names of one run's traces, the preferred first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TracesAsked:
    """What is known of the runs that their traces do not say."""

    experiment: str | None = None
    """Where none is named, it is the directory's own name."""
    task: str | None = None
    dataset_id: str | None = None
    model: str | None = None
    agent: str | None = None
    when: datetime | None = None
    """When those ran that say no time."""


@dataclass(frozen=True, slots=True)
class _Found:
    """The traces of one run."""

    path: Path
    kind: TraceKind
    others: tuple[tuple[TraceKind, str], ...] = ()
    """Further traces of the same run, which lie beside it."""


@dataclass(frozen=True, slots=True)
class FoundTraces:
    """What is to be done about a directory."""

    offers: list[Offer]
    n_others: int
    """JSON files that are no traces."""


def find_traces(root: Path, asked: TracesAsked) -> FoundTraces:
    """Every trace below a directory, by its path.

    Raises:
        InputError: there is no such directory, or no trace in it.
        RecordError: a name breaks the rules.
    """
    if asked.experiment is not None:
        check_id(asked.experiment, "experiment")
    if asked.dataset_id is not None:
        check_dataset_id(asked.dataset_id)
    if not root.is_dir():
        what = "this is a file" if os.path.lexists(root) else "no such directory"
        raise InputError(f"{root}: {what}; expected a directory of traces")
    experiment = asked.experiment or make_id(shown_name(root.resolve().name))
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
        Offer(shown_name(str(each.path)), partial(submit_trace, root, each, experiment, asked))
        for each in found
    ]
    offers += [Offer(shown_name(str(each.filename)), partial(_refuse, each)) for each in closed]
    return FoundTraces(offers, n_others)


def _refuse(error: OSError) -> Submission:
    raise TraceError(f"{error.filename}: cannot be read: {error.strerror}") from error


def _walk(root: Path, closed: list[OSError]) -> Iterator[tuple[Path, list[str]]]:
    """The files of every directory; those that cannot be looked into go to `closed`."""
    for folder, folders, names in os.walk(root, onerror=closed.append):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        yield (
            Path(folder),
            sorted(name for name in names if name.endswith(_SUFFIXES) and name[0] != "."),
        )


def _sniff(folder: Path, names: list[str]) -> tuple[dict[str, TraceKind], int]:
    """The traces among the files of a directory, and how many others there are."""
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
        thing = find_thing(str(path))
    except InputError:
        # Whoever reads it says that it cannot be read.
        if os.access(path, os.R_OK):
            return None
        return TraceKind.ATIF if path.suffix == ".json" else TraceKind.TRAJECTORY
    return TraceKind(str(thing)) if thing in TRACES else None


def _group(folder: Path, traces: dict[str, TraceKind]) -> Iterator[_Found]:
    """Traces that have the usual names are of one run; every other is a run of its own."""
    usual = [name for name in _TOGETHER if name in traces]
    if usual:
        first, *rest = usual
        others = tuple((traces[name], name) for name in rest)
        yield _Found(folder / first, traces[first], others)
    for name, kind in traces.items():
        if name not in usual:
            yield _Found(folder / name, kind)


def submit_trace(root: Path, found: _Found, experiment: str, asked: TracesAsked) -> Submission:
    """One trace with its record.

    Raises:
        TraceError: it cannot be read, or nothing says when it ran.
        RecordError: no record can be made of it.
    """
    path = found.path
    relative = path.relative_to(root).as_posix()
    if path.suffix == ".json" and found.kind is not TraceKind.ATIF:
        raise TraceError(f"{path}: a {found.kind}, whose name must end in .jsonl; rename it")
    told = load_told(path, found.kind)
    try:
        record, basis = _make_record(found, told, (experiment, make_id(relative)), asked)
    except ValidationError as error:
        raise RecordError(f"{path}: {render_refusal(error)}") from None
    check_record(record)
    files = [path.name, *(name for _, name in found.others), *_find_media(path, told)]
    return Submission(
        record=render_record(record),
        where=shown_name(str(path)),
        root=path.parent,
        evidence=tuple(dict.fromkeys(files)),
        cost_basis=basis,
        source=Source(kind="traces", name=shown_name(f"{root.resolve().name}/{relative}")),
    )


def _find_media(path: Path, told: Told) -> list[str]:
    """The files that entries show, as far as they lie beside the trace."""
    folder = str(path.parent)
    shown = collect_media(told.showing, f"{folder}/artifacts", places_beside(folder))
    places = [
        f"{each.beside or f'{folder}/artifacts'}/{each.path}"
        for each in shown.files
        if each.path is not None
    ]
    return sorted(place.removeprefix(f"{folder}/") for place in places)


def _make_record(
    found: _Found, told: Told, ids: tuple[str, str], asked: TracesAsked
) -> tuple[TrialRecord, str]:
    when = _find_time(found.path, told, asked)
    model = next(iter(told.models)) if len(told.models) == 1 else asked.model or NO_MODEL
    reported = Reported((told.reported,) if told.reported else ())
    cost, basis = make_trial_cost(reported, None, model, when, [])
    record = TrialRecord(
        trial_id=ids[1],
        experiment_id=ids[0],
        dataset_id=asked.dataset_id,
        timestamp=when,
        task=TaskReference(task_id=asked.task or UNRESOLVED, task_revision=UNRESOLVED),
        agent=AgentReference(
            adapter=asked.agent or told.agent or UNRESOLVED,
            model=model,
            adapter_revision=told.agent_version,
        ),
        environment=EnvironmentSnapshot(runtime_image=UNRESOLVED, compute_backend=UNRESOLVED),
        inputs=InputRecord(
            instruction=told.said.get("user", UNRESOLVED), system_prompt=told.said.get("system")
        ),
        outputs=_make_outputs(found),
        evaluation=make_evaluation(None, [], [NOT_SCORED], []),
        timing=TimingRecord(total_seconds=_find_seconds(told)),
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


def _find_seconds(told: Told) -> float:
    return (told.ended - told.began).total_seconds() if told.began and told.ended else 0.0


def _find_time(path: Path, told: Told, asked: TracesAsked) -> datetime:
    when = told.ended or asked.when
    if when is not None:
        return when
    written = datetime.fromtimestamp(path.stat().st_mtime, UTC).isoformat(timespec="seconds")
    raise TraceError(
        f"{path}: nothing in it says when it ran; --when TIME says it for all such traces (the "
        f"file was last written at {written.replace('+00:00', 'Z')})"
    )
