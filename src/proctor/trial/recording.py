"""<trial>/record.json while the trial runs: partial from the first moment, rewritten at each phase.

A record is put together from texts of its parts, so that a phase renders only what it changed; the
bytes are those of `render_record`. A killed runner leaves the record of its last phase.
"""

import asyncio
import os
import stat
from collections.abc import Callable, Hashable, Mapping
from datetime import datetime
from functools import lru_cache, partial

from pydantic_core import to_json

from proctor.harbor.trial_result import AgentInfo, TrialResult
from proctor.record.fields import Part
from proctor.record.ids import make_id
from proctor.record.model import AgentReference, OutputRecord, TrialRecord
from proctor.record.rules import check_record, find_missing
from proctor.traces.entry import TraceKind
from proctor.traces.trace import TRIAL_TRACES, Trace, find_trace
from proctor.traces.writer import Redactor
from proctor.trial.environment import Snapshot, Watched
from proctor.trial.plan import Plan
from proctor.trial.record import (
    describe_agent,
    find_seconds,
    find_system_prompt,
    find_times,
    make_agent,
    make_cost,
    make_environment,
    make_final_evaluation,
    make_inputs,
    make_outputs,
    make_task,
    make_timing,
    make_unfinished_evaluation,
)
from proctor.trial.swap import SwappedFile

LONGEST_TRACE = 128 << 20
"""Bytes of a trace that is read for its record: in memory it is three times as long, and an agent
that writes without end must not end the runner."""
_FIELDS = tuple(TrialRecord.model_fields)

type Content = Part | str | datetime | None
type Line = tuple[Content, str]
"""A field's value, and its text in the record."""


class Recording:
    """The record of one trial, and its file."""

    def __init__(self, plan: Plan, redactor: Redactor | None) -> None:
        self._plan = plan
        self._redactor = redactor
        self._lines: dict[str, Line] = {}
        self._snapshot: Snapshot | None = None
        self._agent_info: AgentInfo | None = None
        self._said: dict[str, Hashable] = {}
        """What the fields that attempts share were made from, beyond the plan."""
        self.file = SwappedFile(f"{plan.place}/record.json")
        """record.json."""

    def begin(self, result: TrialResult) -> None:
        """Begin the record of a trial; the first phase writes it."""
        plan = self._plan
        self._lines = plan.shared.once("record", lambda: _begin_lines(plan)).copy()
        self._set("trial_id", make_id(plan.config.trial_name))
        self._set("timestamp", result.started_at)

    def note_phase(self, result: TrialResult, phase: str, watched: Watched | None) -> None:
        """Write the record of a trial that is in this phase.

        Raises:
            OSError: it cannot be written.
        """
        if watched is not None:
            self._note_environment(watched)
        self._note_agent(result, None)
        self._lines["evaluation"] = _unfinished_line(phase)
        # Only its text: it is made anew, and checked, at the end.
        times = to_json(find_times(result), indent=2).decode().replace("\n", "\n  ")
        self._lines["timing"] = None, f'  "timing": {times}'
        self._write()

    def finish(
        self, result: TrialResult, watched: Watched | None, trace: Trace | None
    ) -> TrialRecord:
        """Write the record of a trial that has ended, complete where all its pins are there.

        Raises:
            OSError: it cannot be written.
            RecordError: what is known makes no record; the one of the last phase stays.
        """
        plan = self._plan
        agent = self._note_agent(result, trace)
        if trace is not None:
            make = partial(make_inputs, plan, trace)
            self._share("inputs", find_system_prompt(plan, trace), make)
        if watched is not None:
            self._note_environment(watched)
        artifacts = f"{plan.place}/artifacts"
        left = os.path.lexists(f"{artifacts}/manifest.json") or has_entries(artifacts)
        self._set("timestamp", result.finished_at or result.started_at)
        self._note_outputs(result, trace, has_artifacts=left)
        self._set("evaluation", make_final_evaluation(result))
        self._set("timing", make_timing(result))
        self._set("cost", make_cost(result, trace, agent.model))
        record = self._complete(result)
        self._write()
        return record

    def _note_environment(self, watched: Watched) -> None:
        """Where it runs, as far as the environment knows by now."""
        snapshot = watched.snapshot
        if snapshot is not self._snapshot and snapshot != self._snapshot:
            said = snapshot.runtime_image, snapshot.compute_backend, repr(snapshot.tool_versions)
            make = partial(make_environment, self._plan, watched)
            self._share("environment", said, make)
        self._snapshot = snapshot

    def _note_agent(self, result: TrialResult, trace: Trace | None) -> AgentReference:
        """Who sits the task, as far as it is known by now."""
        answered = trace.models[0] if trace is not None and len(trace.models) == 1 else None
        if answered is not None or result.agent_info is not self._agent_info:
            self._agent_info = result.agent_info
            said = describe_agent(self._plan, result, answered)
            make = partial(make_agent, self._plan, said)
            self._share("agent", said, make)
        agent = self._lines["agent"][0]
        assert isinstance(agent, AgentReference)  # noqa: S101 - it was put there above
        return agent

    def _note_outputs(
        self, result: TrialResult, trace: Trace | None, *, has_artifacts: bool
    ) -> None:
        make = partial(make_outputs, result, trace, self._plan.place, has_artifacts=has_artifacts)
        said = result.agent_result
        if trace is None and result.exception_info is None and said and said.is_empty():
            # The common case by far where nothing happens: nothing is said of it.
            was_verified = result.verifier is not None
            key = "nothing said", has_artifacts, was_verified
            self._lines["outputs"] = self._plan.shared.once(
                key, lambda: _make_line("outputs", make())
            )
        else:
            self._set("outputs", make())

    def _share(self, name: str, said: Hashable, make: Callable[[], Content]) -> None:
        """Set a field that attempts have in common as long as the same is said."""
        self._said[name] = said
        self._lines[name] = self._plan.shared.once((name, said), lambda: _make_line(name, make()))

    def _is_missing(self, record: TrialRecord) -> bool:
        """Whether something is missing that a complete record has."""
        said = ("missing", *self._said.items())
        return self._plan.shared.once(said, lambda: bool(find_missing(record)))

    def _complete(self, result: TrialResult) -> TrialRecord:
        """The record as a value, called complete where it is."""
        record = TrialRecord.model_validate(
            {name: content for name, (content, _) in self._lines.items()}
        )
        check_record(record)
        seconds = find_seconds(result.started_at, result.finished_at)
        if seconds is not None and not self._is_missing(record):
            self._set("completeness", "complete")
            record = record.model_copy(update={"completeness": "complete"})
        return record

    def _set(self, name: str, content: Content) -> None:
        self._lines[name] = _make_line(name, content)

    def render(self) -> bytes:
        """The bytes of the record as it stands."""
        lines = ",\n".join([line for _, line in self._lines.values()])
        text = f"{{\n{lines}\n}}"
        return (self._redactor.redact_text(text) if self._redactor else text).encode()

    def _write(self) -> None:
        self.file.write(self.render())


def _make_line(name: str, content: Content) -> Line:
    if isinstance(content, Part):
        # Raw line ends stand only between the lines of the text, never in it.
        text = content.model_dump_json(indent=2).replace("\n", "\n  ")
    else:
        text = to_json(content).decode()
    return content, f'  "{name}": {text}'


def _begin_lines(plan: Plan) -> dict[str, Line]:
    """Every field of a record before its trial has begun, in the order of the format."""
    known: dict[str, Content] = {
        "experiment_id": plan.record.experiment,
        "dataset_id": plan.record.dataset_id,
        "task": make_task(plan),
        "environment": make_environment(plan, None),
        "inputs": make_inputs(plan),
        "outputs": OutputRecord(),
        "adaptation": plan.record.adaptation,
        "completeness": "partial",
    }
    return {name: _make_line(name, known.get(name)) for name in _FIELDS}


@lru_cache(maxsize=64)
def _unfinished_line(phase: str) -> Line:
    return _make_line("evaluation", make_unfinished_evaluation(phase))


def has_entries(directory: str) -> bool:
    """Whether there is a directory with anything in it."""
    try:
        with os.scandir(directory) as entries:
            return next(entries, None) is not None
    except (FileNotFoundError, NotADirectoryError):
        return False


def find_traces(place: str) -> dict[str, int]:
    """The traces that a trial left, and how many bytes each has."""
    sizes = {name: _size_of(f"{place}/{name}") for _, name in TRIAL_TRACES}
    return {name: size for name, size in sizes.items() if size >= 0}


def find_overlong(traces: Mapping[str, int]) -> list[str]:
    """Those of the traces that are kept and not read."""
    return [name for name, size in traces.items() if size > LONGEST_TRACE]


async def load_trace(place: str, traces: Mapping[str, int]) -> Trace | None:
    """The trace of a trial that left these, with their sizes.

    Read beside the event loop: it may be long.
    """
    overlong = find_overlong(traces)
    candidates = [
        (kind, f"{place}/{name}")
        for kind, name in TRIAL_TRACES
        if name in traces and name not in overlong
    ]
    return await asyncio.to_thread(_load, candidates) if candidates else None


def _load(candidates: list[tuple[TraceKind, str]]) -> Trace | None:
    trace, _ = find_trace(candidates)
    return trace


def _size_of(path: str) -> int:
    """The bytes of a plain file; -1 for anything else."""
    # What came out of an environment is a stranger's: a link is not followed.
    try:
        found = os.lstat(path)
    except OSError:
        return -1
    return found.st_size if stat.S_ISREG(found.st_mode) else -1
