"""Score record v1 and scoring policy v1: the scores of a run in a form that can be hashed.

    {"schema_version": 1, "eval_run_id", "policy_digest", "k",
     "tasks": [{"task_id", "trial_scores_f64be": [k of them],
                "aggregate_score_f64be", "passed_trials"}],      sorted by task_id
     "final": {"job_score_f64be", "passed_tasks", "total_tasks"}}

Both documents have exactly one canonical form: sorted keys, no blanks, UTF-8, NFC text, whole
numbers only, and each score as the 16 hex digits of its double. Any other form is refused.
Everything except the trial scores follows from them and the policy, which `check_score_record`
checks. Whether the trials really happened cannot be checked here.
"""

import json
import re
import struct
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NoReturn

from proctor.digest import sha256_hex
from proctor.errors import InvalidKeepPolicyError, PolicyError, ScoreRecordError
from proctor.json_values import check_values
from proctor.record.policy import Aggregation, Keep, KeepPolicy, aggregate_trials, job_score
from proctor.reward.number import bits

type Json = str | int | list[Json] | dict[str, Json] | None
"""A value in a canonical document; bool is a subclass of int."""


def parse_json(data: bytes) -> object:
    """Parse a document in any unambiguous form.

    Raises:
        ScoreRecordError: not UTF-8, not JSON, a number that is not whole, or a key given twice.
    """
    try:
        check_values(data)
        return json.loads(
            data.decode("utf-8"),
            object_pairs_hook=_unique,
            parse_float=_refuse_number,
            parse_constant=_refuse_number,
        )
    except RecursionError as error:
        raise ScoreRecordError("the document is nested too deeply to parse") from error
    except ValueError as error:
        raise ScoreRecordError(f"the document is not JSON in UTF-8: {error}") from error


def render_canonical(value: Json) -> bytes:
    """Render a document in its canonical form.

    Raises:
        ScoreRecordError: a text in it is not NFC: another form would look the same.
    """
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    if not unicodedata.is_normalized("NFC", text):
        raise ScoreRecordError("the document has text that is not NFC; expected NFC throughout")
    return text.encode("utf-8")


def canonical_digest(value: Json) -> str:
    """SHA-256 of the canonical form."""
    return sha256_hex(render_canonical(value))


def parse_object(value: object, where: str, fields: Sequence[str]) -> dict[str, object]:
    """Check for an object with exactly these fields."""
    if not isinstance(value, dict):
        raise ScoreRecordError(f"{where} is {value!r}; expected an object")
    for name in fields:
        if name not in value:
            raise ScoreRecordError(f"{where} has no {name}")
    for name in value:
        if name not in fields:
            raise ScoreRecordError(f"{where} has a field {name!r}; expected {', '.join(fields)}")
    return value


def parse_list(value: object, where: str) -> list[object]:
    """Check for a list that is not empty."""
    if not isinstance(value, list) or not value:
        raise ScoreRecordError(f"{where} is {value!r}; expected a list that is not empty")
    return value


def parse_count(value: object, where: str, *, least: int = 0) -> int:
    """Check for a whole number of at least `least`."""
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise ScoreRecordError(f"{where} is {value!r}; expected a whole number, {least} or more")
    return value


def parse_text(value: object, where: str) -> str:
    """Check for a text."""
    if not isinstance(value, str):
        raise ScoreRecordError(f"{where} is {value!r}; expected a text")
    return value


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    result = dict(pairs)
    if len(result) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise ScoreRecordError(f"the key {twice!r} is given twice in one object")
    return result


def _refuse_number(text: str) -> NoReturn:
    raise ScoreRecordError(f"the document has the number {text}; expected whole numbers only")


_DIGITS = re.compile("[0-9a-f]{16}")
_NEGATIVE_ZERO = 1 << 63


def render_f64be(score: float) -> str:
    """Render a score as 16 hex digits.

    Raises:
        ScoreRecordError: it is not a valid score.
    """
    if not 0.0 <= score <= 1.0:
        raise ScoreRecordError("score must be finite and in [0, 1]")
    pattern = bits(score)
    if pattern == _NEGATIVE_ZERO:
        raise ScoreRecordError("negative zero is not canonical")
    return f"{pattern:016x}"


def parse_f64be(text: object, where: str) -> float:
    """Parse a score from 16 hex digits.

    Raises:
        ScoreRecordError: it is not 16 lower-case hex digits, or not a valid score.
    """
    if not isinstance(text, str) or _DIGITS.fullmatch(text) is None:
        raise ScoreRecordError(f"{where} is {text!r}; expected 16 lower-case hex digits")
    (score,) = struct.unpack(">d", bytes.fromhex(text))
    try:
        render_f64be(score)
    except ScoreRecordError as error:
        raise ScoreRecordError(f"{where} is {text}: {error}") from error
    return float(score)


_FIELDS = (
    "schema_version",
    "per_task_aggregation",
    "keep_policy",
    "drop_lowest_n",
    "threshold_f64be",
)
_AGGREGATIONS = {"mean": Aggregation.MEAN, "best_of_k": Aggregation.BEST_OF_K}
_KEEP_POLICIES = {
    "off": KeepPolicy.OFF,
    "drop_lowest_n": KeepPolicy.DROP_LOWEST_N,
    "threshold_band": KeepPolicy.THRESHOLD_BAND,
}


@dataclass(frozen=True, slots=True)
class ScoringPolicy:
    """How trials are aggregated to task scores, and task scores to the job's."""

    aggregation: Aggregation = Aggregation.MEAN
    keep: Keep = field(default_factory=Keep)

    def __post_init__(self) -> None:
        if self.keep.policy is KeepPolicy.BEST_OF_K:
            names = ", ".join(_KEEP_POLICIES.values())
            raise InvalidKeepPolicyError(
                f"keep policy best-of-k cannot be used in a scoring policy; expected one of {names}"
            )

    @property
    def document(self) -> dict[str, Json]:
        """The document that is hashed."""
        policy = self.keep.policy
        # Parameters that the policy does not use are neutral, so that equal policies hash alike.
        dropping = policy is KeepPolicy.DROP_LOWEST_N
        banding = policy is KeepPolicy.THRESHOLD_BAND
        return {
            "schema_version": 1,
            "per_task_aggregation": self.aggregation.replace("-", "_"),
            "keep_policy": policy.replace("-", "_"),
            "drop_lowest_n": self.keep.drop_lowest_n if dropping else 0,
            "threshold_f64be": render_f64be(self.keep.threshold) if banding else None,
        }

    @property
    def digest(self) -> str:
        """SHA-256 of the canonical document."""
        return canonical_digest(self.document)


def parse_scoring_policy(data: bytes) -> ScoringPolicy:
    """Parse a scoring policy.

    Raises:
        PolicyError: a field is missing, unknown, out of range or not neutral.
    """
    try:
        return _parse_policy(parse_object(parse_json(data), "the scoring policy", _FIELDS))
    except ScoreRecordError as error:
        raise PolicyError(str(error)) from error


def _parse_policy(fields: dict[str, object]) -> ScoringPolicy:
    version = parse_count(fields["schema_version"], "schema_version")
    if version != 1:
        raise PolicyError(f"schema_version is {version}; expected 1")
    aggregation = _parse_name(fields, "per_task_aggregation", _AGGREGATIONS)
    policy = _parse_name(fields, "keep_policy", _KEEP_POLICIES)
    count = parse_count(fields["drop_lowest_n"], "drop_lowest_n")
    if policy is not KeepPolicy.DROP_LOWEST_N and count != 0:
        raise PolicyError(f"drop_lowest_n is {count}; expected 0 for a policy that drops nothing")
    return ScoringPolicy(aggregation, Keep(policy, count, _parse_threshold(fields, policy)))


def _parse_threshold(fields: dict[str, object], policy: KeepPolicy) -> float:
    threshold = fields["threshold_f64be"]
    if policy is KeepPolicy.THRESHOLD_BAND:
        return parse_f64be(threshold, "threshold_f64be")
    if threshold is not None:
        raise PolicyError(f"threshold_f64be is {threshold!r}; expected null without a band")
    return 0.0


def _parse_name[T](fields: dict[str, object], key: str, names: dict[str, T]) -> T:
    name = parse_text(fields[key], key)
    if name not in names:
        raise PolicyError(f"{key} is {name!r}; expected one of {', '.join(names)}")
    return names[name]


_RECORD_FIELDS = ("schema_version", "eval_run_id", "policy_digest", "k", "tasks", "final")
_TASK_FIELDS = ("task_id", "trial_scores_f64be", "aggregate_score_f64be", "passed_trials")
_FINAL_FIELDS = ("job_score_f64be", "passed_tasks", "total_tasks")
_MAX_ID = 128


@dataclass(frozen=True, slots=True)
class TaskScores:
    """The scores of one task."""

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
        """The document that is hashed."""
        return {
            "task_id": self.task_id,
            "trial_scores_f64be": [render_f64be(score) for score in self.trials],
            "aggregate_score_f64be": render_f64be(self.aggregate),
            "passed_trials": self.passed_trials,
        }


@dataclass(frozen=True, slots=True)
class ScoreRecord:
    """The scores of a run, as hashed."""

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
    """Number of tasks that scored exactly 1, of all tasks."""
    total_tasks: int
    """Number of all tasks, kept or not."""

    @property
    def document(self) -> dict[str, Json]:
        """The document that is hashed."""
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
    """Make the score record of a run from the trial scores of its tasks.

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
    """Render the canonical form of a record, which its digest covers."""
    return render_canonical(record.document)


def parse_score_record(data: bytes) -> ScoreRecord:
    """Parse a score record. Checks its structure; `check_score_record` checks its numbers.

    Raises:
        ScoreRecordError: a field is invalid; the message says which.
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
    """Check that everything in the record follows from its trial scores and this policy.

    Raises:
        ScoreRecordError: a field does not; the message names the first.
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
    """Describe the first difference, in the order of the format."""
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
