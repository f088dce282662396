"""Attempts by who made them: an agent, a model and the agent's own settings."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from proctor.errors import InputError
from proctor.ledger.row import TrialRow
from proctor.report.runs import Run
from proctor.sentence import count_of

_NO_MODEL = "none"


@dataclass(frozen=True, slots=True, order=True)
class Group:
    """Who sat the tasks."""

    agent: str
    model: str
    configuration: str
    """Digest of the agent's own settings."""

    @property
    def label(self) -> str:
        """Agent and model as people say them."""
        return self.agent if self.model == _NO_MODEL else f"{self.agent} · {self.model}"

    @property
    def full_label(self) -> str:
        """The same with the digest of the settings."""
        return f"{self.label} · {self.configuration}"


def group_of(attempt: TrialRow) -> Group:
    """The group of an attempt."""
    return Group(
        attempt.agent or "unknown",
        attempt.model or _NO_MODEL,
        attempt.configuration or "unknown",
    )


def group_attempts(attempts: Iterable[TrialRow]) -> dict[Group, list[TrialRow]]:
    """Attempts by group, groups sorted, attempts in their order."""
    groups: dict[Group, list[TrialRow]] = {}
    for attempt in attempts:
        groups.setdefault(group_of(attempt), []).append(attempt)
    return dict(sorted(groups.items()))


def group_by_task(attempts: Iterable[TrialRow]) -> dict[str, tuple[TrialRow, ...]]:
    """Attempts by task, tasks sorted; a name that two datasets have is told apart by theirs."""
    listed = list(attempts)
    datasets: dict[str, set[str | None]] = {}
    for attempt in listed:
        datasets.setdefault(attempt.task_id or "", set()).add(attempt.recorded_dataset)
    tasks: dict[str, list[TrialRow]] = {}
    for attempt in listed:
        task = attempt.task_id or ""
        shared = len(datasets[task]) > 1
        name = f"{attempt.recorded_dataset}/{task}" if shared else task
        tasks.setdefault(name, []).append(attempt)
    return {task: tuple(found) for task, found in sorted(tasks.items())}


def name_groups(groups: Iterable[Group]) -> dict[Group, str]:
    """Labels that tell groups apart: the digest of the settings stands only where it is needed."""
    known = list(groups)
    labels = [group.label for group in known]
    return {
        group: group.label if labels.count(group.label) == 1 else group.full_label
        for group in known
    }


def choose_group(run: Run, wanted: str | None, option: str) -> tuple[Group, list[TrialRow]]:
    """The group that is meant, by any part of its name.

    Raises:
        InputError: there are several, or none; the sentence lists them.
    """
    groups = group_attempts(run.attempts)
    if not groups:
        raise InputError(f"{run.name}: every trial of it was superseded or withheld")
    fitting = [group for group in groups if wanted is None or _fits(group, wanted)]
    exact = [group for group in fitting if wanted in (group.label, group.full_label, group.model)]
    if len(exact) == 1:
        fitting = exact
    if len(fitting) == 1:
        return fitting[0], groups[fitting[0]]
    raise InputError(_explain(run.name, groups, fitting, wanted, option))


def _fits(group: Group, wanted: str) -> bool:
    return wanted in group.full_label


def _explain(
    name: str,
    groups: Mapping[Group, Sequence[TrialRow]],
    fitting: Sequence[Group],
    wanted: str | None,
    option: str,
) -> str:
    listed = "; ".join(
        f"{group.full_label} ({count_of(len(groups[group]), 'trial')})"
        for group in (fitting or groups)
    )
    if wanted is not None and not fitting:
        return f"{name}: nothing of it is called {wanted!r}; it holds {listed}"
    return (
        f"{name}: {len(fitting)} agents and models in it; {option} takes a part of one's name: "
        f"{listed}"
    )
