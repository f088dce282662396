"""Options that select sealed trials, shared by several commands."""

import functools
import math
from collections.abc import Callable

import click

from proctor.ledger.trial_index import TrialFilter

# Fields of a trial that `--where` compares, by their names in lists.
_FIELDS = ("trial", "dataset", "task", "agent", "model", "reward", "status", "since")
_OPTIONS = (
    click.option("--experiment", metavar="ID", help="Filter by experiment."),
    click.option(
        "--where",
        "conditions",
        multiple=True,
        metavar="FIELD=VALUE",
        help="Filter by a field; can be repeated. Fields: trial (its id), dataset (as listed by "
        "`board`), task (the beginning of its id), agent, model, reward (0.5..1, 0.5.., ..1, or "
        "exactly 1), status (sealed, diagnostic, superseded, withheld), since (a time: trials that "
        "ran then or later).",
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
        conditions: tuple[str, ...],
        limit: int | None,
        **rest: object,
    ) -> int:
        fields = _parse_conditions(conditions)
        lowest, highest = _parse_range(fields.get("reward"))
        wanted = TrialFilter(
            experiment=experiment,
            trial=fields.get("trial"),
            dataset=fields.get("dataset"),
            task=fields.get("task"),
            harness=fields.get("agent"),
            model=fields.get("model"),
            lowest=lowest,
            highest=highest,
            status=fields.get("status"),
            since=fields.get("since"),
            limit=limit,
        )
        return command(wanted=wanted, **rest)

    decorated: Callable[..., int] = with_filter
    # Decorators apply from the bottom up: reversed, so that --help keeps the order of the table.
    for option in reversed(_OPTIONS):
        decorated = option(decorated)
    return decorated


def _parse_conditions(conditions: tuple[str, ...]) -> dict[str, str]:
    fields: dict[str, str] = {}
    for condition in conditions:
        field, equals, value = condition.partition("=")
        if not equals or field not in _FIELDS:
            raise click.UsageError(
                f"--where {condition!r}; expected FIELD=VALUE with one of {', '.join(_FIELDS)}"
            )
        if fields.setdefault(field, value) != value:
            raise click.UsageError(f"--where {condition!r}; expected one value of {field}")
    return fields


def _parse_range(text: str | None) -> tuple[float | None, float | None]:
    """Parse the bounds of `0.5..1`, `0.5..`, `..1` or `1`."""
    if text is None:
        return None, None
    low, dots, high = text.partition("..")
    wrong = click.UsageError(f"--where reward={text}; expected 0.5..1, 0.5.., ..1 or a number")
    try:
        lowest = float(low) if low else None
        highest = (float(high) if high else None) if dots else lowest
    except ValueError as error:
        raise wrong from error
    bounds = [bound for bound in (lowest, highest) if bound is not None]
    if not bounds or any(map(math.isnan, bounds)):
        raise wrong
    return lowest, highest
