"""Why a trial failed: one cause, by ordered rules, with the evidence for it.

The first rule with evidence decides. Rules that invalidate a score come before rules that explain
one: a trial whose verifier could not download its tools was not judged, whatever limit its agent
reached.

A cause explains a score and never changes it: the code that scores does not import this module.
Rules search for words, so a cause can be wrong; therefore each names its source and quotes it.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum
from typing import Any, Final, NamedTuple

import msgspec

from proctor.record.reasons import RETRYABLE, ReasonCode, normalize_reason
from proctor.sentence import render_figure
from proctor.traces.failures import LogText, has_failed
from proctor.traces.limits import Limit
from proctor.traces.tool_errors import ToolError

LONGEST_QUOTE: Final = 300
"""Most characters of a quote."""


class CauseKind(StrEnum):
    """Who or what caused a failure."""

    AGENT = "agent"
    """The agent did not solve the task."""
    TASK = "task"
    """The task is invalid."""
    VERIFIER = "verifier"
    """The verifier gave no valid number."""
    INFRASTRUCTURE = "infrastructure"
    """Machines, networks, endpoints, or a person who stopped it."""
    LIMIT = "limit"
    """A limit of time, turns, tokens, money or context ended it."""
    CHEATING = "cheating suspected"
    """Integrity findings suggest it."""


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """What a rule is based on."""

    where: str
    """A file of the trial, a field of the record, a finding, or a step of the trace."""
    quote: str
    """The text there, at most 300 characters."""


class Cause(msgspec.Struct, frozen=True, kw_only=True):
    """Why a trial failed."""

    kind: CauseKind
    rule: str
    """Name of the rule that decided; docs/reference/summaries.md describes each."""
    evidence: tuple[Evidence, ...]


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """The facts that the rules use."""

    reward: float | None
    """Null if not scored."""
    reason_code: str | None = None
    exceptions: tuple[tuple[str, str], ...] = ()
    """Each recorded error: its class and its text."""
    agent_error: str | None = None
    """The error with which the agent ended, according to the record."""
    verifier_completed: bool = False
    breakdown: dict[str, Any] | None = None
    findings: tuple[dict[str, Any], ...] = ()
    limit: Limit | None = None
    verifier_logs: tuple[LogText, ...] = ()
    """The verifier's output."""
    tracebacks: tuple[LogText, ...] = ()
    """Tracebacks of the exceptions that ended the trial."""
    was_verified: bool = True
    """Whether the verifier left any file."""
    is_unverified: bool = False
    """Whether the job disabled verification."""
    last_error: ToolError | None = None
    """The last tool error of the trace."""
    problem: str | None = None
    """Why there is no record."""


def quoted(where: str, text: str) -> Evidence:
    """Make evidence with a shortened quote."""
    short = text.strip()
    cut = short if len(short) <= LONGEST_QUOTE else f"{short[: LONGEST_QUOTE - 1]}…"
    return Evidence(where=where, quote=cut)


NETWORK: Final = re.compile(
    r"could not resolve host|temporary failure in name resolution|name or service not known"
    r"|temporary failure resolving|nodename nor servname|no address associated with hostname"
    r"|curl: \((?:5|6|7|28|35|52|56)\)|wget: unable to resolve|network is unreachable"
    r"|no route to host|tls handshake timeout|i/o timeout|error sending request for url"
    r"|failed to download|failed to fetch|unable to fetch some archives|max retries exceeded"
    r"|readtimeouterror|proxyerror|connecttimeout|newconnectionerror|toomanyrequests"
    r"|dns error|connection timed out|502 bad gateway|503 service unavailable",
    re.IGNORECASE,
)
"""A failed download, or a name that could not be resolved."""
MACHINE: Final = re.compile(
    r"no space left on device|cannot allocate memory|out of memory|oom-?kill"
    r"|too many open files|read-only file system|input/output error|resource temporarily unavail",
    re.IGNORECASE,
)
"""A resource of the machine ran out."""
RAN: Final = re.compile(
    r"^={2,80} .{0,200}\b(?:passed|failed)\b"
    r"|^(?:Ran \d+ tests?|ok \d+|not ok \d+|PASS(?:ED)?|FAIL(?:ED)?)\b"
    r"|\b\d+ (?:passed|failed)\b",
    re.MULTILINE,
)
"""Tests ran and were counted: network errors in them are about the agent's work."""
NO_TESTS: Final = re.compile(
    r"no tests ran|collected 0 items|INTERNALERROR|file or directory not found: /tests"
    r"|(?:pytest|uvx|uv|python3?|node|npm): (?:command )?not found|No module named '?pytest",
)
"""Tests did not start."""
FAILED: Final = re.compile(r"^(?:FAILED|FAIL:?|not ok|ERROR)\b", re.MULTILINE)
"""A test that failed."""
ENDPOINT: Final = re.compile(
    r"apiconnectionerror|apitimeouterror|ratelimiterror|rate.?limit|internalservererror"
    r"|serviceunavailable|authenticationerror|invalid api key|insufficient_quota|overloaded"
    r"|connection (?:refused|reset|aborted)|connecterror"
    r"|(?:status|error|code|http)\W{0,12}(?:429|5\d\d)\b",
    re.IGNORECASE,
)
"""A model endpoint that did not answer."""
_LOCAL: Final = re.compile(r"localhost|127\.0\.0\.1|0\.0\.0\.0|\[::1\]")
# An exception as Python prints it, at the beginning of a line.
_RAISED: Final = re.compile(
    r"^(?:[A-Za-z_]\w{0,80}\.){0,8}(\w{0,80}(?:Error|Exception))\b", re.MULTILINE
)
_IMPORTS: Final = frozenset({"ModuleNotFoundError", "ImportError"})
# Frames and quoted code of a traceback, which name exceptions that were not raised.
_QUOTED_CODE: Final = re.compile(r"^(?:  File \"|    ).*$", re.MULTILINE)


def find_line(
    logs: Sequence[LogText], words: re.Pattern[str], *, local: bool = True
) -> Evidence | None:
    """The first line with one of the words; without `local`, only lines about other machines."""
    for log in logs:
        for match in words.finditer(log.text):
            start = log.text.rfind("\n", 0, match.start()) + 1
            end = log.text.find("\n", match.end())
            line = log.text[start : end if end >= 0 else len(log.text)]
            if local or not _LOCAL.search(line):
                return quoted(log.name, line[:2000])
    return None


def has_run(logs: Sequence[LogText]) -> bool:
    """Whether the verifier's output has a count of tests."""
    return any(RAN.search(log.text) for log in logs)


CHEATS: Final = frozenset(
    {
        *("reward-planted", "linked-reward", "tests-changed", "commands-like-solution"),
        *("clean-room-differs", "two-rewards", "late-reward"),
        *("verifier-files-opened", "clean-room-prevented", "reward-moved", "tests-killed"),
        "system-changed-late",
    }
)
"""Findings that are alarms: evidence that a score was not earned."""
_ENDPOINTS: Final = frozenset(
    {
        *("ModelUnreachableError", "ModelTimeoutError", "ModelServerError", "ModelRateLimitError"),
        *("ModelAuthError", "ModelNotFoundError", "APIConnectionError", "APITimeoutError"),
        *("RateLimitError", "InternalServerError", "ServiceUnavailableError", "Timeout"),
        *("AuthenticationError", "PermissionDeniedError", "BadGatewayError", "APIError"),
    }
)
_MACHINES: Final = frozenset(
    {
        *("EnvironmentStartTimeoutError", "AgentSetupTimeoutError", "DockerError", "EngineError"),
        *("SandboxError", "ImageError", "AddTestsDirError", "DownloadVerifierDirError"),
        *("SandboxDiedError", "ContainerDiedError", "WorkerLostError"),
        *("CancelledError", "MemoryLimitExceededError", "KeyboardInterrupt", "BrokerError"),
    }
)
_TASKS: Final = frozenset({"HealthcheckError", "TaskError", "SandboxBuildFailedError"})
_AGENTS: Final = frozenset({"NonZeroAgentExitCodeError", "AgentError", "ModelRequestError"})
_BUILDS: Final = ("build failed", "failed to build", "dockerfile", "solution script not found")
_NO_REWARD: Final = frozenset(
    {
        ReasonCode.HARBOR_REWARD_MISSING,
        ReasonCode.HARBOR_REWARD_EMPTY,
        ReasonCode.HARBOR_REWARD_PARSE_ERROR,
        ReasonCode.HARBOR_VERIFIER_TIMEOUT_ERROR,
    }
)
_REWARD_ERRORS: Final = frozenset(
    {
        *("VerifierTimeoutError", "RewardFileNotFoundError", "RewardFileEmptyError"),
        "VerifierOutputParseError",
    }
)
# Frames of a traceback that show in which phase a trial ended, the latest phase first.
_FRAMES: Final = (
    (CauseKind.VERIFIER, ("/verifier/", "trial/verif", "in verify")),
    (CauseKind.AGENT, ("_run_agent", "/agents/", "agent_phase.py")),
    (CauseKind.INFRASTRUCTURE, ("/environments/", "_setup_agent_environment", "_prepare")),
)
_TIMED_OUT = re.compile(r"timed out after [\d.]{1,20} ?s", re.IGNORECASE)
# Beginning of the recorded error of a trial that wrote no result.
_KILLED: Final = "the trial was killed"
_ERRORS: Final = "evaluation.validity.errors"

type _Found = Evidence | list[Evidence] | None


class Rule(NamedTuple):
    """A rule: its name, the cause it finds, and how."""

    name: str
    kind: CauseKind
    find: Callable[[Case], _Found]


def find_cause(case: Case) -> Cause | None:
    """Why a trial failed; None if it did not."""
    if not has_failed(case.reward):
        return None
    for rule in RULES:
        found = rule.find(case)
        if found:
            evidence = tuple(found) if isinstance(found, list) else (found,)
            return Cause(kind=rule.kind, rule=rule.name, evidence=evidence)
    if in_phase := _find_phase(case):
        return in_phase
    said = next((text for _, text in case.exceptions), case.reason_code)
    unexplained = quoted(_ERRORS if case.exceptions else "trial", said or "nothing says why")
    return Cause(kind=CauseKind.INFRASTRUCTURE, rule="unexplained", evidence=(unexplained,))


def _findings(case: Case, codes: Iterable[str]) -> list[Evidence]:
    return [
        quoted(f"finding {code}", str(each.get("message", "")))
        for each in case.findings
        if (code := str(each.get("code"))) in codes
    ]


def _exception(case: Case, names: Iterable[str]) -> Evidence | None:
    for name, text in case.exceptions:
        if name in names:
            return quoted(_ERRORS, text)
    return None


def _killed(case: Case) -> _Found:
    for _, text in case.exceptions:
        if text.startswith(_KILLED):
            return quoted(_ERRORS, text)
    return None


def _endpoint(case: Case) -> _Found:
    if found := _exception(case, _ENDPOINTS):
        return found
    error = case.agent_error or ""
    raised = _RAISED.findall(error)
    # The program could not be loaded, so it asked no model.
    if raised and raised[-1] in _IMPORTS:
        return None
    text = _QUOTED_CODE.sub("", error) if "Traceback (most" in error else error
    said = LogText(name="outputs.agent_output.error_message", text=text)
    return find_line([said], ENDPOINT, local=False)


def _machine(case: Case) -> _Found:
    if found := _exception(case, _MACHINES):
        return found
    errors = [LogText(name=_ERRORS, text=text) for _, text in case.exceptions]
    if found := find_line(errors, MACHINE) or find_line(errors, NETWORK, local=False):
        return found
    # If the trial has a reward, a code alone does not show what failed.
    if case.reward is None and case.reason_code in RETRYABLE:
        return quoted("reason_code", str(case.reason_code))
    return None


def _task(case: Case) -> _Found:
    if found := _exception(case, _TASKS):
        return found
    for _, text in case.exceptions:
        if any(words in text[:2000].lower() for words in _BUILDS):
            return quoted(_ERRORS, text)
    return None


def _verifier_silent(case: Case) -> _Found:
    codes = [case.reason_code, *(normalize_reason(text) for _, text in case.exceptions)]
    # With a reward, or without a verifier, missing output is not the verifier's fault.
    if case.reward is not None or not case.was_verified:
        return None
    found = _exception(case, _REWARD_ERRORS)
    if not found and (code := next((code for code in codes if code in _NO_REWARD), None)):
        found = quoted("reason_code", str(code))
    if not found:
        return None
    ends = [(log.name, log.text.strip().splitlines()[-3:]) for log in case.verifier_logs]
    return [found, *(quoted(name, "\n".join(lines)) for name, lines in ends if lines)]


def _breakdown(case: Case, *, is_number: bool) -> _Found:
    """Of a trial that was verified and has no reward: values that are no numbers, or many."""
    if case.reward is not None or not case.verifier_completed or not case.breakdown:
        return None
    bad = {key: value for key, value in case.breakdown.items() if isinstance(value, str)}
    if is_number:
        said = f"no reward among {', '.join(map(str, case.breakdown))}"
        return quoted("evaluation.breakdown", said)
    return quoted("evaluation.breakdown", str(bad)) if bad else None


def _not_verified(case: Case) -> _Found:
    if case.reward is not None or case.was_verified or case.exceptions:
        return None
    if case.is_unverified:
        return quoted("agent.configuration verifier.disable", "true")
    return quoted("trial", "the agent ended in order, and nothing of a verifier is there")


def _agent_error(case: Case) -> _Found:
    if found := _exception(case, _AGENTS):
        return found
    if case.reason_code == ReasonCode.HARBOR_SUBMISSION_CODE_FAILED:
        return quoted("reason_code", str(case.reason_code))
    return None


def _scored_low(case: Case) -> _Found:
    if case.reward is None:
        return None
    found = [quoted("evaluation.reward", render_figure(case.reward))]
    if failed := find_line(case.verifier_logs, FAILED):
        found.append(failed)
    if error := case.last_error:
        at = f"step {error.step}" + (f" of {error.part}" if error.part else "")
        found.append(quoted(f"trace, {at}, {error.tool or 'tool'}", error.text or error.command))
    return found


def _verifier_says(case: Case, words: re.Pattern[str], *, local: bool = True) -> _Found:
    """What the verifier's output says, unless it counts tests: then it is about their subject."""
    return (
        None if has_run(case.verifier_logs) else find_line(case.verifier_logs, words, local=local)
    )


RULES: Final = (
    Rule(
        "integrity-finding",
        CauseKind.CHEATING,
        lambda case: _findings(case, CHEATS) or _exception(case, {"ToolsChangedError"}),
    ),
    Rule(
        "no-record",
        CauseKind.INFRASTRUCTURE,
        lambda case: quoted("trial", case.problem) if case.problem else None,
    ),
    Rule("killed", CauseKind.INFRASTRUCTURE, _killed),
    Rule("model-endpoint", CauseKind.INFRASTRUCTURE, _endpoint),
    Rule("environment", CauseKind.INFRASTRUCTURE, _machine),
    Rule(
        "verifier-network",
        CauseKind.INFRASTRUCTURE,
        lambda case: _verifier_says(case, NETWORK, local=False),
    ),
    Rule("verifier-machine", CauseKind.INFRASTRUCTURE, lambda case: _verifier_says(case, MACHINE)),
    Rule("task-broken", CauseKind.TASK, _task),
    Rule("verifier-silent", CauseKind.VERIFIER, _verifier_silent),
    Rule(
        "verifier-not-a-number",
        CauseKind.VERIFIER,
        lambda case: _breakdown(case, is_number=False),
    ),
    Rule("no-single-reward", CauseKind.TASK, lambda case: _breakdown(case, is_number=True)),
    Rule("verifier-ran-no-tests", CauseKind.VERIFIER, lambda case: _verifier_says(case, NO_TESTS)),
    Rule("verifier-flaky", CauseKind.VERIFIER, lambda case: _findings(case, {"verifier-flaky"})),
    Rule(
        "limit",
        CauseKind.LIMIT,
        lambda case: quoted(case.limit.where, case.limit.said) if case.limit else None,
    ),
    Rule("not-verified", CauseKind.INFRASTRUCTURE, _not_verified),
    Rule("agent-error", CauseKind.AGENT, _agent_error),
    Rule("scored-low", CauseKind.AGENT, _scored_low),
)
"""All rules; if none applies, the traceback decides, or the cause is unexplained."""


def _find_phase(case: Case) -> Cause | None:
    """The phase in which a traceback ends."""
    # A time-out in the agent's phase is a limit. The traceback only names the phase, so the message
    # has to show the time-out.
    is_late = any(_TIMED_OUT.search(text[:2000]) for _, text in case.exceptions)
    for log in case.tracebacks:
        for kind, frames in _FRAMES:
            for frame in frames:
                if (at := log.text.rfind(frame)) >= 0:
                    start = log.text.rfind("\n", 0, at) + 1
                    end = log.text.find("\n", at)
                    line = log.text[start : end if end >= 0 else len(log.text)]
                    said = [quoted(_ERRORS, text) for _, text in case.exceptions[:1]]
                    found = CauseKind.LIMIT if kind is CauseKind.AGENT and is_late else kind
                    evidence = (quoted(log.name, line), *said)
                    return Cause(kind=found, rule="traceback", evidence=evidence)
    return None
