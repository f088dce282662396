"""<trial>/record.json while the trial runs: written at the start and rewritten at each phase.

If the runner is killed, the record of the last phase remains. This module makes the parts that the
runner knows, from the spec and the result; `proctor.harbor.record` builds the record itself, as for
imported trials.
"""

import asyncio
import contextlib
import ctypes
import os
import stat
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import PurePosixPath
from typing import Any, Final

import msgspec

from proctor import __version__
from proctor.errors import RecordError
from proctor.files import replace_file, write_all
from proctor.harbor.record import (
    NO_MODEL,
    NOT_CONFIGURATION,
    UNRESOLVED,
    Ending,
    RecordSource,
    build_record,
    complete_record,
    find_image,
    find_model,
    find_said,
    find_seconds,
    join_instructions,
    make_ending,
    make_timing,
    refer_files,
)
from proctor.harbor.trial_cost import TraceUse, count_trace, merge_uses
from proctor.harbor.trial_result import AgentInfo, TrialResult
from proctor.record.model import (
    AgentReference,
    EnvironmentSnapshot,
    InputRecord,
    TaskReference,
    TrialRecord,
)
from proctor.record.read import render_record
from proctor.record.rules import find_missing
from proctor.traces.entry import TraceKind
from proctor.traces.trace import TRIAL_TRACES, Trace, find_trace
from proctor.traces.writer import Redactor
from proctor.trial.environment import Snapshot, Watched
from proctor.trial.spec import TrialSpec
from proctor.trial.timeouts import find_limits

_AT_FDCWD = -100
_RENAME_EXCHANGE = 2
_RENAME = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)


class SwappedFile:
    """A file that one writer rewrites."""

    def __init__(self, path: str) -> None:
        self._path = path
        directory, name = os.path.split(path)
        self._other = f"{directory or '.'}/.{name}.tmp"
        self._names = os.fsencode(self._other), os.fsencode(path)
        self._is_there = False
        self._has_other = False
        self._size = 0
        # Upper bound of the previous file's size.
        self._other_size = 0

    def write(self, data: bytes) -> None:
        """Replace the file's contents atomically."""
        if not self._is_there:
            replace_file(self._path, data)
            self._is_there = True
            self._size = len(data)
            return
        self._has_other = True
        self._write_other(data)
        if not _exchange(*self._names):
            os.replace(self._other, self._path)
            self._has_other = False
        self._size, self._other_size = len(data), self._size

    def write_by_renaming(self, path: str, data: bytes) -> None:
        """Write data to a new path by renaming the previous version of this file; ends rewriting.

        Reusing a file avoids creating one, which is the slowest step for a small file.
        """
        if self._has_other:
            self._write_other(data)
            os.replace(self._other, path)
            self._has_other = False
        else:
            replace_file(path, data)

    def close(self) -> None:
        """Delete the previous version and stop writing."""
        if self._has_other:
            with contextlib.suppress(OSError):
                os.unlink(self._other)

    def _write_other(self, data: bytes) -> None:
        before, self._other_size = self._other_size, max(self._other_size, len(data))
        fd = os.open(self._other, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            write_all(fd, data)
            # Truncate afterwards: ext4 flushes a file that was truncated to zero when it is closed.
            if len(data) < before:
                os.ftruncate(fd, len(data))
        finally:
            os.close(fd)


def _exchange(one: bytes, other: bytes) -> bool:
    """Exchange two names; False if the system or the file system does not support it."""
    if _RENAME is None:
        return False
    refused: int = _RENAME(_AT_FDCWD, one, _AT_FDCWD, other, _RENAME_EXCHANGE)
    return refused == 0


LONGEST_TRACE = 128 << 20
"""Longest trace, in bytes, that is read for the record. In memory it takes three times as much, and
an agent that writes endlessly must not exhaust the runner's memory.
"""


# Bytes of traces that are read on the event loop; a thread would take longer.
_SHORT = 1 << 14
_RAW_OUTPUTS = ("agent/command.txt", "agent/oracle.txt")
_CONVERSATIONS = ("agent/conversation.jsonl", "artifacts/conversation.jsonl")


class Recording:
    """Writes the record of one trial."""

    def __init__(self, spec: TrialSpec, directory: str, redactor: Redactor | None) -> None:
        self._spec = spec
        self._directory = directory
        self._redactor = redactor
        self._snapshot: Snapshot | None = None
        self._environment: tuple[Snapshot | None, EnvironmentSnapshot] | None = None
        self._agent: tuple[AgentInfo, AgentReference] | None = None
        self.file = SwappedFile(f"{directory}/record.json")
        """record.json."""

    def note_phase(self, result: TrialResult, phase: str, watched: Watched | None) -> None:
        """Write the record of a trial that is in this phase."""
        record, _ = build_record(self._make_source(result, watched, None, phase))
        self._write(record)

    def finish(
        self,
        result: TrialResult,
        watched: Watched | None,
        trace: Trace | None,
        step_uses: Sequence[TraceUse] = (),
        models: Sequence[str] = (),
    ) -> TrialRecord:
        """Write the final record; it is complete if all pins are known.

        `step_uses` are those of the traces of steps, for a trial without a trace of its own;
        `models` those that the gateway saw answering.
        """
        source = self._make_source(result, watched, trace, None)
        counted = count_trace(trace) if trace is not None else merge_uses(step_uses)
        if models:
            counted = msgspec.structs.replace(counted, models=tuple(models))
        if counted.models:
            agent = make_agent(self._spec, result, counted.models)
            source = msgspec.structs.replace(source, agent=agent)
        record, _ = build_record(msgspec.structs.replace(source, counted=counted))
        is_timed = find_seconds(result) is not None
        record = complete_record(record, is_complete=is_timed and not find_missing(record))
        self._write(record)
        return record

    def _make_source(
        self, result: TrialResult, watched: Watched | None, trace: Trace | None, phase: str | None
    ) -> RecordSource:
        spec = self._spec
        if watched is not None:
            # A stopped environment has no snapshot any more, and the last one is still true.
            self._snapshot = watched.snapshot
        artifacts = f"{self._directory}/artifacts"
        when = (None if phase else result.finished_at) or result.started_at
        if when is None:
            raise RecordError(f"{self._directory}: the trial has not begun")
        if self._agent is None or self._agent[0] != result.agent_info:
            self._agent = result.agent_info, make_agent(self._spec, result)
        if self._environment is None or self._environment[0] != self._snapshot:
            self._environment = self._snapshot, make_environment(self._spec, self._snapshot)
        return RecordSource(
            name=spec.config.trial_name,
            experiment=spec.record.experiment,
            dataset_id=spec.record.dataset_id,
            adaptation=spec.record.adaptation,
            when=when,
            task=self._task,
            agent=self._agent[1],
            environment=self._environment[1],
            inputs=make_inputs(spec, trace) if trace else self._inputs,
            timing=make_timing(result, find_seconds(result)),
            directory=self._directory,
            trace=trace,
            has_artifacts=os.path.lexists(f"{artifacts}/manifest.json") or has_entries(artifacts),
            raw_output=None if phase else self._find_raw_output(result),
            conversation=None if phase else self._find_file(_CONVERSATIONS),
            ending=None if phase else _find_ending(result),
            phase=phase,
        )

    def _find_raw_output(self, result: TrialResult) -> str | None:
        """The file with what the agent printed: harbor's agents name it after themselves."""
        own = PurePosixPath("agent", f"{result.agent_info.name}.txt")
        return self._find_file((*_RAW_OUTPUTS, *([str(own)] if len(own.parts) == 2 else [])))

    def _find_file(self, names: Iterable[str]) -> str | None:
        """The first of these files that the trial left, if it is not empty."""
        return next((name for name in names if _size_of(f"{self._directory}/{name}") > 0), None)

    # The parts that are the same in every phase's record are built once.

    @cached_property
    def _task(self) -> TaskReference:
        return make_task(self._spec)

    @cached_property
    def _inputs(self) -> InputRecord:
        return make_inputs(self._spec, None)

    def _write(self, record: TrialRecord) -> None:
        data = render_record(record)
        if self._redactor is not None:
            data = self._redactor.redact_text(data.decode()).encode()
        self.file.write(data)


def has_entries(directory: str) -> bool:
    """Whether the path is a directory that is not empty."""
    try:
        with os.scandir(directory) as entries:
            return next(entries, None) is not None
    except (FileNotFoundError, NotADirectoryError):
        return False


def find_traces(place: str) -> dict[str, int]:
    """Sizes in bytes of the traces that a trial left, by path."""
    sizes = {name: _size_of(f"{place}/{name}") for _, name in TRIAL_TRACES}
    return {name: size for name, size in sizes.items() if size >= 0}


def find_overlong(traces: Mapping[str, int]) -> list[str]:
    """Traces that are too long to be read."""
    return [name for name, size in traces.items() if size > LONGEST_TRACE]


async def load_trace(place: str, traces: Mapping[str, int]) -> Trace | None:
    """Load the trace of a trial, given the sizes of its traces.

    In a thread, unless they are short.
    """
    overlong = find_overlong(traces)
    names = [name for name in traces if name not in overlong]
    candidates = [(kind, f"{place}/{name}") for kind, name in TRIAL_TRACES if name in names]
    if sum(traces[name] for name in names) <= _SHORT:
        return _load(candidates)
    return await asyncio.to_thread(_load, candidates)


async def load_step_uses(place: str, steps: Iterable[str]) -> list[TraceUse]:
    """Tokens and models in the traces of a trial's steps; the traces themselves are not kept."""
    uses = []
    for step in steps:
        directory = f"{place}/steps/{step}"
        trace = await load_trace(directory, find_traces(directory))
        uses.append(TraceUse() if trace is None else await asyncio.to_thread(count_trace, trace))
    return uses


def _load(candidates: list[tuple[TraceKind, str]]) -> Trace | None:
    trace, _ = find_trace(candidates)
    return trace


def _size_of(path: str) -> int:
    """Size of a regular file; -1 for anything else."""
    # Files from an environment are untrusted: a link is not followed.
    try:
        found = os.lstat(path)
    except OSError:
        return -1
    return found.st_size if stat.S_ISREG(found.st_mode) else -1


# The parts of the record


_NO_VERSION: Final = frozenset({"", "unknown"})


def make_task(spec: TrialSpec) -> TaskReference:
    """The task and harbor's checksum of it."""
    return TaskReference(task_id=spec.task.name, task_revision=spec.digests.task_checksum)


def make_agent(spec: TrialSpec, result: TrialResult, models: Sequence[str] = ()) -> AgentReference:
    """The agent, the model that answered or was requested, and their configuration."""
    info, pinned = result.agent_info, spec.record.adapter_revision
    version = None if info.version.strip() in _NO_VERSION else info.version
    requested = find_model(spec.config.agent.model_name, info.model_info)
    return AgentReference(
        adapter=info.name if info.name.strip() else UNRESOLVED,
        model=models[0] if len(models) == 1 else requested or NO_MODEL,
        adapter_revision=_join_revision(
            pinned or version or spec.record.command_pin, spec.record.adapter_carrier
        ),
        configuration=make_configuration(spec),
    )


def _join_revision(own: str | None, carrier: str | None) -> str | None:
    """Join both revisions: the package that drives an agent does not identify the agent."""
    return f"{own} {carrier}" if own and carrier else own


def make_configuration(spec: TrialSpec) -> dict[str, Any]:
    """The requested configuration, and the limits derived from job and task."""
    written = spec.config.model_dump(mode="json")
    asked = {key: value for key, value in written.items() if key not in NOT_CONFIGURATION}
    return asked | {"limits": find_limits(spec.config, spec.task.config)}


def make_environment(spec: TrialSpec, snapshot: Snapshot | None) -> EnvironmentSnapshot:
    """Where it runs: as the environment reports it, else as job and task describe it."""
    if snapshot is not None:
        return EnvironmentSnapshot(
            runtime_image=snapshot.runtime_image,
            compute_backend=snapshot.compute_backend,
            tool_versions={**_find_tools(spec), **snapshot.tool_versions},
        )
    asked = spec.config.environment
    return EnvironmentSnapshot(
        runtime_image=find_image(spec.task, spec.digests.followed or spec.digests.files),
        compute_backend=asked.import_path or asked.type or "docker",
        tool_versions=_find_tools(spec),
    )


def _find_tools(spec: TrialSpec) -> dict[str, str]:
    """This program, and the node of a cluster that it ran on."""
    node = {"node": spec.record.node} if spec.record.node is not None else {}
    return {"proctor": __version__, **node}


def make_inputs(spec: TrialSpec, trace: Trace | None) -> InputRecord:
    """What the agent is given: every file of the task, with its digest."""
    return InputRecord(
        instruction=join_instructions(spec.task),
        system_prompt=spec.record.system_prompt or find_said(trace, "system"),
        input_files=refer_files(spec.digests.followed),
    )


def _find_ending(result: TrialResult) -> Ending:
    verified = result.verifier_result
    declined = verified is not None and verified.rewards is None
    return make_ending(
        result,
        result,
        rewards=verified.rewards if verified else None,
        reasons=("reward.json: null; the verifier declined to score",) if declined else (),
    )
