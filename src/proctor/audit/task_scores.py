"""A job's scores by task, for score records: one number per trial, 0 without a reward."""

from proctor.audit.difference import attempt_of
from proctor.errors import ScoreRecordError
from proctor.harbor.job import Job
from proctor.harbor.stats import Trial


def task_scores(job: Job) -> dict[str, list[float]]:
    """Scores by task, trials in order.

    Raises:
        ScoreRecordError: planned trials have no result, the job has several groups, or a trial has
            no single score.
    """
    trials = [found.trial for found in job.trials]
    if (missing := job.n_planned - len(trials)) > 0:
        raise ScoreRecordError(
            f"{job.directory}: {missing} of {job.n_planned} planned trials have no result; "
            "a score record contains every task"
        )
    keys = {trial.evals_key for trial in trials}
    if len(keys) > 1:
        raise ScoreRecordError(
            f"{job.directory}: {len(keys)} groups ({', '.join(sorted(keys))}); "
            "a score record contains the tasks of one"
        )
    scores: dict[str, list[float]] = {}
    for trial in trials:
        try:
            scores.setdefault(trial.task, []).append(_score(trial))
        except ScoreRecordError as error:
            raise ScoreRecordError(f"{job.directory}: trial {trial.name!r} has {error}") from error
    return scores


def _score(trial: Trial) -> float:
    names = list((trial.verdict.rewards if trial.verdict else None) or {})
    reward = attempt_of(trial).reward
    if reward is None and names:
        raise ScoreRecordError(
            f"{len(names)} rewards ({', '.join(names)}); expected one, or one named reward"
        )
    try:
        return 0.0 if reward is None else float(reward)
    except OverflowError as error:
        raise ScoreRecordError(
            "a reward that is too large for a float; expected a number from 0 to 1"
        ) from error
