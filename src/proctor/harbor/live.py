"""JobStats while trials come and go: harbor's counters as trials end and are retried.

The figures are harbor's, oddities included: taking a trial away can leave empty lists and
negative counters.
"""

from proctor.harbor.stats import CANCELLED, GroupStats, JobStats, Trial


def count_trial(stats: JobStats, trial: Trial) -> None:
    """Add a trial that ended."""
    stats.n_completed_trials += 1
    entry = _entry_of(stats, trial)
    if trial.verdict is not None and trial.verdict.rewards is not None:
        entry.n_trials += 1
        for key, value in trial.verdict.rewards.items():
            entry.reward_stats.setdefault(key, {}).setdefault(value, []).append(trial.name)
    if trial.exception is not None:
        entry.exception_stats.setdefault(trial.exception, []).append(trial.name)
        _count_error(stats, entry, trial.exception, +1)
    for name, used in _usage_of(trial):
        setattr(stats, name, (getattr(stats, name) or 0) + used)


def uncount_trial(stats: JobStats, trial: Trial) -> None:
    """Take a trial away again, because it is run once more."""
    stats.n_completed_trials -= 1
    entry = _entry_of(stats, trial)
    if trial.verdict is not None and trial.verdict.rewards is not None:
        entry.n_trials -= 1
        for key, value in trial.verdict.rewards.items():
            _drop_name(entry.reward_stats.get(key, {}).get(value, []), trial.name)
    if trial.exception is not None:
        _drop_name(entry.exception_stats.get(trial.exception, []), trial.name)
        _count_error(stats, entry, trial.exception, -1)
    for name, used in _usage_of(trial):
        total = getattr(stats, name)
        if total is not None:
            # 0 for tokens and 0.0 for money: the type of the total stays what it was.
            setattr(stats, name, max(type(total)(0), total - used))


def replace_trial(stats: JobStats, trial: Trial, previous: Trial | None) -> None:
    """Count a trial in place of its earlier attempt, if there was one."""
    if previous is not None:
        uncount_trial(stats, previous)
    count_trial(stats, trial)


def _entry_of(stats: JobStats, trial: Trial) -> GroupStats:
    key = trial.evals_key
    return stats.evals.setdefault(key, GroupStats())


def _count_error(stats: JobStats, entry: GroupStats, exception: str, change: int) -> None:
    entry.n_errors += change
    stats.n_errored_trials += change
    if exception == CANCELLED:
        stats.n_cancelled_trials += change


def _usage_of(trial: Trial) -> list[tuple[str, int | float]]:
    usage = trial.usage
    reported = [
        ("n_input_tokens", usage.n_input_tokens),
        ("n_cache_tokens", usage.n_cache_tokens),
        ("n_output_tokens", usage.n_output_tokens),
        ("cost_usd", usage.cost_usd),
    ]
    return [(name, used) for name, used in reported if used is not None]


def _drop_name(names: list[str], name: str) -> None:
    if name in names:
        names.remove(name)
