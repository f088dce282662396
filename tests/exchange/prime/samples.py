"""Samples as Prime has them, in both shapes."""

import json
from typing import Any

import msgspec

from proctor.exchange.prime.service import Evaluation
from proctor.exchange.prime.trial import submit_sample
from proctor.ledger.sealing import Submission
from proctor.record.model import TrialRecord

EVALUATION: dict[str, Any] = {
    "evaluation_id": "ev1",
    "name": "Nightly",
    "model_name": "acme/m",
    "viewer_url": "https://example.org/ev1",
    "eval_config": {"num_examples": 2, "rollouts_per_example": 3},
    "created_at": "2026-05-01T00:00:00Z",
}
CALL = {
    "id": "call-1",
    "type": "function",
    "function": {
        "name": "submit_answer",
        "arguments": json.dumps({"content": "# Heat load\n", "path": "output.md"}),
    },
}
PROMPT = [
    {"role": "system", "content": "Be exact."},
    {"role": "user", "content": "Compute the heat load."},
]


def make_b(name: str = "s1", **changes: Any) -> dict[str, Any]:
    """A sample with everything on top."""
    return {
        "sample_id": name,
        "example_id": 7,
        "rollout_number": 2,
        "prompt": PROMPT,
        "completion": [
            {"role": "assistant", "content": "", "tool_calls": [CALL], "reasoning": "hm"},
            {"role": "tool", "content": "ok", "tool_call_id": "call-1"},
        ],
        "reward": 0.5,
        "metrics": {"aec_bench_reward": 0.5, "num_turns": 2.0, "submit_answer_calls": 1.0},
        "timing": {
            "total": 12.5,
            "generation": {"start": 0.0, "end": 10.0, "duration": 10.0},
            "scoring": {"duration": 2.5},
        },
        "token_usage": {"input_tokens": 120.0, "output_tokens": 30.0},
        "stop_condition": "submitted",
        "is_completed": True,
        "is_truncated": False,
        "error": None,
        "created_at": "2026-05-02T10:00:00Z",
        "info": {
            "task_id": "hvac/heat-load",
            "task_revision": "abc123",
            "dataset": {"name": "aec", "version": "1.2"},
        },
        **changes,
    }


def make_a(name: str = "s1") -> dict[str, Any]:
    """The same sample with most of it in `info`, which is text, and with calls as text."""
    sample = make_b(name)
    info = {
        **sample["info"],
        "metrics": sample.pop("metrics"),
        "timing": {"total_ms": 12500, "generation_ms": 10000, "scoring_ms": 2500},
        "token_usage": {"input_tokens": 120, "output_tokens": 30},
        "stop_condition": sample.pop("stop_condition"),
        "is_completed": sample.pop("is_completed"),
    }
    for key in ("timing", "token_usage", "is_truncated", "error"):
        del sample[key]
    completion = [dict(row) for row in sample["completion"]]
    completion[0]["tool_calls"] = [json.dumps(CALL)]
    completion[1]["tool_calls"] = ""
    return {**sample, "completion": completion, "info": json.dumps(info)}


def small(number: int, **changes: Any) -> dict[str, Any]:
    """A sample of few bytes."""
    return {
        "sample_id": f"s{number}",
        "example_id": number,
        "prompt": [{"role": "user", "content": f"question {number}"}],
        "completion": [{"role": "assistant", "content": "answer"}],
        "reward": (number % 5) / 4,
        "is_completed": True,
        "created_at": "2026-05-02T10:00:00Z",
        **changes,
    }


def evaluation(**changes: Any) -> Evaluation:
    return msgspec.convert({**EVALUATION, **changes}, Evaluation)


def submit(sample: Any, name: str = "s1", **changes: Any) -> Submission:
    """The trial of a sample."""
    return submit_sample(evaluation(**changes), "nightly", name, sample)


def record_of(sample: Any, **changes: Any) -> TrialRecord:
    """The record of a sample."""
    return TrialRecord.model_validate_json(submit(sample, **changes).record)
