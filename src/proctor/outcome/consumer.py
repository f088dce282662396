"""How the reader of the result line takes a finished run: stdout, exit code, time-out.

This is the other end of `line`, with agent-challenge's exact decisions. It never repairs: a score
out of range is refused, not clamped. `resolved` and `total` are not looked at.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from proctor.outcome.line import PREFIX
from proctor.outcome.reasons import ReasonCode, normalize_reason

TIMED_OUT = "timed_out"


@dataclass(frozen=True, slots=True)
class RunReading:
    """What a run counts as."""

    status: Literal["completed", "failed", "timed_out"]
    score: float
    """0.0 unless completed."""
    reason_code: str | None
    """A code, a slug of foreign text, or `timed_out`; a completed run may have one too."""
    payload: Mapping[str, object]
    """The JSON of the line as it stands; empty if there is no readable line."""


def read_run(stdout: str, returncode: int, *, timed_out: bool, prefix: str = PREFIX) -> RunReading:
    """Judge a run. The first that applies decides.

    (1) It timed out.
    (2) Its exit code is not 0: failed, for the line's reason or as a non-zero exit.
    (3) There is no line, or its JSON is no object: failed.
    (4) Status is no text, or there is no score: partial.
    (5) Status is neither completed nor failed, or score is no number: invalid.
    (6) Score is not within 0 and 1: invalid.
    (7) Failed with a score above 0: invalid; failed with 0: failed, for the line's reason.
    (8) Completed: the score counts.
    """
    payload, problem = _find_payload(stdout, prefix)
    if timed_out:  # (1)
        return RunReading("timed_out", 0.0, TIMED_OUT, payload)
    reason = _reason(payload)
    if returncode != 0:  # (2)
        return _failed(payload, reason or ReasonCode.HARBOR_NONZERO_EXIT)
    if problem is not None:  # (3)
        return _failed(payload, problem)
    return _judge(payload, reason)


def _judge(payload: Mapping[str, object], reason: str | None) -> RunReading:
    status, score = payload.get("status"), payload.get("score")
    if not isinstance(status, str) or "score" not in payload:  # (4)
        return _failed(payload, ReasonCode.HARBOR_RESULT_PARTIAL)
    if isinstance(score, bool) or not isinstance(score, int | float):  # (5)
        return _failed(payload, ReasonCode.HARBOR_RESULT_INVALID)
    if not 0.0 <= score <= 1.0:  # (6)
        return _failed(payload, ReasonCode.HARBOR_RESULT_INVALID)
    if status == "completed":  # (8)
        return RunReading("completed", float(score), reason, payload)
    if status != "failed" or score > 0.0:  # (5) (7)
        return _failed(payload, ReasonCode.HARBOR_RESULT_INVALID)
    return _failed(payload, reason)


def _find_payload(stdout: str, prefix: str) -> tuple[dict[str, object], ReasonCode | None]:
    """The JSON of the last line that starts with the prefix. An earlier one is no substitute."""
    for line in reversed(stdout.splitlines()):
        if line.startswith(prefix):
            return _parse_payload(line.removeprefix(prefix))
    return {}, ReasonCode.HARBOR_RESULT_MISSING


def _parse_payload(text: str) -> tuple[dict[str, object], ReasonCode | None]:
    try:
        payload: object = json.loads(text)
    except (ValueError, RecursionError):
        return {}, ReasonCode.HARBOR_RESULT_MALFORMED
    if not isinstance(payload, dict):
        return {}, ReasonCode.HARBOR_RESULT_MALFORMED
    return payload, None


def _reason(payload: Mapping[str, object]) -> str | None:
    reason = payload.get("reason_code")
    return normalize_reason(reason) if isinstance(reason, str) else None


def _failed(payload: Mapping[str, object], reason: str | None) -> RunReading:
    return RunReading("failed", 0.0, reason, payload)
