"""Compare the commands of a job's agents: identical ones, and those of the task's solution.

Both give notes, which do not change a number. Only sequences long enough to be meaningful are
compared. Agents that always do the same are left out of the first comparison: oracle, nop,
scripted, replay, and a command without a model. The oracle is left out of the second.
"""

import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

from proctor.audit.findings import Finding, Kind
from proctor.audit.traces import ATIF, ToolCall
from proctor.digest import sha256_pieces
from proctor.errors import JobError, TaskError, TraceError
from proctor.files import find_way_out, read_small
from proctor.harbor.job import Job
from proctor.harbor.trial import FoundTrial
from proctor.task.directory import load_task
from proctor.traces.commands import find_likeness, is_telling, read_commands
from proctor.traces.entry import Entry, TraceKind
from proctor.traces.trace import TRIAL_TRACES, load_trace_file

_ORACLE = "oracle"
_ALWAYS_SAME = frozenset({_ORACLE, "nop", "scripted", "replay"})
# Largest trace that is read, in bytes; the same limit as for a record.
_LONGEST = 128 << 20
_MOST_NAMED = 20


def audit_commands(job: Job) -> Iterator[Finding]:
    """Notes about commands that trials share with each other, or with their task's solution."""
    solutions = _Solutions(job)
    alike: dict[str, list[FoundTrial]] = {}
    for found in job.trials:
        commands = _load_commands(found)
        if not commands:
            continue
        if not _does_the_same(found) and is_telling(commands):
            alike.setdefault(_digest(commands), []).append(found)
        yield from _compare_with_solution(found, commands, solutions)
    for same in alike.values():
        if len(same) > 1:
            yield _describe_same(same)


def _digest(commands: list[str]) -> str:
    return sha256_pieces(f"{len(each)}\n{each}".encode(errors="replace") for each in commands)


def _does_the_same(found: FoundTrial) -> bool:
    """Whether the agent always gives the same commands, by its nature."""
    agent = found.document.config.agent
    if agent.import_path is not None:
        # A custom class can have any name.
        return False
    return agent.name in _ALWAYS_SAME or (agent.name == "command" and not agent.model_name)


def _describe_same(same: list[FoundTrial]) -> Finding:
    names = [found.trial.name for found in same]
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    tasks = list(dict.fromkeys(found.trial.task for found in same))
    where = f"attempts at {tasks[0]}" if len(tasks) == 1 else f"attempts at {len(tasks)} tasks"
    message = f"{where} by equal commands: {', '.join(names[:_MOST_NAMED])}{more}"
    return Finding(Kind.IDENTICAL_COMMANDS, f"{same[-1].directory}/agent", message)


def _load_commands(found: FoundTrial) -> list[str]:
    """The commands of the first trace that has any; empty if no trace can be read."""
    for kind, name in TRIAL_TRACES:
        if kind is TraceKind.OUTPUT:
            continue  # it has no tool calls
        path = f"{found.directory}/{name}"
        try:
            seen = os.lstat(path)
            if not stat.S_ISREG(seen.st_mode) or seen.st_size > _LONGEST:
                continue
            if find_way_out(found.directory, path) is not None:
                continue
            commands = read_commands(_load_entries(path, kind))
        except (OSError, JobError, TraceError):
            continue
        if commands:
            return commands
    return []


def _load_entries(path: str, kind: TraceKind) -> Iterable[Entry]:
    if kind is TraceKind.ATIF:
        # Only the calls: converting a whole document to entries takes many times as long.
        calls = (call for step in ATIF.load(path).steps for call in step.tool_calls or ())
        return [_as_entry(call) for call in calls]
    return load_trace_file(path, kind).all_entries


def _as_entry(call: ToolCall) -> Entry:
    arguments = call.arguments if isinstance(call.arguments, dict) else {"": call.arguments}
    return Entry(role="tool_call", step=0, tool_name=call.function_name, arguments=arguments)


def _compare_with_solution(
    found: FoundTrial, commands: list[str], solutions: "_Solutions"
) -> Iterator[Finding]:
    agent = found.document.config.agent
    if agent.name == _ORACLE and agent.import_path is None:
        return
    solution = solutions.find(found)
    likeness = None if solution is None else find_likeness(commands, solution)
    if likeness is not None and likeness.is_close:
        message = f"{found.trial.name}: its commands contain {likeness} of the task's own solution"
        yield Finding(Kind.COMMANDS_LIKE_SOLUTION, f"{found.directory}/agent", message)


class _Solutions:
    """The solutions of a job's tasks, if the tasks are still where they were."""

    def __init__(self, job: Job) -> None:
        self._origins = [place for place in (job.cwd, "") if place is not None]
        self._known: dict[str, str | None] = {}

    def find(self, found: FoundTrial) -> str | None:
        """The solution of a trial's task; None if it is not available."""
        task = found.document.config.task
        if task.path is None or task.git_url is not None:
            return None
        if task.path not in self._known:
            self._known[task.path] = self._load(task.path)
        return self._known[task.path]

    def _load(self, path: str) -> str | None:
        for origin in self._origins:
            try:
                task = load_task(Path(origin, path), verifying=False)
                script = None if task.steps else task.find_solution_script()
                return read_small(str(script)).decode(errors="replace") if script else None
            except (OSError, ValueError, TaskError):
                continue
        return None
