"""Phrases about trials that all documents share."""

from collections.abc import Mapping

from proctor.ledger.counting import SHOWN, Account
from proctor.record.reasons import NO_NUMBER
from proctor.report.page.figures import (
    UNKNOWN,
    render_ends,
    render_percent_ends,
    render_signed,
)
from proctor.report.scores import Scores
from proctor.report.statistics.paired import FEWEST_TASKS, Paired
from proctor.sentence import count_of, render_money, render_percent


def render_counts(counts: Mapping[str, int]) -> str:
    """Render counts by name; statuses have the names that people read."""
    shown = (f"{count:,} {SHOWN.get(name, name)}" for name, count in counts.items())
    return ", ".join(shown) or "none"


def render_scored(account: Account) -> str:
    """The number of scored trials, and how many of them have no number."""
    said = f"{account.scored:,} scored"
    return f"{said} ({account.no_number:,} {NO_NUMBER})" if account.no_number else said


def render_counted(account: Account) -> str:
    """The outcomes of the counted trials, as a sum."""
    return f"{account.counted:,} = {render_scored(account)} + {account.zero_by_missing:,} missing"


def render_passed(scores: Scores) -> str:
    """The number and share of passed trials, with its interval."""
    counted, ends = scores.account.counted, scores.pass_interval
    if scores.account.no_number:
        return f"{UNKNOWN}: {scores.account.no_number:,} of {counted:,} have no number"
    share = render_percent(scores.passed / counted) if counted else UNKNOWN
    return f"{scores.passed:,}/{counted:,} {share} {render_percent_ends(ends)}".rstrip()


def render_verdict(paired: Paired, better: tuple[str, str], difference: str) -> str:
    """Whether a difference is shown, with its interval; `better` names the sides."""
    if paired.difference is None:
        return "Nothing is compared: no task has a score on both sides."
    over = f"over {count_of(paired.n_tasks, 'task')}"
    if not paired.has_enough_tasks:
        found = f"{difference} is {render_signed(paired.difference)} {over}"
        return (
            f"Not enough tasks for a conclusion: {paired.n_tasks:,}, and at least {FEWEST_TASKS} "
            f"are needed. {found[:1].upper()}{found[1:]}."
        )
    if paired.interval is None:
        text = f"{difference} is {render_signed(paired.difference)} {over}; it has no interval."
        return text[:1].upper() + text[1:]
    found = f"{difference} is {render_signed(paired.difference)}, 95% interval "
    found += f"{render_ends(paired.interval)}, {over}"
    if paired.interval.low <= 0 <= paired.interval.high:
        return f"No difference is shown: {found}, which includes 0."
    return f"{better[0] if paired.difference > 0 else better[1]} scores higher: {found}."


def render_days(first: str | None, last: str | None) -> str:
    """The days on which trials ran."""
    days = list(dict.fromkeys(each[:10] for each in (first, last) if each))
    return f"run on {' to '.join(days)}" if days else "at an unknown time"


def render_per_success(scores: Scores) -> str:
    """The cost per success, or why it is unknown."""
    spent = scores.efficiency.cost_usd
    if spent.total is None:
        return f"{UNKNOWN}: known for {spent.n_known:,} of {spent.n_known + spent.n_unknown:,}"
    if spent.per_success is None:
        return f"no success for {render_money(spent.total)}"
    return render_money(spent.per_success)
