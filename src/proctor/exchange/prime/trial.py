"""Make a sealable trial of a sample: a partial record, and its evidence.

    conversation.jsonl   the messages
    prime_sample.json    the sample as Prime returned it
    output.md            the answer submitted with submit_answer, or under its own name

One format of samples keeps in `info` what the other has at the top level; `info`, calls and their
arguments may be the JSON text of an object. Deterministic: the same sample gives the same bytes. A
missing reward is null, never 0. The path of a submitted file is an agent's: the file stays in the
trial, and takes no name of ours.
"""

import json
import re
import sys
from collections import Counter
from datetime import UTC, datetime
from pathlib import PurePosixPath
from typing import Any, Final

import msgspec
from pydantic import ValidationError

from proctor.errors import PrimeError, RecordError
from proctor.exchange.prime.service import Evaluation
from proctor.ledger.admission import is_evidence_path
from proctor.ledger.entry import Source
from proctor.ledger.sealing import Submission
from proctor.record import model
from proctor.record.cost import CostRecord
from proctor.record.document import render_refusal
from proctor.record.ids import make_id
from proctor.record.read import render_record
from proctor.record.reasons import ReasonCode
from proctor.record.rules import check_record
from proctor.sentence import shown
from proctor.times import parse_utc
from proctor.traces.entry import Object
from proctor.trial.finding import FindingCode

_CONVERSATION: Final = "conversation.jsonl"
_SAMPLE: Final = "prime_sample.json"
_OUTPUT: Final = "output.md"
_HOSTED: Final = "prime-hosted"
_SUBMIT: Final = "submit_answer"
_REWARD: Final = "aec_bench_reward"
# Our own files, and names that would be taken for the trial's trace.
_RESERVED: Final = frozenset({_CONVERSATION, _SAMPLE, "trajectory.jsonl", "trajectory.json"})
# Environments made from a benchmark put the task's name in place of the answer.
_TASK_NAME = re.compile(r"(?=.{1,200}$)[\w.-]+(/[\w.-]+)+")
_OF_INFO: Final = frozenset({"task_id", "task_revision", "instruction", "dataset"})


class _Sample(msgspec.Struct, frozen=True, kw_only=True):
    """One rollout of a model on an example."""

    task_id: str = ""
    task_revision: str = ""
    instruction: str = ""
    dataset: dict[str, str | int | float | None] = {}
    prompt: str | list[dict[str, Any]] = []
    completion: str | list[dict[str, Any]] = []
    answer: Any = None
    example_id: str | int | None = None
    rollout_number: int | None = None
    metrics: dict[str, Any] = {}
    error: str | dict[str, Any] = ""
    stop_condition: Any = None
    is_completed: bool | None = None
    is_truncated: bool | None = None
    token_usage: dict[str, Any] = {}
    timing: dict[str, Any] = {}
    total_time: float | None = None
    latency_ms: float | None = None
    created_at: str = ""

    @property
    def failure(self) -> str | None:
        """Why the rollout failed."""
        error: Any = self.error
        if isinstance(error, dict) and error:
            error = error.get("error_chain_str") or error.get("error") or error
        return _whole(error if isinstance(error, str) else shown(error)) if error else None

    def seconds(self, phase: str) -> float | None:
        """How long a phase took: a number, a span, or a number of milliseconds."""
        given, milliseconds = self.timing.get(phase), self.timing.get(f"{phase}_ms")
        length = given.get("duration") if isinstance(given, dict) else given
        return milliseconds / 1000 if length is None and milliseconds is not None else length


def submit_sample(evaluation: Evaluation, experiment: str, name: str, value: Any) -> Submission:
    """Make the trial of a sample.

    Raises:
        PrimeError: the sample is invalid; the message says which one and why.
    """
    where = f"sample {shown(name)}"
    try:
        return _submit(evaluation, experiment, name, msgspec.convert(value, dict[str, Any]))
    except ValidationError as error:
        raise PrimeError(f"{where}: a record cannot store it: {render_refusal(error)}") from error
    except RecursionError as error:
        raise PrimeError(f"{where}: nested too deeply") from error
    except (PrimeError, RecordError, ValueError, TypeError, OverflowError) as error:
        raise PrimeError(f"{where}: {error}") from error


def _submit(evaluation: Evaluation, experiment: str, name: str, value: Object) -> Submission:
    info = _parse(value.get("info") or {})
    own = {key: given for key, given in value.items() if key not in _OF_INFO}
    known = (item for each in (info, own) for item in each.items() if item[1] is not None)
    sample = msgspec.convert(dict(known), _Sample)
    reward = _find_reward(value, sample.metrics)
    rows = [*_read_rows(sample.prompt, "user"), *_read_rows(sample.completion, "assistant")]
    calls = [_read_call(call) for row in rows for call in row.get("tool_calls", ())]
    files = {
        _CONVERSATION: b"".join(json.dumps(row, sort_keys=True).encode() + b"\n" for row in rows),
        _SAMPLE: json.dumps(value, sort_keys=True, indent=2, allow_nan=False).encode(),
    }
    output, findings = None, list[Object]()
    for called, asked in calls:
        content, path = asked.get("content"), asked.get("path") or _OUTPUT
        if called == _SUBMIT and isinstance(content, str) and content:
            output = _place(path) if isinstance(path, str) else _OUTPUT
            files[output] = content.encode("utf-8", "replace")
            if str(PurePosixPath(str(path))) != output:
                findings.append(
                    {
                        "code": str(FindingCode.FILES_REFUSED),
                        "phase": "import",
                        "message": "the submitted file names a path that is not its own to write; "
                        f"its content is kept as {output}",
                        "detail": {"files": [_whole(shown(path))]},
                    }
                )
            break
    by_tool = Counter(called for called, _ in calls)
    counts = {
        "total": len(calls),
        _SUBMIT: by_tool[_SUBMIT],
        "by_tool": dict(sorted(by_tool.items())),
    }
    record = _make_record(evaluation, experiment, name, sample, reward, counts, output)
    check_record(record)
    missing = ReasonCode.HARBOR_TRIAL_FAILED if sample.failure else ReasonCode.HARBOR_REWARD_MISSING
    return Submission(
        record=render_record(record),
        where=f"sample {shown(name)}",
        attached=files,
        findings=tuple(findings),
        cost_basis="unknown",
        reason_code=str(missing) if reward[0] is None else None,
        source=Source(kind="prime", name=evaluation.evaluation_id),
    )


def _make_record(
    evaluation: Evaluation,
    experiment: str,
    name: str,
    sample: _Sample,
    scored: tuple[float | None, str | None],
    tool_calls: Object,
    output: str | None,
) -> model.TrialRecord:
    reward, reward_key = scored
    # A reward shows that the answer was read and the verifier finished; a 0 does too.
    is_scored, is_whole = reward is not None, sample.is_completed and not sample.is_truncated
    notes: list[str] = []
    latency = None if sample.latency_ms is None else sample.latency_ms / 1000
    totals = (sample.total_time, sample.seconds("total"), latency)
    total = next((each for each in totals if each is not None), None)
    when = _find_time(sample, evaluation, notes)
    if total is None:
        notes.append("total_seconds is 0: the sample does not say how long it took")
    task, version = sample.dataset.get("name"), sample.dataset.get("version")
    tokens = [sample.token_usage.get(key) for key in ("input_tokens", "output_tokens")]
    n_in, n_out = (None if given is None else int(given) for given in tokens)
    return model.TrialRecord(
        trial_id=make_id(f"prime-{evaluation.evaluation_id}-{name}"),
        experiment_id=experiment,
        dataset_id=None if not task or version in (None, "") else f"{task}@{version}",
        timestamp=when,
        task=model.TaskReference(
            task_id=_find_task(sample), task_revision=_whole(sample.task_revision or _HOSTED)
        ),
        agent=model.AgentReference(
            adapter=_HOSTED, model=_whole(evaluation.model), configuration=evaluation.configuration
        ),
        environment=model.EnvironmentSnapshot(runtime_image=_HOSTED, compute_backend=_HOSTED),
        inputs=model.InputRecord(instruction=_find_instruction(sample)),
        outputs=model.OutputRecord(
            agent_output=model.AgentOutput(
                status="failed" if sample.failure else "completed" if is_whole else "partial",
                output_path=output or _OUTPUT,
                output_format="markdown",
                error_message=sample.failure,
            ),
            raw_output_path=output,
            conversation_path=_CONVERSATION,
            agent_result={
                "source": "prime-eval-samples",
                "prime_evaluation_id": evaluation.evaluation_id,
                "prime_sample_id": name,
                "example_id": sample.example_id,
                "rollout_number": sample.rollout_number,
                "stop_condition": sample.stop_condition,
                "is_completed": sample.is_completed,
                "is_truncated": sample.is_truncated,
                "error": sample.failure,
                "reward_key": reward_key if is_scored else None,
                "tool_calls": tool_calls,
                "metrics": sample.metrics,
                "notes": notes,
            },
        ),
        evaluation=model.EvaluationResult(
            reward=reward,
            validity=model.ValidityCheck(
                output_parseable=is_scored,
                schema_valid=is_scored,
                verifier_completed=is_scored,
                errors=() if sample.failure is None else (sample.failure,),
            ),
            breakdown=sample.metrics,
        ),
        timing=model.TimingRecord(
            total_seconds=total or 0.0,
            agent_seconds=sample.seconds("generation"),
            verification_seconds=sample.seconds("scoring"),
        ),
        # Tokens only; input_tokens is all input, summed over the rollout's calls.
        cost=None if n_in is n_out is None else CostRecord(tokens_in=n_in, tokens_out=n_out),
        completeness="partial",
    )


def _parse(value: Any) -> Object:
    """An object that is given as such, or as JSON text."""
    return msgspec.convert(json.loads(value) if isinstance(value, str) else value, dict[str, Any])


def _whole(text: str) -> str:
    """Replace lone surrogates, which UTF-8 cannot encode."""
    return text.encode("utf-8", "replace").decode()


def _read_rows(messages: str | list[Object], role: str) -> list[Object]:
    """Rows of conversation.jsonl."""
    if isinstance(messages, str):
        # Prompt and completion of a model without chat roles.
        return [{"role": role, "content": messages}] if messages else []
    rows: list[Object] = []
    for message in messages:
        row: Object = {"role": message.get("role") or "", "content": message.get("content") or ""}
        if given := message.get("tool_calls"):
            calls = json.loads(given) if isinstance(given, str) else given
            row["tool_calls"] = list(map(_parse, calls if isinstance(calls, list) else [calls]))
        if message.get("tool_call_id"):
            row["tool_call_id"] = message["tool_call_id"]
        rows.append(row)
    return rows


def _read_call(call: Object) -> tuple[str, Object]:
    """The tool and the arguments of a call, which are the agent's: they may be anything."""
    function: Any = call.get("function")
    named = function if isinstance(function, dict) else call
    try:
        arguments = _parse(named.get("arguments"))
    except (ValueError, RecursionError):
        arguments = {}
    return _whole(str(named.get("name") or "")), arguments


def _place(path: str) -> str:
    """The name for a submitted file: its path, else the last part of it, else output.md."""
    asked = PurePosixPath(path)
    for name in (asked, PurePosixPath(asked.name)):
        parts = [part.lower() for part in name.parts]
        # Directories of records begin with _, and Windows separates names with a backslash.
        is_free = not _RESERVED & {*parts} and not any(part.startswith("_") for part in parts)
        if is_free and "\\" not in str(name) and is_evidence_path(str(name)):
            return str(name)
    return _OUTPUT


def _find_reward(value: Object, metrics: Object) -> tuple[float | None, str | None]:
    """The reward and its key; None if the sample was not scored."""
    known = {**{f"metrics.{key}": each for key, each in metrics.items()}, **value}
    keys = ("reward", _REWARD, "score", f"metrics.{_REWARD}")
    key = next((key for key in keys if key in known), None)
    given = known.get(key or "")
    if given is None:
        return None, key
    if type(given) not in (int, float) or not abs(given) <= sys.float_info.max:
        raise PrimeError(f"{key} is {shown(given)}; expected a finite number or null")
    return float(given), key


def _find_time(sample: _Sample, evaluation: Evaluation, notes: list[str]) -> datetime:
    """When it was created, else when the evaluation was, else 1970."""
    when, otherwise = (parse_utc((each.created_at or "").strip()) for each in (sample, evaluation))
    if when is None and otherwise is None:
        notes.append("timestamp is no time: neither sample nor evaluation has a created_at")
    elif when is None:
        notes.append("timestamp is the evaluation's: the sample has no created_at")
    return when or otherwise or datetime(1970, 1, 1, tzinfo=UTC)


def _find_task(sample: _Sample) -> str:
    """The task's name; an answer is used only if it looks like a task name."""
    answer, example = sample.answer, sample.example_id
    if not sample.task_id and isinstance(answer, str) and _TASK_NAME.fullmatch(answer):
        return answer
    return _whole(sample.task_id or f"prime/{'unknown' if example in (None, '') else example}")


def _find_instruction(sample: _Sample) -> str:
    """The example's instruction, else the first text of a user message."""
    said = [sample.instruction, *([sample.prompt] if isinstance(sample.prompt, str) else [])]
    for message in sample.prompt if isinstance(sample.prompt, list) else []:
        content = message.get("content")
        parts = content if isinstance(content, list) else [content]
        texts = [each.get("text") if isinstance(each, dict) else each for each in parts]
        if message.get("role") == "user":
            said.append("\n".join(each for each in texts if isinstance(each, str)))
    return _whole(next((text for text in said if text.strip()), "Prime hosted evaluation sample"))
