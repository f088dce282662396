"""Every failed trial gets one cause, with its evidence; no cause moves a score."""

import random
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from proctor.traces.causes import (
    CHEATS,
    LONGEST_QUOTE,
    RULES,
    Case,
    CauseKind,
    find_cause,
)
from proctor.traces.failures import LogText, has_failed
from proctor.traces.limits import Limit, find_limit
from proctor.traces.tool_errors import ToolError
from proctor.trial.finding import FindingCode, Level, level_of
from tests.record.samples import made

SOURCE = Path(__file__).resolve().parent.parent.parent / "src" / "proctor"
TIME = Limit(kind="time", where="evaluation.validity.errors", said="AgentTimeoutError: late")


def erred(text: str, **more: Any) -> Case:
    name = text.partition(":")[0]
    return Case(**({"reward": None, "exceptions": ((name, text),)} | more))


def printed(text: str, reward: float | None = 0.0, **more: Any) -> Case:
    log = LogText(name="verifier/test-stdout.txt", text=text)
    return Case(reward=reward, verifier_logs=(log,), **more)


def found(code: str) -> dict[str, Any]:
    return {"code": code, "message": "seen"}


CASES = [
    (Case(reward=0.0, findings=(found("reward-planted"),)), "cheating suspected"),
    (erred("ToolsChangedError: sed is not the image's own"), "cheating suspected"),
    (erred("ModelRateLimitError: 429"), "infrastructure"),
    (erred("APIConnectionError: no route", reward=0.0), "infrastructure"),
    (Case(reward=0.0, agent_error="Command failed (exit 1): status 529"), "infrastructure"),
    (erred("EnvironmentStartTimeoutError: 60 s"), "infrastructure"),
    (erred("DockerError: no such image"), "infrastructure"),
    (erred("SandboxDiedError: its PID 1 was killed"), "infrastructure"),
    (erred("CancelledError"), "infrastructure"),
    (erred("the trial was killed before it wrote a result"), "infrastructure"),
    (erred("RuntimeError: write: No space left on device"), "infrastructure"),
    (erred("RuntimeError: Build failed: curl: (6) Could not resolve host: x"), "infrastructure"),
    (Case(reward=None, reason_code="harbor_broker_connection_failed"), "infrastructure"),
    (printed("curl: (6) Could not resolve host: astral.sh\nuvx: not found"), "infrastructure"),
    (printed("error: Failed to download `uv`", limit=TIME), "infrastructure"),
    (printed("OSError: No space left on device"), "infrastructure"),
    (erred("RuntimeError: Build failed: RUN exit 7"), "task"),
    (erred("HealthcheckError: unhealthy"), "task"),
    (Case(reward=None, verifier_completed=True, breakdown={"a": 1, "b": 0}), "task"),
    (erred("VerifierTimeoutError: 60 s"), "verifier"),
    (erred("VerifierOutputParseError: reward.json"), "verifier"),
    (Case(reward=None, reason_code="harbor_reward_missing"), "verifier"),
    (erred("missing verifier reward artifact"), "verifier"),
    (Case(reward=None, verifier_completed=True, breakdown={"reward": "nan"}), "verifier"),
    (printed("test.sh: 3: pytest: not found"), "verifier"),
    (printed("collected 0 items"), "verifier"),
    (Case(reward=0.0, findings=(found("verifier-flaky"),)), "verifier"),
    (Case(reward=0.0, limit=TIME), "limit"),
    (Case(reward=None, limit=TIME), "limit"),
    (Case(reward=None, was_verified=False), "infrastructure"),
    (erred("NonZeroAgentExitCodeError: exit 3"), "agent"),
    (printed("E   Connection refused: localhost:80\n==== 1 failed in 2s ===="), "agent"),
    (printed("curl: (7) Failed to connect to localhost port 80"), "agent"),
    (Case(reward=0.5), "agent"),
    (Case(reward=-1.0), "agent"),
    (Case(reward=None), "infrastructure"),
    (erred("KeyError: 'x'"), "infrastructure"),
    (Case(reward=None, problem="result.json: cut off"), "infrastructure"),
]


@pytest.mark.parametrize(("case", "kind"), CASES)
def test_a_failure_has_a_cause_with_evidence(case: Case, kind: str) -> None:
    cause = find_cause(case)
    assert cause is not None
    assert cause.kind == kind
    assert cause.evidence
    assert all(each.where and each.quote for each in cause.evidence)
    assert all(len(each.quote) <= LONGEST_QUOTE for each in cause.evidence)


NOT_INSTALLED = """\
Agent command failed (exit 1)
Traceback (most recent call last):
  File "/agent/run.py", line 3, in <module>
    from openai import APIConnectionError, RateLimitError
ModuleNotFoundError: No module named 'openai'
"""


@pytest.mark.parametrize(
    ("error", "rule"),
    [
        (NOT_INSTALLED, "agent-error"),
        ("ImportError: cannot import name 'RateLimitError' from 'openai'", "agent-error"),
        (NOT_INSTALLED.replace("ModuleNotFoundError: No", "ValueError: no"), "agent-error"),
        ("ModuleNotFoundError: x\nopenai.RateLimitError: code 429", "model-endpoint"),
        (
            'Traceback (most recent call last):\n  File "a"\n    go()\nRateLimitError: slow down',
            "model-endpoint",
        ),
    ],
)
def test_an_agent_that_lacks_a_module_is_no_failure_of_a_model_endpoint(
    error: str, rule: str
) -> None:
    cause = find_cause(erred("NonZeroAgentExitCodeError: exit 1", agent_error=error))
    assert cause is not None
    assert cause.rule == rule


def test_every_rule_decides_some_case() -> None:
    deciding = {cause.rule for case, _ in CASES if (cause := find_cause(case))}
    assert {rule.name for rule in RULES} <= deciding


@pytest.mark.parametrize("reward", [1.0, 1.5])
def test_a_trial_that_passed_has_none_whatever_else_is_said_of_it(reward: float) -> None:
    case = Case(reward=reward, limit=TIME, findings=(found("reward-planted"),))
    assert find_cause(case) is None
    assert not has_failed(reward)


def test_a_traceback_tells_the_phase_where_nothing_else_does() -> None:
    frames = 'File "/x/harbor/trial/single_step.py", line 63, in _run_agent\nKeyError: 1'
    case = erred("KeyError: 1", tracebacks=(LogText(name="exception.txt", text=frames),))
    cause = find_cause(case)
    assert cause is not None
    assert (cause.kind, cause.rule) == (CauseKind.AGENT, "traceback")
    assert "_run_agent" in cause.evidence[0].quote


def test_a_low_score_shows_the_failed_test_and_the_last_tool_error() -> None:
    error = ToolError(
        step=7, tool="bash", command="make", reason="exit_nonzero", exit_code=2, text="no rule"
    )
    case = printed("x\nFAILED tests/test_a.py::test_b\n==== 1 failed ====", last_error=error)
    cause = find_cause(case)
    assert cause is not None
    assert [each.where for each in cause.evidence] == [
        "evaluation.reward",
        "verifier/test-stdout.txt",
        "trace, step 7, bash",
    ]
    assert cause.evidence[1].quote == "FAILED tests/test_a.py::test_b"


def test_a_hostile_log_is_looked_through_quickly_and_quoted_in_bounds() -> None:
    draw = random.Random(1)
    words = ["passed", "=", " ", "failed to download ", "0 items", "\x1b[31m"]
    text = "== " + "".join(draw.choices(words, k=20_000))
    cause = find_cause(printed(text))
    assert cause is not None
    assert all(len(each.quote) <= LONGEST_QUOTE for each in cause.evidence)


def test_the_findings_that_speak_against_an_agent_are_the_alarms() -> None:
    assert {code for code in FindingCode if level_of(code) is Level.ALARM} == CHEATS


def test_nothing_that_scores_or_seals_knows_of_causes() -> None:
    units = [
        "reward",
        "outcome",
        "record",
        "harbor",
        "audit",
        "trial",
        "job",
        "ledger",
        "importers",
    ]
    files = [file for unit in units for file in (SOURCE / unit).rglob("*.py")]
    assert files
    knowing = [
        file
        for file in files
        if re.search(r"proctor\.traces\.(causes|limits|\w*summary)", file.read_text("utf-8"))
    ]
    assert knowing == []


# Limits


@pytest.mark.parametrize(
    ("result", "kind"),
    [
        ({"turns_used": 20, "max_turns": "20"}, "turns"),
        ({"turns_used": 3, "max_turns": 20}, None),
        ({"turns_used": "many", "max_turns": 2}, None),
        ({"stop_condition": "max_turns_reached"}, "turns"),
        ({"stop_condition": "timeout_reached"}, "time"),
        ({"stop_condition": "prompt_too_long"}, "context"),
        ({"metadata": {"stop_reason": "max_tokens"}}, "tokens"),
        ({"stop_reason": "end_turn"}, None),
        ({"is_truncated": True}, "other"),
        ({"metadata": {"ended": "limit", "limit": {"name": "max_cost_usd"}}}, "cost"),
        ({"metadata": {"ended": "answer", "limit": {"name": "max_turns"}}}, None),
        ({}, None),
    ],
)
def test_an_agents_result_tells_the_limit(result: dict[str, Any], kind: str | None) -> None:
    limit = find_limit(made(**{"outputs.agent_result": result}), None)
    assert (limit and limit.kind) == kind
    assert limit is None or limit.said


def test_an_exception_and_a_reason_code_tell_the_limit() -> None:
    errors = {"evaluation.validity.errors": ["ContextLengthExceededError: 200001"]}
    told = find_limit(made(**errors), None)
    assert told is not None
    assert (told.kind, told.where) == ("context", "evaluation.validity.errors")
    coded = find_limit(made(), "harbor_agent_timeout_error")
    assert coded is not None
    assert (coded.kind, coded.where) == ("time", "reason_code")


def test_a_cause_can_be_written_down() -> None:
    cause = find_cause(Case(reward=0.0))
    assert b'"agent"' in msgspec.json.encode(cause)
