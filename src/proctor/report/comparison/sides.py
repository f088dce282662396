"""The sides of a comparison: the trials of one agent and model in one run, by task."""

from collections.abc import Iterable
from dataclasses import dataclass

from proctor.ledger.row import TrialRow
from proctor.report.groups import Group, choose_group, group_by_task
from proctor.report.runs import Run


@dataclass(frozen=True, slots=True)
class Side:
    """Side A or B."""

    letter: str
    run: Run
    group: Group
    tasks: dict[str, tuple[TrialRow, ...]]
    """Trials by task, tasks sorted."""

    @property
    def trials(self) -> list[TrialRow]:
        """All trials, task after task."""
        return [trial for trials in self.tasks.values() for trial in trials]

    def narrowed(self, tasks: Iterable[str]) -> "Side":
        """The side with only some of its tasks."""
        kept = set(tasks)
        return Side(
            self.letter,
            self.run,
            self.group,
            {task: trials for task, trials in self.tasks.items() if task in kept},
        )


def make_side(letter: str, run: Run, wanted: str | None = None) -> Side:
    """Make the side of a run; `wanted` chooses among several agents and models."""
    group, trials = choose_group(run, wanted, f"--{letter.lower()}")
    return Side(letter, run, group, group_by_task(trials))
