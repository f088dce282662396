"""The output of a dry run: what tasks need, and which trials would be run, kept or redone."""

import asyncio
from collections.abc import Coroutine, Iterator, Sequence
from typing import TYPE_CHECKING

from proctor.cli.output import print_json, print_line, terminal_width
from proctor.cli.tables import print_rows
from proctor.environments.kinds import find_environment_name
from proctor.job.preview import Preview
from proctor.job.resume import Decision, SlotAction
from proctor.sentence import count_of, render_duration, render_size
from proctor.task.network import NetworkMode

if TYPE_CHECKING:
    from proctor.job.needs import TaskNeeds

_MOST_SHOWN = 500
_FOLDED = ["trial", "agent", "why"]
# Columns of a terminal from which what a task needs fits in one table.
_WIDE = 120
_IMAGES = ("image", "download")
_NEEDS = ("network", "memory", "storage", "time", "GPUs", "runs here")
_NETWORKS = {NetworkMode.NO_NETWORK: "none", NetworkMode.ALLOWLIST: "some hosts"}
_WORDS = {SlotAction.RUN: "to run", SlotAction.REDO: "to redo", SlotAction.KEEP: "kept"}


def show_preview(looking: Coroutine[None, None, Preview], *, as_json: bool) -> int:
    """Compute the preview and print it; returns the exit code."""
    preview = asyncio.run(looking)
    if as_json:
        print_json(describe_preview(preview))
    else:
        _print(preview)
    return 3 if preview.refused or any(task.is_runnable is False for task in preview.tasks) else 0


def _print(preview: Preview) -> None:
    for line in _render_head(preview):
        print_line(line)
    if preview.tasks:
        _print_tasks(preview.tasks)
    # Of a new job all trials are to run, and the tasks say it all.
    if preview.is_begun:
        rows = [_row(decision) for decision in preview.decisions[:_MOST_SHOWN]]
        _print_table(["", "trial", "attempt", "agent", "why"], rows, _FOLDED)
        if (more := len(preview.decisions) - len(rows)) > 0:
            print_line(f"… and {more} more; --json lists all")
    for line in _render_rest(preview):
        print_line(line)


def _print_tasks(tasks: Sequence["TaskNeeds"]) -> None:
    """What each task needs: one table, or two where the terminal is narrow."""
    images = [[", ".join(task.images) or "none", _render_download(task)] for task in tasks]
    needs = [_row_of_needs(task) for task in tasks]
    # An organisation that all tasks have in common only takes room.
    is_common = len({task.name.rpartition("/")[0] for task in tasks}) == 1
    names = [task.name.rpartition("/")[2] if is_common else task.name for task in tasks]
    if (terminal_width() or 0) >= _WIDE:
        rows = [[name, *one, *two] for name, one, two in zip(names, images, needs, strict=True)]
        _print_table(["task", *_IMAGES, *_NEEDS], rows, ["task", "image"])
    else:
        rows = [[name, *own] for name, own in zip(names, needs, strict=True)]
        _print_table(["task", *_NEEDS], rows, ["task"])
        rows = [[name, *own] for name, own in zip(names, images, strict=True)]
        _print_table(["task", *_IMAGES], rows, ["task", "image"])


def _print_table(columns: Sequence[str], rows: Sequence[list[str]], fold: Sequence[str]) -> None:
    print_line()
    print_rows(columns, rows, fold=fold)


def _row_of_needs(task: "TaskNeeds") -> list[str]:
    known = {True: "yes", False: "no", None: "unknown"}
    seconds = None if task.agent_sec is None else task.agent_sec + task.verifier_sec
    return [
        _NETWORKS.get(task.network, str(task.network)),
        _render_mb(task.memory_mb),
        _render_mb(task.storage_mb),
        "no limit" if seconds is None else render_duration(seconds),
        str(task.gpus),
        known[task.is_runnable],
    ]


def _render_mb(megabytes: int | None) -> str:
    return "no limit" if megabytes is None else render_size(megabytes * 1_000_000)


def _render_download(task: "TaskNeeds") -> str:
    return "unknown" if task.download_bytes is None else render_size(task.download_bytes)


def _render_obstacles(tasks: Sequence["TaskNeeds"]) -> Iterator[str]:
    """Why tasks cannot be run here, each reason once."""
    by_reason: dict[tuple[str, bool], list[str]] = {}
    for task in tasks:
        if task.why is not None:
            by_reason.setdefault((task.why, task.is_runnable is False), []).append(task.name)
    for (why, is_obstacle), names in by_reason.items():
        named = names[0] if len(names) == 1 else count_of(len(names), "task")
        yield f"cannot be run here: {named}: {why}" if is_obstacle else f"note: {named}: {why}"


def _render_head(preview: Preview) -> Iterator[str]:
    counts = ", ".join(f"{preview.count(deed)} {word}" for deed, word in _WORDS.items())
    there = "there already" if preview.is_begun else "not begun"
    yield f"{preview.directory}: {there}; nothing is written"
    at_once = preview.n_concurrent or "as many as fit on the cluster"
    yield f"{count_of(len(preview.decisions), 'trial')}: {counts}; {at_once} at once"
    chosen = preview.environment
    yield f"environment: {find_environment_name(chosen.kind)}, {chosen.why}"


def _row(decision: Decision) -> list[str]:
    return [
        _WORDS[decision.deed],
        _name_trial(decision),
        str(decision.slot.attempt),
        _agent_of(decision),
        decision.why,
    ]


def _name_trial(decision: Decision) -> str:
    """The trial's name; for a new one the known part, because the rest is random."""
    if decision.deed is not SlotAction.RUN:
        return decision.trial
    return f"{decision.trial.rpartition('__')[0]}__…"


def _render_rest(preview: Preview) -> Iterator[str]:
    if preview.download_bytes:
        size = render_size(preview.download_bytes)
        yield f"to download: {size} in all; layers that images share are counted once"
    yield from _render_obstacles(preview.tasks)
    for task in preview.refused:
        yield f"refused: {task.name}: {task.reason}"
    for trial in preview.unplanned:
        yield f"not counted: {trial} (earlier plan)"
    for name in preview.strangers:
        yield f"ignored: {name} is not a trial of this job"
    yield from (f"note: {note}" for note in preview.notes)


def describe_preview(preview: Preview) -> dict[str, object]:
    """The preview as JSON."""
    return {
        "directory": str(preview.directory),
        "begun": preview.is_begun,
        "environment": {
            "kind": preview.environment.kind,
            "why": preview.environment.why,
            "base": preview.environment.base,
        },
        "n_concurrent": preview.n_concurrent,
        "counts": {str(deed): preview.count(deed) for deed in SlotAction},
        "tasks": [_describe_needs(task) for task in preview.tasks],
        "download_bytes": preview.download_bytes,
        "trials": [
            {
                "deed": str(decision.deed),
                "task": decision.slot.planned.task.name,
                "attempt": decision.slot.attempt,
                "agent": _agent_of(decision),
                "trial": None if decision.deed is SlotAction.RUN else decision.trial,
                "why": decision.why,
            }
            for decision in preview.decisions
        ],
        "refused": [
            {"name": task.name, "path": str(task.path), "reason": task.reason}
            for task in preview.refused
        ],
        "unplanned": list(preview.unplanned),
        "left_alone": list(preview.strangers),
        "notes": list(preview.notes),
    }


def _describe_needs(task: "TaskNeeds") -> dict[str, object]:
    return {
        "task": task.name,
        "images": list(task.images),
        "is_built": task.is_built,
        "download_bytes": task.download_bytes,
        "network": str(task.network),
        "cpus": task.cpus,
        "memory_mb": task.memory_mb,
        "storage_mb": task.storage_mb,
        "gpus": task.gpus,
        "agent_sec": task.agent_sec,
        "verifier_sec": task.verifier_sec,
        "runnable": task.is_runnable,
        "why": task.why,
    }


def _agent_of(decision: Decision) -> str:
    agent = decision.slot.agent
    name = agent.name or agent.import_path or ""
    return f"{name} ({agent.model_name})" if agent.model_name else name
