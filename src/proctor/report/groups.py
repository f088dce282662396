"""Groups of trials by agent, model and the agent's settings."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from proctor.errors import InputError
from proctor.ledger.row import TrialRow
from proctor.report.runs import Run
from proctor.sentence import count_of

_NO_MODEL = "none"


@dataclass(frozen=True, slots=True, order=True)
class Group:
    """An agent with its model and settings."""

    agent: str
    model: str
    configuration: str
    """Digest of the agent's settings."""

    @property
    def label(self) -> str:
        """Agent and model for people."""
        return self.agent if self.model == _NO_MODEL else f"{self.agent} · {self.model}"

    @property
    def full_label(self) -> str:
        """The label with the digest of the settings."""
        return f"{self.label} · {self.configuration}"


def group_of(row: TrialRow) -> Group:
    """The group of a trial."""
    return Group(
        row.agent or "unknown",
        row.model or _NO_MODEL,
        row.configuration or "unknown",
    )


def group_trials(rows: Iterable[TrialRow]) -> dict[Group, list[TrialRow]]:
    """Trials by group; groups are sorted, trials keep their order."""
    groups: dict[Group, list[TrialRow]] = {}
    for row in rows:
        groups.setdefault(group_of(row), []).append(row)
    return dict(sorted(groups.items()))


def group_by_task(rows: Iterable[TrialRow]) -> dict[str, tuple[TrialRow, ...]]:
    """Trials by sorted task; a task name that two datasets share is prefixed with the dataset."""
    listed = list(rows)
    datasets: dict[str, set[str | None]] = {}
    for row in listed:
        datasets.setdefault(row.task_id or "", set()).add(row.recorded_dataset)
    tasks: dict[str, list[TrialRow]] = {}
    for row in listed:
        task = row.task_id or ""
        shared = len(datasets[task]) > 1
        name = f"{row.recorded_dataset}/{task}" if shared else task
        tasks.setdefault(name, []).append(row)
    return {task: tuple(found) for task, found in sorted(tasks.items())}


def name_groups(groups: Iterable[Group]) -> dict[Group, str]:
    """Distinct labels of groups, with the digest of the settings only where needed."""
    known = list(groups)
    labels = [group.label for group in known]
    return {
        group: group.label if labels.count(group.label) == 1 else group.full_label
        for group in known
    }


def choose_group(run: Run, wanted: str | None, option: str) -> tuple[Group, list[TrialRow]]:
    """The group that matches any part of a name.

    Raises:
        InputError: several or none match; the message lists them.
    """
    groups = group_trials(run.trials)
    if not groups:
        raise InputError(f"{run.name}: all its trials are superseded or withheld")
    fitting = [group for group in groups if wanted is None or _fits(group, wanted)]
    # A name that is a part of another one must still be selectable.
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
        return f"{name}: no agent or model matches {wanted!r}; it has {listed}"
    return (
        f"{name}: {len(fitting)} agents and models match; pass {option} with a part of one name: "
        f"{listed}"
    )
