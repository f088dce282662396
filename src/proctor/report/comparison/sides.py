"""What is compared: the attempts of one agent and model in one run, by task."""

from collections.abc import Iterable
from dataclasses import dataclass

from proctor.ledger.row import TrialRow
from proctor.report.groups import Group, choose_group, group_by_task
from proctor.report.runs import Run


@dataclass(frozen=True, slots=True)
class Side:
    """A or B."""

    letter: str
    run: Run
    group: Group
    tasks: dict[str, tuple[TrialRow, ...]]
    """Attempts by task, tasks sorted."""

    @property
    def attempts(self) -> list[TrialRow]:
        """All of them, task after task."""
        return [attempt for attempts in self.tasks.values() for attempt in attempts]

    def narrowed(self, tasks: Iterable[str]) -> "Side":
        """The side with some of its tasks only."""
        kept = set(tasks)
        return Side(
            self.letter,
            self.run,
            self.group,
            {task: attempts for task, attempts in self.tasks.items() if task in kept},
        )


def make_side(letter: str, run: Run, wanted: str | None = None) -> Side:
    """The side of a run; where several agents and models are in it, `wanted` tells which.

    Raises:
        InputError: it does not tell one.
    """
    group, attempts = choose_group(run, wanted, f"--{letter.lower()}")
    return Side(letter, run, group, group_by_task(attempts))
