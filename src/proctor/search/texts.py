"""The indexed texts of a sealed trial: its instruction, its traces, its answer, its errors.

    instruction  the instruction to the agent
    (the trace)  every entry of the trace that `proctor show` shows, by its own role
    answer       the submitted answer, if it is text
    exception    the exception of the trial, and the errors in its record
    verifier     what the verifier printed
    change       paths that the agent changed, system paths first

Missing or altered evidence is skipped and named. A trace is read in constant memory.
"""

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from proctor.errors import DamageError, TraceError
from proctor.ledger.artifacts import ArtifactStore
from proctor.ledger.entry import AnyEntry, NoteEntry, ReviewEntry, TrialEntry, Withheld
from proctor.ledger.traced_trials import trace_entry
from proctor.record.model import TrialRecord
from proctor.search.row import CHANGE, LONGEST, Row, clean_text
from proctor.traces.atif.carry import ATIF_KEY, pair_results
from proctor.traces.entry import Entry
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
# Larger steps and exit codes, which no real trace has, do not fit into JSON.
_LARGEST_NUMBER = (1 << 53) - 1
_CALL, _RESULT = "tool_call", "tool_result"


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
            yield Row("review", clean_text(f"{entry.verdict} {entry.reviewer}\n{entry.note}"))
        case NoteEntry():
            yield Row("note", clean_text(f"{entry.author}\n{entry.text}"))


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
    digests = {file.path: file.sha256 for file in entry.evidence}
    for path, role in _find_texts(trial):
        try:
            data = artifacts.load_head(digests[path], LONGEST)
        except DamageError as error:
            passed.problems.append(f"{trial.name}: {error}")
            continue
        if data and b"\0" not in data:
            text = data.decode("utf-8", "replace").replace(os.linesep, "\n")
            steps = path.split("/")
            part = steps[1] if steps[0] == "steps" and len(steps) > 2 else ""
            yield Row(role, clean_text(text), part=clean_text(part))
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
    """Every entry of a trace; a call has its result's exit code, a result its call's tool."""
    for group in _group_by_step(TraceReading(trace.path, trace.kind).entries()):
        others = _pair(group)
        for at, entry in enumerate(group):
            yield _row_of_entry(entry, others.get(at), trace.part)


def _group_by_step(entries: Iterable[Entry]) -> Iterator[list[Entry]]:
    group, held = list[Entry](), 0
    for entry in entries:
        is_full = len(group) >= _MOST_TOGETHER or held > _MOST_CHARACTERS
        if group and (is_full or group[0].step != entry.step):
            yield group
            group, held = [], 0
        group.append(entry)
        held += sum(map(len, _texts_of(entry)))
    if group:
        yield group


def _row_of_entry(entry: Entry, other: Entry | None, part: str) -> Row:
    tool, code = entry.tool_name, _exit_code(entry)
    if other is not None:
        tool = tool or other.tool_name
        code = _exit_code(other) if code is None and entry.role == _CALL else code
    return Row(
        clean_text(entry.role),
        clean_text("\n".join(filter(None, _texts_of(entry)))),
        # A clamped step would refer to another one.
        entry.step if abs(entry.step) <= _LARGEST_NUMBER else None,
        None if tool is None else clean_text(tool),
        None if code is None else max(-_LARGEST_NUMBER, min(code, _LARGEST_NUMBER)),
        part,
    )


def _exit_code(entry: Entry) -> int | None:
    """The recorded exit code; else the one named in the output, as in summaries."""
    if entry.exit_code is not None or entry.role != _RESULT:
        return entry.exit_code
    return find_printed_code(output_of(entry))


def _pair(group: list[Entry]) -> dict[int, Entry]:
    """For the index of each call its result, and for the index of each result its call."""
    places = [at for at, entry in enumerate(group) if entry.role in (_CALL, _RESULT)]
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
    for key, name in (("conversation", "thinking"), (ATIF_KEY, "reasoning_content")):
        held = (entry.metadata or {}).get(key)
        if isinstance(held, dict) and isinstance(thought := held.get(name), str):
            yield thought
    yield entry.content or ""
    yield entry.command or ""
    yield from _words_in(entry.arguments, entry.command)
    yield entry.stdout or entry.output_summary or ""
    yield entry.stderr or ""


def _words_in(arguments: object, command: str | None) -> Iterator[str]:
    """The texts and numbers of a call's arguments, without its command."""
    left = [arguments]
    while left:
        match left.pop():
            case dict() as value:
                left += reversed(value.values())
            case list() as value:
                left += reversed(value)
            case str() as value if value != command:
                yield value
            case int() | float() as value if not isinstance(value, bool) and abs(value) < 1e300:
                yield format(value)[:40]


# Other files of the evidence


def _find_texts(trial: TracedTrial) -> Iterator[tuple[str, str]]:
    """The files of a trial that are searched beside its traces, and their roles."""
    output = trial.record.outputs.agent_output if trial.record is not None else None
    answer = output.output_path if output is not None else ""
    for file in trial.files:
        path = PurePosixPath(file)
        if file == answer and not answer.endswith((".jsonl", "trajectory.json")):
            yield file, "answer"
        elif path.name == "exception.txt":
            yield file, "exception"
        elif (
            path.parent.name == "verifier"
            and path.suffix in (".txt", ".log", "")
            and path.name != "reward.txt"
        ):
            yield file, "verifier"


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
