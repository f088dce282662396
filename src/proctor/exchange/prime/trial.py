"""Make a sealable trial of a sample: a partial record, and its evidence.

    conversation.jsonl   the messages
    prime_sample.json    the sample as Prime returned it
    output.md            the answer submitted with submit_answer, or under its own name

Deterministic: the same sample gives the same bytes. A missing reward is null, never 0; what could
not be read is listed in `outputs.agent_result.notes`.
"""

import json
import re
from dataclasses import dataclass
from typing import Any

import msgspec
from pydantic import ValidationError

from proctor.errors import PrimeError, RecordError
from proctor.exchange.foreign_values import find_text, whole_text
from proctor.exchange.prime.listing import Evaluation, Listed
from proctor.exchange.prime.sample import (
    CONVERSATION,
    OUTPUT,
    SAMPLE,
    Sample,
    Submitted,
    count_calls,
    find_instruction,
    find_object,
    find_submitted,
    read_conversation,
    render_rows,
    trial_name,
)
from proctor.ledger.entry import Source
from proctor.ledger.sealing import Submission
from proctor.record.cost import CostRecord
from proctor.record.model import (
    AgentOutput,
    AgentReference,
    EnvironmentSnapshot,
    EvaluationResult,
    InputRecord,
    OutputRecord,
    TaskReference,
    TimingRecord,
    TrialRecord,
    ValidityCheck,
)
from proctor.record.read import render_record
from proctor.record.reasons import ReasonCode
from proctor.record.rules import check_dataset_id, check_record
from proctor.sentence import shown
from proctor.traces.entry import Object
from proctor.trial.finding import FindingCode

_HOSTED = "prime-hosted"
# Environments made from a benchmark put the task's name in place of the answer.
_TASK_NAME = re.compile(r"[\w.-]+(/[\w.-]+)+")
_LONGEST_NAME = 200


@dataclass(frozen=True, slots=True)
class _Rollout:
    """A sample with values derived from it."""

    evaluation: Evaluation
    sample: Sample
    sample_id: str
    submitted: Submitted | None
    calls: Object
    """Number of calls of each tool."""
    instruction: str


def submit_sample(evaluation: Evaluation, experiment: str, listed: Listed) -> Submission:
    """Make the trial of a sample.

    Raises:
        InputError: the sample is invalid; the message says which one and why.
    """
    where = f"sample {shown(listed.name)}"
    try:
        return _submit(evaluation, experiment, listed)
    except (PrimeError, RecordError) as error:
        raise PrimeError(f"{where}: {error}") from error
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(map(str, first["loc"]))
        raise PrimeError(f"{where}: a record cannot store {place}: {first['msg']}") from error
    except RecursionError as error:
        raise PrimeError(f"{where}: nested too deeply") from error


def _submit(evaluation: Evaluation, experiment: str, listed: Listed) -> Submission:
    if not isinstance(listed.value, dict):
        raise PrimeError(f"is {shown(listed.value)}; expected an object")
    raw = render_sample(listed.value)
    sample = Sample(listed.value)
    talk = read_conversation(sample.value, sample.notes)
    submitted = find_submitted(talk.rows)
    rollout = _Rollout(
        evaluation=evaluation,
        sample=sample,
        sample_id=listed.name,
        submitted=submitted,
        calls=count_calls(talk.rows),
        instruction=find_text(sample.info.get("instruction"))
        or find_instruction(talk.prompt)
        or "Prime hosted evaluation sample",
    )
    record = _make_record(rollout, experiment)
    check_record(record)
    files = {CONVERSATION: render_rows(talk.rows), SAMPLE: raw}
    if submitted is not None:
        files[submitted.name] = submitted.data
    return Submission(
        record=render_record(record),
        where=f"sample {shown(listed.name)}",
        attached=files,
        findings=_find_moved(submitted),
        cost_basis="unknown",
        reason_code=_find_reason(record, sample),
        source=Source(kind="prime", name=evaluation.id),
    )


def render_sample(value: Object) -> bytes:
    """Render prime_sample.json: sorted keys, an indent of 2, ASCII.

    Raises:
        PrimeError: it has NaN or an infinite number, which JSON does not allow.
    """
    try:
        text = json.dumps(value, sort_keys=True, allow_nan=False)
    except ValueError as error:
        raise PrimeError("has NaN or an infinite number; expected a JSON value") from error
    try:
        # Ten times as fast as json.dumps with an indent, which has no C implementation.
        return msgspec.json.format(text.encode(), indent=2)
    except msgspec.DecodeError:
        # A lone surrogate, which only Python's encoder accepts.
        return json.dumps(value, sort_keys=True, indent=2).encode()


def _make_record(rollout: _Rollout, experiment: str) -> TrialRecord:
    evaluation, sample = rollout.evaluation, rollout.sample
    reward, reward_key = sample.reward()
    return TrialRecord(
        trial_id=trial_name(evaluation.id, rollout.sample_id),
        experiment_id=experiment,
        dataset_id=_find_dataset(sample),
        timestamp=sample.timestamp(evaluation.created_at),
        task=TaskReference(
            task_id=whole_text(_find_task(sample)),
            task_revision=whole_text(find_text(sample.info.get("task_revision")) or _HOSTED),
        ),
        agent=AgentReference(
            adapter=_HOSTED,
            model=whole_text(evaluation.model),
            configuration=evaluation.configuration,
        ),
        environment=EnvironmentSnapshot(runtime_image=_HOSTED, compute_backend=_HOSTED),
        inputs=InputRecord(instruction=whole_text(rollout.instruction)),
        evaluation=EvaluationResult(
            reward=reward,
            validity=_judge(sample, is_scored=reward is not None),
            breakdown=sample.metrics,
        ),
        timing=_make_timing(sample),
        cost=_make_cost(sample),
        completeness="partial",
        # Last, because it contains the notes of all the steps before.
        outputs=_make_outputs(rollout, reward_key if reward is not None else None),
    )


def _judge(sample: Sample, *, is_scored: bool) -> ValidityCheck:
    """A reward shows that the answer was read and the verifier finished; a 0 does too."""
    return ValidityCheck(
        output_parseable=is_scored,
        schema_valid=is_scored,
        verifier_completed=is_scored,
        errors=() if sample.error is None else (sample.error,),
    )


def _make_outputs(rollout: _Rollout, reward_key: str | None) -> OutputRecord:
    sample, submitted = rollout.sample, rollout.submitted
    return OutputRecord(
        agent_output=AgentOutput(
            status=sample.ending,
            output_path=OUTPUT if submitted is None else submitted.name,
            output_format="markdown",
            error_message=sample.error,
        ),
        raw_output_path=None if submitted is None else submitted.name,
        conversation_path=CONVERSATION,
        agent_result={
            "source": "prime-eval-samples",
            "prime_evaluation_id": rollout.evaluation.id,
            "prime_sample_id": rollout.sample_id,
            "example_id": sample.value.get("example_id"),
            "rollout_number": sample.value.get("rollout_number"),
            "stop_condition": sample.either("stop_condition"),
            "is_completed": sample.either("is_completed"),
            "is_truncated": sample.either("is_truncated"),
            "error": sample.error,
            "reward_key": reward_key,
            "tool_calls": rollout.calls,
            "metrics": sample.metrics,
            "notes": list(map(whole_text, sample.notes)),
        },
    )


def _make_timing(sample: Sample) -> TimingRecord:
    seconds = sample.seconds()
    if seconds.total is None:
        sample.notes.append("total_seconds is 0: the sample does not say how long it took")
    return TimingRecord(
        total_seconds=seconds.total or 0.0,
        agent_seconds=seconds.generation,
        verification_seconds=seconds.scoring,
    )


def _make_cost(sample: Sample) -> CostRecord | None:
    """Tokens only; input_tokens is all input, summed over the rollout's calls."""
    tokens_in, tokens_out = sample.tokens("input_tokens"), sample.tokens("output_tokens")
    if tokens_in is None and tokens_out is None:
        return None
    return CostRecord(tokens_in=tokens_in, tokens_out=tokens_out)


def _find_dataset(sample: Sample) -> str | None:
    dataset = find_object(sample.info.get("dataset")) or {}
    name, version = find_text(dataset.get("name")), dataset.get("version")
    if name is None or version in (None, ""):
        return None
    dataset_id = f"{name}@{version if isinstance(version, str) else shown(version)}"
    try:
        check_dataset_id(dataset_id)
    except RecordError as error:
        sample.notes.append(str(error))
        return None
    return dataset_id


def _find_task(sample: Sample) -> str:
    """The task's name; an answer is used only if it looks like a task name."""
    named = find_text(sample.info.get("task_id"))
    if named is not None:
        return named
    answer: Any = sample.value.get("answer")
    if isinstance(answer, str) and len(answer) <= _LONGEST_NAME and _TASK_NAME.fullmatch(answer):
        return answer
    example = sample.value.get("example_id")
    if example is None or example == "":
        return "prime/unknown"
    return f"prime/{example if isinstance(example, str) else shown(example)}"


def _find_reason(record: TrialRecord, sample: Sample) -> str | None:
    if record.evaluation.reward is not None:
        return None
    failed = sample.error is not None
    return str(ReasonCode.HARBOR_TRIAL_FAILED if failed else ReasonCode.HARBOR_REWARD_MISSING)


def _find_moved(submitted: Submitted | None) -> tuple[dict[str, Any], ...]:
    if submitted is None or submitted.asked is None:
        return ()
    return (
        {
            "code": str(FindingCode.FILES_REFUSED),
            "phase": "import",
            "message": "the submitted file names a path that is not its own to write; its content "
            f"is kept as {submitted.name}",
            "detail": {"files": [whole_text(submitted.asked)]},
        },
    )
