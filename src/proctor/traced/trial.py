"""A trial with what is known of it, and the traces that it can be looked at by.

The trajectory goes first, else the conversation, else the ATIF file; a file with nothing usable in
it does not hide the next one. What the harness wrote goes before what lies among the artifacts,
which the agent can write itself. A trial of several steps has one trace a step.
"""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from proctor.errors import TraceError
from proctor.record.model import TrialRecord
from proctor.trajectory.conversation import read_turns
from proctor.trajectory.read import read_chunks
from proctor.trajectory.trace import TraceKind, load_trace_file
from proctor.trajectory.turn import Turn

_NAMES = (
    (TraceKind.TRAJECTORY, "trajectory.jsonl"),
    (TraceKind.CONVERSATION, "conversation.jsonl"),
    (TraceKind.ATIF, "trajectory.json"),
)
_KINDS = [kind for kind, _ in _NAMES]
_FOLDERS = ("agent", "", "artifacts")
"""Where traces lie in a trial or a step of one, the preferred first; "" is the place itself."""
_STEPS = "steps"

type Opened = contextlib.AbstractContextManager[str]
"""Gives the path under which a file of the trial can be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TracedTrial:
    """A trial, and how to get at its files."""

    name: str
    """EXPERIMENT/TRIAL of a sealed trial, else the path that leads to it."""
    files: tuple[str, ...]
    """All its files, relative and with slashes; of a lone trace, the one."""
    open_file: Callable[[str], Opened]
    """Makes one of them readable for a while."""
    record: TrialRecord | None = None
    """Null for a lone trace, and where `problem` says why there is none."""
    problem: str | None = None
    """Why no record could be made of it."""
    reason_code: str | None = None
    """Why it has no score, from the closed set."""
    findings: tuple[dict[str, Any], ...] = ()
    """What was found about its integrity."""
    seq: int | None = None
    """Its entry's place in the ledger."""
    lone: TraceKind | None = None
    """Of a lone trace: what it is, whatever its name."""


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


@contextlib.contextmanager
def opened_traces(trial: TracedTrial) -> Iterator[list[FoundTrace]]:
    """The traces of a trial, the steps in their order; empty where it left none.

    Raises:
        DamageError: sealed evidence is missing or altered.
    """
    with contextlib.ExitStack() as stack:
        parts = _find_parts(trial)
        yield [found for part in parts if (found := _find_usable(trial, part, stack)) is not None]


@dataclass(frozen=True, slots=True)
class _Part:
    name: str
    candidates: list[tuple[TraceKind, str]]


def _find_parts(trial: TracedTrial) -> list[_Part]:
    if trial.lone is not None:
        return [_Part("", [(trial.lone, trial.files[0])])]
    there = set(trial.files)
    whole = _Part("", [each for each in _list_candidates(trial, "") if each[1] in there])
    if whole.candidates:
        return [whole]
    steps = dict.fromkeys(name.split("/")[1] for name in trial.files if _is_in_step(name))
    return [
        _Part(
            step, [each for each in _list_candidates(None, f"{_STEPS}/{step}") if each[1] in there]
        )
        for step in steps
    ]


def _is_in_step(name: str) -> bool:
    return name.startswith(f"{_STEPS}/") and name.count("/") > 1


def _list_candidates(trial: TracedTrial | None, place: str) -> list[tuple[TraceKind, str]]:
    """What is looked for: the harness's files by kind, then the same among the artifacts."""
    named = [] if trial is None or trial.record is None else _find_named(trial.record)
    own, artifacts = [
        [
            (kind, str(PurePosixPath(place, folder, name)))
            for kind, name in _NAMES
            for folder in folders
        ]
        for folders in (_FOLDERS[:-1], _FOLDERS[-1:])
    ]
    # Sorting keeps the order of equals: what the record names goes before what is usual.
    own = sorted([*named, *own], key=lambda each: _KINDS.index(each[0]))
    return list(dict.fromkeys([*own, *artifacts]))


def _find_named(record: TrialRecord) -> list[tuple[TraceKind, str]]:
    """What the record itself calls its traces."""
    trajectory, conversation = record.outputs.trajectory_path, record.outputs.conversation_path
    named = []
    if trajectory:
        is_lines = trajectory.endswith(".jsonl")
        named.append((TraceKind.TRAJECTORY if is_lines else TraceKind.ATIF, trajectory))
    if conversation:
        named.append((TraceKind.CONVERSATION, conversation))
    return named


def _find_usable(trial: TracedTrial, part: _Part, stack: contextlib.ExitStack) -> FoundTrace | None:
    passed_over: list[str] = []
    for kind, name in part.candidates:
        path = stack.enter_context(trial.open_file(name))
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
        case TraceKind.TRAJECTORY:
            return any(chunk.entries for chunk in read_chunks(path, salvage=True))
        case TraceKind.CONVERSATION:
            return any(isinstance(item, Turn) for item in read_turns(path, salvage=True))
        case TraceKind.ATIF:
            return load_trace_file(path, kind).is_usable
