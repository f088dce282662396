"""Which files of a trial can be its traces, the preferred first. Nothing is opened.

The trajectory goes first, else the conversation, else the ATIF file. What the harness wrote goes
before what lies among the artifacts, which the agent can write itself. A trial of several steps has
one trace a step.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from proctor.trajectory.kind import TraceKind

_NAMES = (
    (TraceKind.TRAJECTORY, "trajectory.jsonl"),
    (TraceKind.CONVERSATION, "conversation.jsonl"),
    (TraceKind.ATIF, "trajectory.json"),
)
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
    """What a record calls its traces."""

    trajectory: str | None = None
    conversation: str | None = None

    def candidates(self) -> list[tuple[TraceKind, str]]:
        """The same with what they are."""
        named = []
        if self.trajectory:
            is_lines = self.trajectory.endswith(".jsonl")
            named.append((TraceKind.TRAJECTORY if is_lines else TraceKind.ATIF, self.trajectory))
        if self.conversation:
            named.append((TraceKind.CONVERSATION, self.conversation))
        return named


def find_parts(files: Sequence[str], named: Named) -> list[Part]:
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
    """What is looked for: the harness's files by kind, then the same among the artifacts."""
    own, artifacts = [
        [
            (kind, str(PurePosixPath(place, folder, name)))
            for kind, name in _NAMES
            for folder in folders
        ]
        for folders in (_FOLDERS[:-1], _FOLDERS[-1:])
    ]
    # Sorting keeps the order of equals: what the record names goes before what is usual.
    own = sorted([*named.candidates(), *own], key=lambda each: _KINDS.index(each[0]))
    return list(dict.fromkeys([*own, *artifacts]))
