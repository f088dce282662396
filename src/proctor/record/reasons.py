"""Outcomes, and reason codes: whether a trial is scored, and why a run or a trial is not.

Codes are passed as members of `ReasonCode` from the place where the cause is known.
`normalize_reason` is for text from elsewhere; it searches for words, so it can be wrong, and text
it does not recognise becomes a slug that is not a code. Does not decide scores.
"""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from types import MappingProxyType
from typing import Final, Literal, Protocol

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

SCORED: Final = "scored"
NO_NUMBER: Final = "without a number"
NOT_SCORED: Final = "not scored"

MAX_ATTEMPTS = 3
"""Last attempt of a task, counted from 1; after it nothing is retried."""


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
"""Failures of the infrastructure: another attempt may succeed."""

SENTINEL = frozenset(
    {
        ReasonCode.TERMINAL_BENCH_ATTEMPT_NOT_RUNNING,
        ReasonCode.TERMINAL_BENCH_FAILED,
        ReasonCode.PHALA_ATTESTATION_FAILED,
        ReasonCode.PHALA_KEY_RELEASE_FAILED,
        ReasonCode.PHALA_GOLDEN_DECRYPT_FAILED,
    }
)
"""Emitted, but neither retryable nor final: the normalizer treats them as unknown text."""

FINAL = frozenset(ReasonCode) - RETRYABLE - SENTINEL
"""Failures of the run itself: another attempt would end the same way."""

KNOWN = RETRYABLE | FINAL
"""The codes that the normalizer recognises."""

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
"""Texts that are treated as a code."""

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
                # The normalizer has a rule for these too: "connection refused".
                *(ModelRateLimitError, ModelServerError, ModelTimeoutError, ModelUnreachableError),
            )
        },
    }
)


class Rewarded(Protocol):
    """The fields of a trial that its outcome depends on."""

    @property
    def reward(self) -> float | None:
        """The finite reward that means take; None: there is none."""
        ...

    @property
    def reason_code(self) -> str | None:
        """Why it is not scored. Every trial without rewards has one."""
        ...


def outcome_of(trial: Rewarded) -> str:
    """SCORED, NO_NUMBER or NOT_SCORED: the one rule for every count and page."""
    return name_outcome(trial.reward, has_rewards=trial.reason_code is None)


def name_outcome(reward: object, *, has_rewards: bool) -> str:
    """The outcome by the reward that means take, and by whether there are rewards at all.

    Harbor's rule: any rewards are a score, even if none of them is a finite `reward`.
    """
    if reward is not None:
        return SCORED
    return NO_NUMBER if has_rewards else NOT_SCORED


def is_known(code: str | None) -> bool:
    """Whether the code is retryable or final. Sentinels are neither."""
    return code in KNOWN


def is_retryable(code: str | None, attempt: int) -> bool:
    """Whether a task that failed for this reason at this attempt (from 1) is retried.

    Unknown codes, and a missing code, are retried too.
    """
    return attempt < MAX_ATTEMPTS and code not in FINAL


def classify(text: str | None) -> str:
    """The code to report for a failure: the normalized text, or a sentinel if there is none."""
    return normalize_reason(text) or ReasonCode.TERMINAL_BENCH_FAILED


def reason_for_exception(exception_type: str | None) -> ReasonCode | None:
    """The code for a harbor trial that ended with this exception class; None if there was none."""
    if exception_type is None:
        return None
    return _EXCEPTIONS.get(exception_type, ReasonCode.HARBOR_TRIAL_FAILED)


class WordRule(msgspec.Struct, frozen=True):
    """A rule that maps a text to a code because of words in it."""

    number: int
    """Its number in the list at `find_rule`."""
    form: Literal["compact", "lowered"]
    """Which form of the text is searched."""
    words: tuple[tuple[str, ...], ...]
    """Alternatives; all words of one must be present."""
    code: ReasonCode
    """The resulting code."""


class RuleMatch(msgspec.Struct, frozen=True):
    """The rule that mapped a text to a code."""

    rule: int
    """Its number in the list at `find_rule`."""
    code: str | None
    """What `normalize_reason` returns."""
    why: str
    """Explanation of the rule, for a person."""


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
"""Rules 7 to 16 in the order they are tried: the first match decides."""


def normalize_reason(text: str | None) -> str | None:
    """Map a text to a code, or to a slug of the text if unknown; None for no text."""
    return find_rule(text).code


def find_rule(text: str | None) -> RuleMatch:
    """Map a text to a code, and say by which rule. The first match decides.

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
    (17) Otherwise underscored itself, which is not a known code; it may be a sentinel.
    """
    if not text:  # (1)
        return RuleMatch(1, None, "there is no text")
    if not text.strip():  # (2)
        return RuleMatch(2, None, "the text is blank")
    forms = _forms(text)  # (3)
    return (
        _find_whole(forms)
        or find_word_rule(text, WORD_RULES)
        or RuleMatch(17, forms.underscored, "no rule matches; this is a slug of the text")
    )


def find_word_rule(text: str, rules: Sequence[WordRule]) -> RuleMatch | None:
    """The first of these rules whose words are in the text; other rules are not tried."""
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
