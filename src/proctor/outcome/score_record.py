"""Score record v1: the scores of a run, down to the trial, in a form that can be hashed.

    {"schema_version": 1, "eval_run_id", "policy_digest", "k",
     "tasks": [{"task_id", "trial_scores_f64be": [k of them],
                "aggregate_score_f64be", "passed_trials"}],      sorted by task_id
     "final": {"job_score_f64be", "passed_tasks", "total_tasks"}}

All but the trial scores follows from them and the policy; `check_score_record` sees that it does.
Whether the trials happened is not known here.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from proctor.errors import ScoreRecordError
from proctor.outcome.canonical import (
    Json,
    canonical_digest,
    parse_count,
    parse_json,
    parse_list,
    parse_object,
    parse_text,
    render_canonical,
)
from proctor.outcome.f64be import parse_f64be, render_f64be
from proctor.outcome.policy import aggregate_trials, job_score
from proctor.outcome.scoring_policy import ScoringPolicy

_RECORD_FIELDS = ("schema_version", "eval_run_id", "policy_digest", "k", "tasks", "final")
_TASK_FIELDS = ("task_id", "trial_scores_f64be", "aggregate_score_f64be", "passed_trials")
_FINAL_FIELDS = ("job_score_f64be", "passed_tasks", "total_tasks")
_MAX_ID = 128


@dataclass(frozen=True, slots=True)
class TaskScores:
    """One task of a record."""

    task_id: str
    """1 to 128 visible ASCII characters."""
    trials: tuple[float, ...]
    """Score of every trial, in the order they were run."""
    aggregate: float
    """The task's score."""
    passed_trials: int
    """Trials that scored exactly 1."""

    @property
    def document(self) -> dict[str, Json]:
        """The task as it is hashed."""
        return {
            "task_id": self.task_id,
            "trial_scores_f64be": [render_f64be(score) for score in self.trials],
            "aggregate_score_f64be": render_f64be(self.aggregate),
            "passed_trials": self.passed_trials,
        }


@dataclass(frozen=True, slots=True)
class ScoreRecord:
    """The scores of a run."""

    eval_run_id: str
    """1 to 128 visible ASCII characters."""
    policy_digest: str
    """SHA-256 of the scoring policy's canonical document."""
    k: int
    """Trials per task."""
    tasks: tuple[TaskScores, ...]
    """All tasks of the run, sorted by id."""
    job_score: float
    """The score of the run, over the tasks that the policy keeps."""
    passed_tasks: int
    """Tasks that scored exactly 1, of all."""
    total_tasks: int
    """All tasks, kept or not."""

    @property
    def document(self) -> dict[str, Json]:
        """The record as it is hashed."""
        return {
            "schema_version": 1,
            "eval_run_id": self.eval_run_id,
            "policy_digest": self.policy_digest,
            "k": self.k,
            "tasks": [task.document for task in self.tasks],
            "final": {
                "job_score_f64be": render_f64be(self.job_score),
                "passed_tasks": self.passed_tasks,
                "total_tasks": self.total_tasks,
            },
        }

    @property
    def digest(self) -> str:
        """SHA-256 of the canonical document."""
        return canonical_digest(self.document)


def make_score_record(
    eval_run_id: str, policy: ScoringPolicy, trials: Mapping[str, Sequence[float]]
) -> ScoreRecord:
    """The record of a run from the trial scores of its tasks.

    Raises:
        ScoreRecordError: no task, tasks with different numbers of trials, a bad id or score.
    """
    _check_id(eval_run_id, "eval_run_id")
    if not trials:
        raise ScoreRecordError("there are no tasks; expected at least one")
    tasks = tuple(_make_task(task, trials[task], policy) for task in sorted(trials))
    _check_trial_counts(tasks)
    aggregates = [task.aggregate for task in tasks]
    return ScoreRecord(
        eval_run_id=eval_run_id,
        policy_digest=policy.digest,
        k=len(tasks[0].trials),
        tasks=tasks,
        job_score=job_score(aggregates, policy.keep),
        passed_tasks=aggregates.count(1.0),
        total_tasks=len(tasks),
    )


def render_score_record(record: ScoreRecord) -> bytes:
    """The record's one spelling: what its digest is the digest of."""
    return render_canonical(record.document)


def parse_score_record(data: bytes) -> ScoreRecord:
    """The record in a document. Its shape is checked; `check_score_record` checks its numbers.

    Raises:
        ScoreRecordError: says which field is not as it must be.
    """
    fields = parse_object(parse_json(data), "the score record", _RECORD_FIELDS)
    version = parse_count(fields["schema_version"], "schema_version")
    if version != 1:
        raise ScoreRecordError(f"schema_version is {version}; expected 1")
    final = parse_object(fields["final"], "final", _FINAL_FIELDS)
    return ScoreRecord(
        eval_run_id=_parse_id(fields["eval_run_id"], "eval_run_id"),
        policy_digest=parse_text(fields["policy_digest"], "policy_digest"),
        k=parse_count(fields["k"], "k", least=1),
        tasks=tuple(
            _parse_task(task, f"tasks[{index}]")
            for index, task in enumerate(parse_list(fields["tasks"], "tasks"))
        ),
        job_score=parse_f64be(final["job_score_f64be"], "final.job_score_f64be"),
        passed_tasks=parse_count(final["passed_tasks"], "final.passed_tasks"),
        total_tasks=parse_count(final["total_tasks"], "final.total_tasks"),
    )


def check_score_record(record: ScoreRecord, policy: ScoringPolicy) -> None:
    """See that everything in the record follows from its trial scores and this policy.

    Raises:
        ScoreRecordError: names the first field that does not.
    """
    trials = {task.task_id: task.trials for task in record.tasks}
    expected = make_score_record(record.eval_run_id, policy, trials)
    if difference := _find_difference(record.document, expected.document, ""):
        raise ScoreRecordError(difference)


def _make_task(task_id: str, trials: Sequence[float], policy: ScoringPolicy) -> TaskScores:
    _check_id(task_id, "task_id")
    if not trials:
        raise ScoreRecordError(f"task {task_id!r} has no trials; expected at least one")
    for score in trials:
        _check_score(task_id, score)
    scores = tuple(float(score) for score in trials)
    return TaskScores(
        task_id=task_id,
        trials=scores,
        aggregate=aggregate_trials(scores, policy.aggregation),
        passed_trials=scores.count(1.0),
    )


def _check_score(task_id: str, score: float) -> None:
    try:
        render_f64be(score)
    except ScoreRecordError as error:
        raise ScoreRecordError(
            f"task {task_id!r} has score {score!r}; "
            "expected a finite number from 0 to 1, not negative zero"
        ) from error


def _check_trial_counts(tasks: Sequence[TaskScores]) -> None:
    first = tasks[0]
    for task in tasks:
        if len(task.trials) != len(first.trials):
            raise ScoreRecordError(
                f"task {task.task_id!r} has {len(task.trials)} trials; "
                f"expected {len(first.trials)}, as many as task {first.task_id!r}"
            )


def _parse_task(value: object, where: str) -> TaskScores:
    fields = parse_object(value, where, _TASK_FIELDS)
    trials = parse_list(fields["trial_scores_f64be"], f"{where}.trial_scores_f64be")
    aggregate = fields["aggregate_score_f64be"]
    return TaskScores(
        task_id=_parse_id(fields["task_id"], f"{where}.task_id"),
        trials=tuple(
            parse_f64be(score, f"{where}.trial_scores_f64be[{index}]")
            for index, score in enumerate(trials)
        ),
        aggregate=parse_f64be(aggregate, f"{where}.aggregate_score_f64be"),
        passed_trials=parse_count(fields["passed_trials"], f"{where}.passed_trials"),
    )


def _parse_id(value: object, where: str) -> str:
    text = parse_text(value, where)
    _check_id(text, where)
    return text


def _check_id(text: str, where: str) -> None:
    if not 1 <= len(text) <= _MAX_ID or not all("!" <= character <= "~" for character in text):
        raise ScoreRecordError(
            f"{where} is {text!r}; expected 1 to {_MAX_ID} visible ASCII characters"
        )


def _find_difference(found: Json, expected: Json, where: str) -> str | None:
    """The first place, in the order of the format, where the documents part."""
    if isinstance(found, dict) and isinstance(expected, dict):
        pairs = [(f"{where}.{key}".lstrip("."), found[key], expected[key]) for key in expected]
    elif isinstance(found, list) and isinstance(expected, list):
        if len(found) != len(expected):
            return f"{where} has {len(found)} entries; expected {len(expected)}"
        both = enumerate(zip(found, expected, strict=True))
        pairs = [(f"{where}[{index}]", left, right) for index, (left, right) in both]
    else:
        return None if found == expected else f"{where} is {found!r}; expected {expected!r}"
    differences = (_find_difference(left, right, at) for at, left, right in pairs)
    return next((difference for difference in differences if difference), None)
