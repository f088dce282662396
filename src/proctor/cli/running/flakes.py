"""How far further verifications agree, as lines for people and as a part of the document."""

from collections.abc import Iterator

import msgspec

from proctor.cli.denominators import render_value
from proctor.job.flakes import Flakes, NotAgain, TaskFlakes
from proctor.sentence import count_of

_MOST = 20
_DIGEST = 12


def render_flakes(flakes: Flakes | None) -> Iterator[str]:
    """The lines; tasks whose tests disagree with themselves come first, most of all."""
    if flakes is None:
        return
    yield f"verified {count_of(flakes.n, 'time')} more, in flakes.json; none changes a score:"
    shown = sorted(flakes.tasks, key=lambda task: -task.flake_rate)
    for task in shown[:_MOST]:
        yield f"  {_render_task(task)}"
    if len(shown) > _MOST:
        yield f"  … and {len(shown) - _MOST} more; --json lists all"
    yield from _render_not_again(flakes.not_again)


def _render_task(task: TaskFlakes) -> str:
    name = task.task if task.step is None else f"{task.task}, {task.step}"
    state = "" if task.state == "frozen" else f", {task.state}"
    return (
        f"{name} ({task.task_checksum[:_DIGEST]}): flake rate {render_value(task.flake_rate)}, "
        f"{count_of(task.results, 'result')} in {count_of(task.verifications, 'verification')} of "
        f"{count_of(len(task.trials), 'trial')}{state}"
    )


def _render_not_again(missed: list[NotAgain]) -> Iterator[str]:
    """One line for each reason."""
    reasons: dict[str, list[str]] = {}
    for one in missed:
        reasons.setdefault(one.reason, []).append(one.trial)
    for reason, trials in list(reasons.items())[:_MOST]:
        more = " …" if len(trials) > 1 else ""
        told = f"{count_of(len(trials), 'trial')}, {trials[0]}{more}"
        yield f"  not verified again, or not so often: {told}: {reason}"


def describe_flakes(flakes: Flakes | None) -> object:
    """The same as one document."""
    return None if flakes is None else msgspec.to_builtins(flakes)
