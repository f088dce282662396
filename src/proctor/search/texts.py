"""The indexed texts of a sealed trial: its instruction, its traces, its answer, its errors.

    instruction  the instruction to the agent
    (the trace)  every entry of the trace that `proctor show` shows, by its own role
    answer       the submitted answer, if it is text
    exception    the exception of the trial, and the errors in its record
    verifier     what the verifier printed
    change       paths that the agent changed, system paths first

Missing or altered evidence is skipped and named. A trace is read in constant memory.
"""

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any, BinaryIO, cast

from proctor.errors import DamageError, TraceError
from proctor.ledger.artifacts import ArtifactStore
from proctor.ledger.entry import AnyEntry, NoteEntry, ReviewEntry, TrialEntry, Withheld
from proctor.ledger.traced_trials import trace_entry
from proctor.record.model import TrialRecord
from proctor.search.row import CHANGE, LONGEST, Row, clamp, clean_text
from proctor.traces.atif.carry import ATIF_KEY, pair_results
from proctor.traces.entry import Entry, Object
from proctor.traces.tool_errors import find_printed_code, output_of
from proctor.traces.trace import TraceReading
from proctor.traces.traced_trial import FoundTrace, TracedTrial, opened_traces
from proctor.trial.change_record import LARGEST, find_change_files, parse_changes
from proctor.trial.changes import Phase

# Entries of one step that are kept to pair results with calls.
_MOST_TOGETHER = 1000
_MOST_CHARACTERS = 4 << 20
# Changed paths of one trial that are indexed.
_MOST_PATHS = 2000
_CALL, _RESULT = "tool_call", "tool_result"
_PRINTED = (".txt", ".log", "")
_REWARDS = ("reward.txt",)


@dataclass(slots=True)
class Passed:
    """What could not be read, filled in while rows are made."""

    absent: list[str] = field(default_factory=list)
    """Digests of missing evidence; if it comes back, the index is built again."""
    problems: list[str] = field(default_factory=list)
    """Messages about evidence that cannot be read."""


def rows_of(artifacts: ArtifactStore, entry: AnyEntry | Withheld, passed: Passed) -> Iterator[Row]:
    """All texts of an entry of the log."""
    match entry:
        case TrialEntry():
            yield from _rows_of_trial(artifacts, entry, passed)
        case ReviewEntry():
            words = f"{entry.verdict} {entry.reviewer}\n{entry.note}"
            yield Row("review", clean_text(words))
        case NoteEntry():
            yield Row("note", clean_text(f"{entry.author}\n{entry.text}"))
        case _:
            return


def _rows_of_trial(artifacts: ArtifactStore, entry: TrialEntry, passed: Passed) -> Iterator[Row]:
    trial = trace_entry(artifacts, entry)
    there = set(trial.files)
    passed.absent += [file.sha256 for file in entry.evidence if file.path not in there]
    if trial.record is not None:
        yield from _rows_of_record(trial.record)
    try:
        with opened_traces(trial, with_output=True) as traces:
            for trace in traces:
                yield from rows_of_trace(trace)
    except (DamageError, TraceError) as error:
        passed.problems.append(f"{trial.name}: {error}")
    yield from _rows_of_files(artifacts, entry, trial, passed)
    yield from _rows_of_changes(artifacts, entry, trial, passed)


def _rows_of_record(record: TrialRecord) -> Iterator[Row]:
    yield Row("instruction", clean_text(record.inputs.instruction))
    answer = record.outputs.agent_output
    wrong = [*record.evaluation.validity.errors]
    if answer is not None and answer.error_message:
        wrong.append(answer.error_message)
    for text in dict.fromkeys(wrong):
        yield Row("exception", clean_text(text))


# Traces


def rows_of_trace(trace: FoundTrace) -> Iterator[Row]:
    """Every entry of a trace."""
    group: list[Entry] = []
    held = 0
    for entry in TraceReading(trace.path, trace.kind).entries():
        is_other = group and group[0].step != entry.step
        if is_other or len(group) >= _MOST_TOGETHER or held > _MOST_CHARACTERS:
            yield from _rows_of_step(group, trace.part)
            group, held = [], 0
        group.append(entry)
        texts = (entry.content, entry.command, entry.stdout, entry.stderr)
        held += sum(len(text) for text in texts if text)
    yield from _rows_of_step(group, trace.part)


def _rows_of_step(group: list[Entry], part: str) -> Iterator[Row]:
    """The entries of one step; a call has the exit code of its result."""
    answers = _find_answers(group) if len(group) > 1 else {}
    for at, entry in enumerate(group):
        other = answers.get(at)
        tool, code = entry.tool_name, _exit_code(entry)
        if other is not None:
            tool = tool or other.tool_name
            code = _exit_code(other) if code is None and entry.role == _CALL else code
        text = clean_text("\n".join(_texts_of(entry)))
        yield Row(
            clean_text(entry.role), text, _anchor(entry.step),
            None if tool is None else clean_text(tool), clamp(code), part,
        )  # fmt: skip


def _exit_code(entry: Entry) -> int | None:
    """The recorded exit code; else the one named in the output, as in summaries."""
    if entry.exit_code is not None or entry.role != _RESULT:
        return entry.exit_code
    return find_printed_code(output_of(entry))


def _anchor(step: int) -> int | None:
    """The step, if the index can store it; a clamped step would refer to another one."""
    return step if clamp(step) == step else None


def _find_answers(group: list[Entry]) -> dict[int, Entry]:
    """For the index of each call its result, and for the index of each result its call."""
    places = [at for at, entry in enumerate(group) if entry.role in (_CALL, _RESULT)]
    if not places:
        return {}
    calls = [at for at in places if group[at].role == _CALL]
    results = [at for at in places if group[at].role == _RESULT]
    pairs = pair_results((group[at].role == _CALL, group[at].tool_name or None) for at in places)
    found: dict[int, Entry] = {}
    for result, call in zip(results, pairs, strict=True):
        if call is not None:
            found[calls[call]] = group[result]
            found[result] = group[calls[call]]
    return found


def _texts_of(entry: Entry) -> Iterator[str]:
    if entry.metadata:
        yield from _thoughts_in(entry.metadata)
    if entry.content:
        yield entry.content
    if entry.command:
        yield entry.command
    if entry.arguments:
        yield from _words_in(entry.arguments, entry.command)
    if entry.stdout:
        yield entry.stdout
    elif entry.output_summary:
        yield entry.output_summary
    if entry.stderr:
        yield entry.stderr


def _thoughts_in(metadata: Object) -> Iterator[str]:
    """The reasoning in an entry's metadata."""
    for key, name in (("conversation", "thinking"), (ATIF_KEY, "reasoning_content")):
        held = metadata.get(key)
        if isinstance(held, dict) and isinstance(thought := held.get(name), str) and thought:
            yield thought


def _words_in(arguments: Object, command: str | None) -> Iterator[str]:
    """The texts and numbers of a call's arguments, without its command."""
    left: list[Any] = [arguments]
    while left:
        value = left.pop()
        match value:
            case dict():
                left += reversed(value.values())
            case list():
                left += reversed(value)
            case str() if value and value != command:
                yield value
            case int() | float() if not isinstance(value, bool):
                yield format(value)[:40] if abs(value) < 1e300 else ""


# Other files of the evidence


def _rows_of_files(
    artifacts: ArtifactStore, entry: TrialEntry, trial: TracedTrial, passed: Passed
) -> Iterator[Row]:
    digests = {file.path: file.sha256 for file in entry.evidence}
    answer = _find_answer(trial)
    for path in trial.files:
        role = "answer" if path == answer else _role_of(path)
        if role is None:
            continue
        try:
            text = _read_text(artifacts, digests[path])
        except DamageError as error:
            passed.problems.append(f"{trial.name}: {error}")
            continue
        if text:
            steps = path.split("/")
            part = steps[1] if steps[0] == "steps" and len(steps) > 2 else ""
            yield Row(role, clean_text(text), part=clean_text(part))


def _rows_of_changes(
    artifacts: ArtifactStore, entry: TrialEntry, trial: TracedTrial, passed: Passed
) -> Iterator[Row]:
    """The paths that the agent changed, one a line; a row for each step that has a record."""
    files = {file.path: file for file in entry.evidence}
    left = _MOST_PATHS
    for part, path in find_change_files(trial.files).items():
        if not left or files[path].size > LARGEST:
            continue
        try:
            data = artifacts.load(files[path].sha256, files[path].size)
        except DamageError as error:
            passed.problems.append(f"{trial.name}: {error}")
            continue
        changed = [each for each in parse_changes(data).ordered() if each.when is Phase.AGENT]
        lines = [f"{each.path} -> {each.target}" if each.target else each.path for each in changed]
        if lines:
            yield Row(CHANGE, clean_text("\n".join(lines[:left])), part=clean_text(part))
        left = max(left - len(lines), 0)


def _role_of(path: str) -> str | None:
    name = PurePosixPath(path)
    if name.name == "exception.txt":
        return "exception"
    is_printed = name.suffix in _PRINTED and name.name not in _REWARDS
    return "verifier" if name.parent.name == "verifier" and is_printed else None


def _find_answer(trial: TracedTrial) -> str | None:
    if trial.record is None or trial.record.outputs.agent_output is None:
        return None
    path = trial.record.outputs.agent_output.output_path
    is_trace = path.endswith((".jsonl", "trajectory.json"))
    return None if is_trace else path


class _FullError(Exception):
    """Raised when enough was read."""


class _Beginning:
    """Keeps the beginning of what is written to it, then stops the writer."""

    def __init__(self, size: int) -> None:
        self.data = bytearray()
        self._size = size

    def write(self, data: bytes) -> int:
        self.data += data[: self._size - len(self.data)]
        if len(self.data) >= self._size:
            raise _FullError
        return len(data)


def _read_text(artifacts: ArtifactStore, sha256: str) -> str:
    """The beginning of a file; "" if it is not text."""
    beginning = _Beginning(LONGEST)
    with contextlib.suppress(_FullError):
        artifacts.copy(sha256, cast(BinaryIO, beginning))
    if b"\0" in beginning.data:
        return ""
    return beginning.data.decode("utf-8", "replace").replace(os.linesep, "\n")
