"""Options that select sealed trials, shared by several commands."""

import functools
import math
from collections.abc import Callable

import click

from proctor.ledger.trial_index import STATUSES, TrialFilter

_OPTIONS = (
    click.option("--experiment", metavar="ID", help="Filter by experiment."),
    click.option("--trial", metavar="ID", help="Filter by trial id."),
    click.option("--dataset", metavar="NAME", help="Filter by dataset, as listed by `board`."),
    click.option("--task", metavar="PREFIX", help="Filter by the beginning of the task id."),
    # --harness is the former name, and the name of the field in records.
    click.option("--agent", "--harness", "agent", help="Filter by agent."),
    click.option("--model", help="Filter by model."),
    click.option(
        "--reward", metavar="RANGE", help="Filter by reward: 0.5..1, 0.5.., ..1, or exactly 1."
    ),
    click.option("--status", type=click.Choice(STATUSES), help="Filter by status."),
    click.option(
        "--since", metavar="TIME", help="Filter by time: trials that ran at TIME or later."
    ),
    click.option(
        "-l",
        "--limit",
        type=click.IntRange(min=1),
        help="Limit the number of results, keeping the latest.",
    ),
)


def filter_options(command: Callable[..., int]) -> Callable[..., int]:
    """Add the options of a filter to a command, which gets the filter as `wanted`."""

    @functools.wraps(command)
    def with_filter(
        *,
        experiment: str | None,
        trial: str | None,
        dataset: str | None,
        task: str | None,
        agent: str | None,
        model: str | None,
        reward: str | None,
        status: str | None,
        since: str | None,
        limit: int | None,
        **rest: object,
    ) -> int:
        lowest, highest = parse_range(reward)
        wanted = TrialFilter(
            experiment=experiment,
            trial=trial,
            dataset=dataset,
            task=task,
            harness=agent,
            model=model,
            lowest=lowest,
            highest=highest,
            status=status,
            since=since,
            limit=limit,
        )
        return command(wanted=wanted, **rest)

    decorated: Callable[..., int] = with_filter
    # Decorators apply from the bottom up: reversed, so that --help keeps the order of the table.
    for option in reversed(_OPTIONS):
        decorated = option(decorated)
    return decorated


def parse_range(text: str | None) -> tuple[float | None, float | None]:
    """Parse the bounds of `0.5..1`, `0.5..`, `..1` or `1`.

    Raises:
        click.UsageError: it is none of those.
    """
    if text is None:
        return None, None
    low, dots, high = text.partition("..")
    wrong = click.UsageError(f"--reward {text!r}; expected 0.5..1, 0.5.., ..1 or a number")
    try:
        lowest = float(low) if low else None
        highest = (float(high) if high else None) if dots else lowest
    except ValueError as error:
        raise wrong from error
    bounds = [bound for bound in (lowest, highest) if bound is not None]
    if not bounds or any(map(math.isnan, bounds)):
        raise wrong
    return lowest, highest
