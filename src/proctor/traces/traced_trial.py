"""A trial and its traces: which of its files they are, and in which order.

The trajectory goes first, else the conversation, else the ATIF file, else what the agent's commands
printed. What the harness wrote goes before what lies among the artifacts, which the agent can write
itself. A file with nothing usable
in it does not hide the next one; files passed over are named with the reason.

A trial of several steps has one trace a step, in the order in which harbor's result.json lists
them: their directories are listed by name, and `three` was not run before `two`. A trial that was
killed has no result and keeps the order of names.
"""

import contextlib
import importlib
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

import msgspec

from proctor.errors import DamageError, InputError, TraceError
from proctor.files import read_small
from proctor.traces.conversation import read_turns
from proctor.traces.entry import MODEL_TRACE, OUTPUT_FILE, TraceKind
from proctor.traces.trajectory import has_entries
from proctor.traces.turn import Turn

if TYPE_CHECKING:
    # Records are models of pydantic, which commands that only list and show need not load.
    from proctor.record.model import TrialRecord

_NAMES = (
    (TraceKind.TRAJECTORY, "trajectory.jsonl"),
    (TraceKind.CONVERSATION, "conversation.jsonl"),
    (TraceKind.ATIF, "trajectory.json"),
)
_LAST = (
    (TraceKind.TRAJECTORY, f"agent/{MODEL_TRACE}"),
    (TraceKind.OUTPUT, f"agent/{OUTPUT_FILE}"),
)
"""Made by the runner: an agent's own trace, in any directory, is preferred."""
_KINDS = [kind for kind, _ in _NAMES]
_FOLDERS = ("agent", "", "artifacts")
"""Where traces lie in a trial or a step of one, the preferred first; "" is the place itself."""
_STEPS = "steps"


@dataclass(frozen=True, slots=True)
class Part:
    """A trial, or one step of a trial of several."""

    name: str
    """The step of a trial of several; "" for the trial itself."""
    candidates: list[tuple[TraceKind, str]]
    """Files that are there, the preferred first."""


@dataclass(frozen=True, slots=True)
class Named:
    """The names of a trial's traces in its record."""

    trajectory: str | None = None
    conversation: str | None = None

    def candidates(self) -> list[tuple[TraceKind, str]]:
        """Both with their kinds."""
        named = []
        if self.trajectory:
            named.append((find_kind_by_name(self.trajectory), self.trajectory))
        if self.conversation:
            named.append((TraceKind.CONVERSATION, self.conversation))
        return named


def find_kind_by_name(trajectory: str) -> TraceKind:
    """The kind of a trace that a record calls its trajectory."""
    if PurePosixPath(trajectory).name == OUTPUT_FILE:
        return TraceKind.OUTPUT
    return TraceKind.TRAJECTORY if trajectory.endswith(".jsonl") else TraceKind.ATIF


def list_parts(files: Sequence[str], named: Named) -> list[Part]:
    """The parts of a trial, as its files are listed; only the trial itself if it can be."""
    there = set(files)
    whole = Part("", [each for each in _list_candidates(named, "") if each[1] in there])
    if whole.candidates:
        return [whole]
    steps = dict.fromkeys(name.split("/")[1] for name in files if _is_in_step(name))
    return [
        Part(
            step,
            [each for each in _list_candidates(Named(), f"{_STEPS}/{step}") if each[1] in there],
        )
        for step in steps
    ]


def _is_in_step(name: str) -> bool:
    return name.startswith(f"{_STEPS}/") and name.count("/") > 1


def _list_candidates(named: Named, place: str) -> list[tuple[TraceKind, str]]:
    """The names looked for: the harness's files by kind, then the same among the artifacts."""
    own, artifacts = [
        [
            (kind, str(PurePosixPath(place, folder, name)))
            for kind, name in _NAMES
            for folder in folders
        ]
        for folders in (_FOLDERS[:-1], _FOLDERS[-1:])
    ]
    # Sorting is stable: files named by the record stay before the usual names.
    by_record = [each for each in named.candidates() if each[0] is not TraceKind.OUTPUT]
    own = sorted([*by_record, *own], key=lambda each: _KINDS.index(each[0]))
    last = [(kind, str(PurePosixPath(place, name))) for kind, name in _LAST]
    return list(dict.fromkeys([*own, *artifacts, *last]))


type Opened = contextlib.AbstractContextManager[str]
"""Gives the path under which a file of the trial can be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundTrace:
    """One trace of a trial, readable as long as it is open."""

    part: str
    """The step of a trial of several; "" for the trial itself."""
    kind: TraceKind
    name: str
    """Which of the trial's files it is."""
    path: str
    """Where it can be read now."""
    passed_over: tuple[str, ...]
    """Which files went before it and were not used, and why."""


def open_parts(
    parts: Iterable[Part], open_file: Callable[[str], Opened], stack: contextlib.ExitStack
) -> Iterator[FoundTrace]:
    """The trace of each part that has one; the stack closes their files."""
    for part in parts:
        found = _find_usable(part, open_file, stack)
        if found is not None:
            yield found


def _find_usable(
    part: Part, open_file: Callable[[str], Opened], stack: contextlib.ExitStack
) -> FoundTrace | None:
    passed_over: list[str] = []
    for kind, name in part.candidates:
        path = stack.enter_context(open_file(name))
        try:
            usable = _is_usable(kind, path)
        except TraceError as error:
            passed_over.append(str(error).replace(path, name))
            continue
        if usable:
            return FoundTrace(
                part=part.name, kind=kind, name=name, path=path, passed_over=tuple(passed_over)
            )
        passed_over.append(f"{name}: nothing usable in it")
    return None


def _is_usable(kind: TraceKind, path: str) -> bool:
    """Whether there is anything in a file; of lines, no more is read than shows it."""
    match kind:
        case TraceKind.TRAJECTORY | TraceKind.OUTPUT:
            return has_entries(path)
        case TraceKind.CONVERSATION:
            return any(isinstance(item, Turn) for item in read_turns(path, salvage=True))
        case TraceKind.ATIF:
            # What reads ATIF is slow to load, and most trials have none.
            loader = importlib.import_module("proctor.traces.trace")
            return bool(loader.load_trace_file(path, kind).is_usable)


_RESULT = "result.json"


class _Step(msgspec.Struct, frozen=True):
    step_name: str


class _Result(msgspec.Struct, frozen=True):
    step_results: list[_Step] | None = None


def order_parts(
    parts: list[Part], files: Collection[str], open_file: Callable[[str], Opened]
) -> list[Part]:
    """Parts in the order they were run; those that no result names come last, as they were."""
    if len(parts) < 2 or _RESULT not in files:
        return parts
    places = {name: place for place, name in reversed(list(enumerate(_list_steps(open_file))))}
    return sorted(parts, key=lambda part: places.get(part.name, len(places)))


def _list_steps(open_file: Callable[[str], Opened]) -> list[str]:
    # A result that cannot be read is reported by whatever reads it for its own sake.
    with (
        contextlib.suppress(OSError, InputError, DamageError, msgspec.MsgspecError, RecursionError),
        open_file(_RESULT) as path,
    ):
        found = msgspec.json.decode(read_small(path), type=_Result)
        return [step.step_name for step in found.step_results or ()]
    return []


@dataclass(frozen=True, slots=True, kw_only=True)
class TracedTrial:
    """A trial, and how to get at its files."""

    name: str
    """EXPERIMENT/TRIAL of a sealed trial, else the path that leads to it."""
    files: tuple[str, ...]
    """All its files, relative and with slashes; of a lone trace, the one."""
    open_file: Callable[[str], Opened]
    """Makes one of them readable for a while."""
    record: "TrialRecord | None" = None
    """Null for a lone trace, and where `problem` explains why."""
    problem: str | None = None
    """Why it has no record."""
    reason_code: str | None = None
    """Why it has no score, from the closed set."""
    findings: tuple[dict[str, Any], ...] = ()
    """Its integrity findings."""
    dataset: str | None = None
    """The dataset on record, else the one that harbor's group names."""
    seq: int | None = None
    """Its entry's place in the ledger."""
    lone: TraceKind | None = None
    """The kind of a lone trace."""
    status: str = ""
    """Its status, by which it may not count; empty if it was named, and so is meant."""


@contextlib.contextmanager
def opened_traces(trial: TracedTrial, *, with_output: bool = False) -> Iterator[list[FoundTrace]]:
    """The traces of a trial, the steps in their order; empty where it left none.

    `with_output`: what the agent's commands printed stands in for a trace. It has no steps.
    """
    with contextlib.ExitStack() as stack:
        parts = _find_parts(trial)
        if not with_output:
            parts = [
                replace(
                    part,
                    candidates=[one for one in part.candidates if one[0] is not TraceKind.OUTPUT],
                )
                for part in parts
            ]
        yield list(open_parts(parts, trial.open_file, stack))


def _find_parts(trial: TracedTrial) -> list[Part]:
    if trial.lone is not None:
        return [Part("", [(trial.lone, trial.files[0])])]
    named = Named()
    if trial.record is not None:
        outputs = trial.record.outputs
        named = Named(outputs.trajectory_path, outputs.conversation_path)
    return order_parts(list_parts(trial.files, named), trial.files, trial.open_file)
