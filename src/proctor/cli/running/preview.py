"""The output of a dry run: which trials would be run, kept or redone, and why."""

import asyncio
from collections.abc import Coroutine, Iterator
from importlib import import_module

from proctor.cli.output import print_json, print_line
from proctor.environments.kinds import find_environment_name
from proctor.job.preview import Preview
from proctor.job.resume import Decision, SlotAction
from proctor.sentence import count_of

_MOST_SHOWN = 500
_FOLDED = ["trial", "agent", "why"]
_WORDS = {SlotAction.RUN: "to run", SlotAction.REDO: "to redo", SlotAction.KEEP: "kept"}


def show_preview(looking: Coroutine[None, None, Preview], *, as_json: bool) -> int:
    """Compute the preview and print it; returns the exit code."""
    preview = asyncio.run(looking)
    if as_json:
        print_json(describe_preview(preview))
    else:
        _print(preview)
    return 3 if preview.refused else 0


def _print(preview: Preview) -> None:
    for line in _render_head(preview):
        print_line(line)
    print_line()
    rows = [_row(decision) for decision in preview.decisions[:_MOST_SHOWN]]
    # Imported late: tables are slow to import, and dry runs are rare.
    table = import_module("proctor.cli.table")
    table.print_table(["", "trial", "attempt", "agent", "why"], rows, fold=_FOLDED)
    if (more := len(preview.decisions) - len(rows)) > 0:
        print_line(f"… and {more} more; --json lists all")
    for line in _render_rest(preview):
        print_line(line)


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
    for task in preview.refused:
        yield f"refused: {task.name}: {task.reason}"
    for trial in preview.unplanned:
        yield f"in no number: {trial}, of an earlier plan"
    for name in preview.strangers:
        yield f"left alone: {name}, no trial of this job"
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


def _agent_of(decision: Decision) -> str:
    agent = decision.slot.agent
    name = agent.name or agent.import_path or ""
    return f"{name} ({agent.model_name})" if agent.model_name else name
