"""Reason codes: why a run or a trial has no score that counts.

Codes travel as members of `ReasonCode`, from the place that knows the fact. `normalize_reason`
is for text that came from elsewhere; it looks for words, so it can be wrong, and what it does
not recognise comes back as a slug that is no code at all. Nothing here decides a score.
"""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from types import MappingProxyType
from typing import Literal

import msgspec

from proctor.errors import (
    ModelRateLimitError,
    ModelServerError,
    ModelTimeoutError,
    ModelUnreachableError,
    RewardFileEmptyError,
    RewardFileNotFoundError,
    VerifierOutputParseError,
)

MAX_ATTEMPTS = 3
"""The attempt of a task after which nothing is retried, counted from 1."""


class ReasonCode(StrEnum):
    """Every code that may be emitted: 6 retryable, 14 final, 5 sentinels."""

    HARBOR_BROKER_CONNECTION_FAILED = "harbor_broker_connection_failed"
    HARBOR_CANCELLED_ERROR = "harbor_cancelled_error"
    HARBOR_ENVIRONMENT_START_TIMEOUT_ERROR = "harbor_environment_start_timeout_error"
    TERMINAL_BENCH_BROKER_REF_MISSING = "terminal_bench_broker_ref_missing"
    TERMINAL_BENCH_JOB_DIR_MISSING = "terminal_bench_job_dir_missing"
    TERMINAL_BENCH_LEASE_EXPIRED = "terminal_bench_lease_expired"

    HARBOR_AGENT_TIMEOUT_ERROR = "harbor_agent_timeout_error"
    HARBOR_NONZERO_EXIT = "harbor_nonzero_exit"
    HARBOR_RESULT_INVALID = "harbor_result_invalid"
    HARBOR_RESULT_MALFORMED = "harbor_result_malformed"
    HARBOR_RESULT_MISSING = "harbor_result_missing"
    HARBOR_RESULT_PARTIAL = "harbor_result_partial"
    HARBOR_REWARD_EMPTY = "harbor_reward_empty"
    HARBOR_REWARD_MISSING = "harbor_reward_missing"
    HARBOR_REWARD_PARSE_ERROR = "harbor_reward_parse_error"
    HARBOR_SUBMISSION_CODE_FAILED = "harbor_submission_code_failed"
    HARBOR_TRIAL_FAILED = "harbor_trial_failed"
    HARBOR_TRIAL_RESULT_MALFORMED = "harbor_trial_result_malformed"
    HARBOR_TRIAL_RESULT_MISSING = "harbor_trial_result_missing"
    HARBOR_VERIFIER_TIMEOUT_ERROR = "harbor_verifier_timeout_error"

    TERMINAL_BENCH_ATTEMPT_NOT_RUNNING = "terminal_bench_attempt_not_running"
    TERMINAL_BENCH_FAILED = "terminal_bench_failed"
    PHALA_ATTESTATION_FAILED = "phala_attestation_failed"
    PHALA_KEY_RELEASE_FAILED = "phala_key_release_failed"
    PHALA_GOLDEN_DECRYPT_FAILED = "phala_golden_decrypt_failed"


RETRYABLE = frozenset(
    {
        ReasonCode.HARBOR_BROKER_CONNECTION_FAILED,
        ReasonCode.HARBOR_CANCELLED_ERROR,
        ReasonCode.HARBOR_ENVIRONMENT_START_TIMEOUT_ERROR,
        ReasonCode.TERMINAL_BENCH_BROKER_REF_MISSING,
        ReasonCode.TERMINAL_BENCH_JOB_DIR_MISSING,
        ReasonCode.TERMINAL_BENCH_LEASE_EXPIRED,
    }
)
"""The world's fault: another attempt may succeed."""

SENTINEL = frozenset(
    {
        ReasonCode.TERMINAL_BENCH_ATTEMPT_NOT_RUNNING,
        ReasonCode.TERMINAL_BENCH_FAILED,
        ReasonCode.PHALA_ATTESTATION_FAILED,
        ReasonCode.PHALA_KEY_RELEASE_FAILED,
        ReasonCode.PHALA_GOLDEN_DECRYPT_FAILED,
    }
)
"""Emitted, but in neither of the two classes: the normalizer treats them as any other text."""

FINAL = frozenset(ReasonCode) - RETRYABLE - SENTINEL
"""The run's own doing: another attempt would end the same way."""

KNOWN = RETRYABLE | FINAL
"""The codes the normalizer recognises."""

WIRE_ONLY: Mapping[str, str] = MappingProxyType(
    {
        "timed_out": "the runner's own time-out, where a reason code would stand",
        "terminal_bench_setup_failed": "the platform could not set the run up",
        "terminal_bench_execution_error": "the platform could not carry the run out",
        "diagnostics_truncated": "marks a list of trial diagnostics that was cut off",
        "agent_hydrate_failed": "final, but only where the platform installs the agent's packages",
    }
)
"""Words seen where codes stand that belong to no set, and what they mean."""

REMAP: Mapping[str, ReasonCode] = MappingProxyType({})
"""Renamed codes, old to new. None so far; an old name is never in the taxonomy."""

ALIASES: Mapping[str, ReasonCode] = MappingProxyType(
    {
        "agent_timeout_error": ReasonCode.HARBOR_AGENT_TIMEOUT_ERROR,
        "agenttimeouterror": ReasonCode.HARBOR_AGENT_TIMEOUT_ERROR,
        "cancelled_error": ReasonCode.HARBOR_CANCELLED_ERROR,
        "cancellederror": ReasonCode.HARBOR_CANCELLED_ERROR,
        "environment_start_timeout_error": ReasonCode.HARBOR_ENVIRONMENT_START_TIMEOUT_ERROR,
        "environmentstarttimeouterror": ReasonCode.HARBOR_ENVIRONMENT_START_TIMEOUT_ERROR,
        "verifier_timeout_error": ReasonCode.HARBOR_VERIFIER_TIMEOUT_ERROR,
        "verifiertimeouterror": ReasonCode.HARBOR_VERIFIER_TIMEOUT_ERROR,
        "submission_code_failure": ReasonCode.HARBOR_SUBMISSION_CODE_FAILED,
    }
)
"""Whole texts that stand for a code."""

_EXCEPTIONS: Mapping[str, ReasonCode] = MappingProxyType(
    {
        "AgentTimeoutError": ReasonCode.HARBOR_AGENT_TIMEOUT_ERROR,
        "CancelledError": ReasonCode.HARBOR_CANCELLED_ERROR,
        "EnvironmentStartTimeoutError": ReasonCode.HARBOR_ENVIRONMENT_START_TIMEOUT_ERROR,
        "VerifierTimeoutError": ReasonCode.HARBOR_VERIFIER_TIMEOUT_ERROR,
        **{
            kind.__name__: ReasonCode(kind.reason_code)
            for kind in (
                *(RewardFileEmptyError, RewardFileNotFoundError, VerifierOutputParseError),
                # For these the normalizer has a rule too: "connection refused".
                *(ModelRateLimitError, ModelServerError, ModelTimeoutError, ModelUnreachableError),
            )
        },
    }
)


def is_known(code: str | None) -> bool:
    """Whether the code is classified: retryable or final. Sentinels are not."""
    return code in KNOWN


def is_retryable(code: str | None, attempt: int) -> bool:
    """Whether a task that failed for this reason at this attempt (from 1) is tried again.

    Unknown codes, and no code at all, are retried too.
    """
    return attempt < MAX_ATTEMPTS and code not in FINAL


def classify(text: str | None) -> str:
    """The code a failure is filed under: the normalized text, or the sentinel for no text."""
    return normalize_reason(text) or ReasonCode.TERMINAL_BENCH_FAILED


def reason_for_exception(exception_type: str | None) -> ReasonCode | None:
    """The code of a harbor trial that ended with this exception class; None if it had none."""
    if exception_type is None:
        return None
    return _EXCEPTIONS.get(exception_type, ReasonCode.HARBOR_TRIAL_FAILED)


class WordRule(msgspec.Struct, frozen=True):
    """A rule that takes a text for a code because of words in it."""

    number: int
    """Its place in the list at `find_rule`."""
    form: Literal["compact", "lowered"]
    """The form of the text to look in."""
    words: tuple[tuple[str, ...], ...]
    """Alternatives; of each, all words must be there."""
    code: ReasonCode
    """What the text is taken for."""


class RuleMatch(msgspec.Struct, frozen=True):
    """Which rule decided what a text stands for."""

    rule: int
    """Its place in the list at `find_rule`."""
    code: str | None
    """What `normalize_reason` returns."""
    why: str
    """The rule in words, for a person."""


WORD_RULES = (
    WordRule(
        7, "compact", (("cancellederror",), ("cancelederror",)), ReasonCode.HARBOR_CANCELLED_ERROR
    ),
    WordRule(
        8,
        "compact",
        (("environmentstarttimeouterror",),),
        ReasonCode.HARBOR_ENVIRONMENT_START_TIMEOUT_ERROR,
    ),
    WordRule(9, "compact", (("agenttimeouterror",),), ReasonCode.HARBOR_AGENT_TIMEOUT_ERROR),
    WordRule(10, "compact", (("verifiertimeouterror",),), ReasonCode.HARBOR_VERIFIER_TIMEOUT_ERROR),
    WordRule(
        11, "lowered", (("broker", "connection"),), ReasonCode.HARBOR_BROKER_CONNECTION_FAILED
    ),
    WordRule(
        12,
        "lowered",
        (("connection refused",), ("connection reset",)),
        ReasonCode.HARBOR_BROKER_CONNECTION_FAILED,
    ),
    WordRule(13, "lowered", (("reward", "missing"),), ReasonCode.HARBOR_REWARD_MISSING),
    WordRule(14, "lowered", (("reward", "empty"),), ReasonCode.HARBOR_REWARD_EMPTY),
    WordRule(
        15,
        "lowered",
        (("reward", "parse"), ("reward", "malformed")),
        ReasonCode.HARBOR_REWARD_PARSE_ERROR,
    ),
    WordRule(
        16,
        "lowered",
        (("submission", "code"), ("submission", "runtime")),
        ReasonCode.HARBOR_SUBMISSION_CODE_FAILED,
    ),
)
"""Rules 7 to 16 in the order they are tried: the first that fits decides."""


def normalize_reason(text: str | None) -> str | None:
    """The code that foreign text stands for; a slug of the text if none; None for no text."""
    return find_rule(text).code


def find_rule(text: str | None) -> RuleMatch:
    """What a text stands for, and which of these rules says so. The first that fits decides.

    (1)  No text: no code.  (2) Only blanks: no code.
    (3)  Three forms are made. Lowered: stripped, in lower case. Compact: the letters and
         digits of lowered. Underscored: lowered with every hyphen and run of blanks as `_`.
    (4)  Lowered is a known code.  (5) Underscored is one.
    (6)  Compact is an alias, or underscored is.
    (7)  Compact has `cancellederror` or `cancelederror`.
    (8)  Compact has `environmentstarttimeouterror`.
    (9)  Compact has `agenttimeouterror`.  (10) Compact has `verifiertimeouterror`.
    (11) Lowered has `broker` and `connection`.
    (12) Lowered has `connection refused` or `connection reset`.
    (13) Lowered has `reward` and `missing`.  (14) Lowered has `reward` and `empty`.
    (15) Lowered has `reward` and `parse`, or `reward` and `malformed`.
    (16) Lowered has `submission` and `code`, or `submission` and `runtime`.
    (17) Otherwise underscored itself, which is no member of the taxonomy, or a sentinel.
    """
    if not text:  # (1)
        return RuleMatch(1, None, "there is no text")
    if not text.strip():  # (2)
        return RuleMatch(2, None, "the text is blank")
    forms = _forms(text)  # (3)
    return (
        _find_whole(forms)
        or find_word_rule(text, WORD_RULES)
        or RuleMatch(17, forms.underscored, "no rule fits; this is the text itself as a slug")
    )


def find_word_rule(text: str, rules: Sequence[WordRule]) -> RuleMatch | None:
    """The first of these rules whose words are in the text, whatever other rules would say."""
    forms = _forms(text)
    for rule in rules:  # (7) to (16)
        body = forms.compact if rule.form == "compact" else forms.lowered
        for words in rule.words:
            if all(word in body for word in words):
                found = " and ".join(f'"{word}"' for word in words)
                return RuleMatch(rule.number, rule.code, f"its {rule.form} form has {found}")
    return None


class _Forms(msgspec.Struct, frozen=True):
    lowered: str
    compact: str
    underscored: str


def _forms(text: str) -> _Forms:
    lowered = text.strip().lower()
    return _Forms(
        lowered=lowered,
        compact="".join(character for character in lowered if character.isalnum()),
        underscored="_".join(lowered.replace("-", "_").split()),
    )


def _find_whole(forms: _Forms) -> RuleMatch | None:
    if forms.lowered in KNOWN:  # (4)
        return RuleMatch(4, ReasonCode(forms.lowered), "it is a reason code")
    if forms.underscored in KNOWN:  # (5)
        why = "it is a reason code once blanks and hyphens are underscores"
        return RuleMatch(5, ReasonCode(forms.underscored), why)
    alias = ALIASES.get(forms.compact) or ALIASES.get(forms.underscored)  # (6)
    return RuleMatch(6, alias, "it is an alias of a reason code") if alias else None
