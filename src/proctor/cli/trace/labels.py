"""Labels of the trials that `proctor trace classify` selects, and their statistics."""

from collections import ChainMap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from proctor.errors import DamageError, TraceError
from proctor.traces.entry import Entry
from proctor.traces.label_rules import Classifier
from proctor.traces.labels import LABELS, Label, count_labels, find_dominant, find_shares
from proctor.traces.trace import TraceReading
from proctor.traces.traced_trial import FoundTrace, TracedTrial, opened_traces

MOST_ACTION: Final = 200
"""Characters kept of a turn's action."""


class LabelledTurn(msgspec.Struct, frozen=True, kw_only=True):
    """One turn with its label."""

    part: str
    """The part of a trial with several steps; "" for the trial itself."""
    step: int
    label: str | None
    """Null: a judge gave none."""
    confidence: float | None
    cue: str
    """What decided; for a turn without a label, why it has none."""
    action: str
    """The beginning of its first command, else of its text."""


@dataclass(frozen=True, slots=True)
class Part:
    """One trace of a trial, labelled by the rules."""

    name: str
    labels: tuple[Label, ...]
    actions: Mapping[int, str]
    """The action of each turn, by step."""


@dataclass(frozen=True, slots=True)
class LabelledTrial:
    """A trial with the labels of its turns."""

    trial: TracedTrial
    parts: tuple[Part, ...]
    sources: tuple[str, ...]
    """The files that were read, with their kinds."""
    passed_over: tuple[str, ...] = ()
    problem: str | None = None
    """Why there are no labels."""
    unlabelled: Mapping[tuple[str, int], str] = field(default_factory=dict)

    @property
    def turns(self) -> Iterator[LabelledTurn]:
        """The turns in order, including those without a label."""
        return (turn for part in self.parts for turn in _turns_of(part, self.unlabelled))

    @property
    def labels(self) -> list[Label]:
        """All labels in order."""
        return [label for part in self.parts for label in part.labels]


def _turns_of(part: Part, unlabelled: Mapping[tuple[str, int], str]) -> Iterator[LabelledTurn]:
    found: list[tuple[int, str | None, float | None, str]] = [
        (each.step, each.label, each.confidence, each.cue) for each in part.labels
    ]
    without = [(step, why) for (name, step), why in unlabelled.items() if name == part.name]
    if without:
        found += [(step, None, None, why) for step, why in without]
        found.sort(key=lambda turn: turn[0])
    for step, label, confidence, cue in found:
        yield LabelledTurn(
            part=part.name,
            step=step,
            label=label,
            confidence=confidence,
            cue=cue,
            action=part.actions.get(step, ""),
        )


def label_trial(trial: TracedTrial) -> LabelledTrial:
    """Label a trial by the rules; a trial without a usable trace has a `problem` instead."""
    try:
        with opened_traces(trial) as traces:
            if not traces:
                return LabelledTrial(trial, (), (), problem=trial.problem or _NO_TRACE)
            parts = tuple(_label_part(trace) for trace in traces)
            passed_over = tuple(why for trace in traces for why in trace.passed_over)
            sources = tuple(f"{trace.kind} {trace.name}" for trace in traces)
            return LabelledTrial(trial, parts, sources, passed_over)
    except (TraceError, DamageError) as error:
        return LabelledTrial(trial, (), (), problem=str(error))


_NO_TRACE: Final = "no trace: no trajectory, conversation or ATIF file with a turn"


def _label_part(trace: FoundTrace) -> Part:
    classifier, actions = Classifier(), _Actions()
    for entry in TraceReading(trace.path, trace.kind).entries():
        classifier.add(entry)
        actions.add(entry)
    return Part(trace.part, classifier.finish(), actions.found)


class _Actions:
    """The action of each turn on one line: its first command or call, else its first words."""

    def __init__(self) -> None:
        self._called: dict[int, str] = {}
        # Only for turns without a call: there may be a million of them.
        self._said: dict[int, str] = {}

    @property
    def found(self) -> Mapping[int, str]:
        """Actions by step."""
        return ChainMap(self._called, self._said)

    def add(self, entry: Entry) -> None:
        if entry.step in self._called:
            return
        if entry.role == "tool_call":
            did = entry.command or _brief(entry.arguments or {})
            self._called[entry.step] = f"{entry.tool_name or 'tool'}: {did[:MOST_ACTION]}"
            self._said.pop(entry.step, None)
        elif entry.role == "assistant" and entry.content:
            self._said.setdefault(entry.step, entry.content[:MOST_ACTION].lstrip())


def _brief(arguments: Mapping[str, Any]) -> str:
    shown = (f"{key}={str(value)[:MOST_ACTION]}" for key, value in list(arguments.items())[:5])
    return " ".join(shown)


class TrialBehaviour(msgspec.Struct, frozen=True, kw_only=True):
    """The labels of one trial, and what of them there is."""

    trial: str
    task: str | None
    reward: float | None
    """Null: not scored, which is not 0."""
    turns: int
    """Turns that have a label."""
    counts: dict[str, int]
    shares: dict[str, float] | None
    dominant: str | None
    """The most frequent label; of equals, the first in order."""
    sources: tuple[str, ...]
    passed_over: tuple[str, ...]
    problem: str | None
    labels: tuple[LabelledTurn, ...]


class Behaviour(msgspec.Struct, frozen=True, kw_only=True):
    """The labels of many trials together."""

    trials: int
    labelled: int
    """Trials with at least one label."""
    turns: int
    counts: dict[str, int]
    shares: dict[str, float] | None
    """Share of all turns: a long trial weighs more."""
    dominant: dict[str, int]
    """How many trials each label dominates."""


def describe_trial(labelled: LabelledTrial) -> TrialBehaviour:
    """Count the labels of a trial."""
    record = labelled.trial.record
    counts = count_labels(label.label for label in labelled.labels)
    return TrialBehaviour(
        trial=labelled.trial.name,
        task=record.task.task_id if record else None,
        reward=record.evaluation.reward if record else None,
        turns=sum(counts.values()),
        counts=counts,
        shares=find_shares(counts),
        dominant=find_dominant(counts),
        sources=labelled.sources,
        passed_over=labelled.passed_over,
        problem=labelled.problem,
        labels=tuple(labelled.turns),
    )


def describe_all(trials: Sequence[TrialBehaviour]) -> Behaviour:
    """Count the labels of all trials together."""
    counts = {label: sum(trial.counts[label] for trial in trials) for label in LABELS}
    dominant = [trial.dominant for trial in trials]
    return Behaviour(
        trials=len(trials),
        labelled=sum(trial.turns > 0 for trial in trials),
        turns=sum(counts.values()),
        counts=counts,
        shares=find_shares(counts),
        dominant={label: dominant.count(label) for label in LABELS},
    )
