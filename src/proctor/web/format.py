"""Format values for pages; unknown values are a dash, never 0."""

from datetime import UTC, datetime
from urllib.parse import quote

from proctor.report.board.numbers import RowNumbers
from proctor.report.page.figures import render_estimate
from proctor.sentence import render_duration, render_figure, render_money, render_percent
from proctor.times import parse_utc

NOT_KNOWN = "-"


def show_figure(value: float | None) -> str:
    """Format a mean."""
    return NOT_KNOWN if value is None else render_figure(value)


def show_score(numbers: RowNumbers) -> str:
    """Format the mean reward of trials with its interval, outside a board."""
    return (
        NOT_KNOWN
        if numbers.score is None
        else render_estimate(numbers.score, numbers.score_interval)
    )


def show_count(value: int | None) -> str:
    """Format a whole number."""
    return NOT_KNOWN if value is None else f"{value:,}"


def show_seconds(value: float | None) -> str:
    """Format a duration."""
    return NOT_KNOWN if value is None else render_duration(value)


def show_usd(value: float | None) -> str:
    """Format a cost in US dollars."""
    return NOT_KNOWN if value is None else render_money(value)


def show_percent(value: float | None) -> str:
    """Format a share as a percentage."""
    return NOT_KNOWN if value is None else render_percent(value)


def show_time(value: str | float | None) -> str:
    """Format a time in UTC to the minute; other text is returned unchanged."""
    if not value:
        return NOT_KNOWN
    try:
        moment = parse_utc(value) if isinstance(value, str) else datetime.fromtimestamp(value, UTC)
    except (ValueError, OverflowError, OSError):
        moment = None
    return f"{moment:%Y-%m-%d %H:%M}" if moment else str(value)[:40]


def experiment_path(name: str) -> str:
    """The address of an experiment's page."""
    return f"/experiments/{path_part(name)}"


def trial_path(experiment: str, trial: str) -> str:
    """The address of a trial's page."""
    return f"/trials/{path_part(experiment)}/{path_part(trial)}"


def board_path(dataset: str, at: int | None = None, row: str | None = None) -> str:
    """The address of a board, or of one of its rows, optionally at a position."""
    asked = [f"at={at}"] if at is not None else []
    asked += [f"row={row}"] if row is not None else []
    return f"/boards/{path_part(dataset)}" + (f"?{'&'.join(asked)}" if asked else "")


def entry_path(seq: int) -> str:
    """The address of an entry of the ledger."""
    return f"/ledger/entries/{seq}"


def pair_path(one: tuple[str, str], other: tuple[str, str]) -> str:
    """The address of two trials side by side, each given as experiment and trial."""
    a, b = ("/".join(map(path_part, each)) for each in (one, other))
    return f"/diff?a={a}&b={b}"


def path_part(name: str) -> str:
    """Quote a name for a URL path."""
    # Such a link leads nowhere, but a name that is not valid Unicode must still be shown.
    return quote(name, safe="", errors="replace")
