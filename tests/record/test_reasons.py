"""The reason codes, the retry rule and the ordered normalizer."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.errors import RewardFileEmptyError, RewardFileNotFoundError, VerifierOutputParseError
from proctor.record.reasons import (
    ALIASES,
    FINAL,
    KNOWN,
    MAX_ATTEMPTS,
    RETRYABLE,
    SENTINEL,
    WORD_RULES,
    ReasonCode,
    RuleMatch,
    classify,
    find_rule,
    find_word_rule,
    is_known,
    is_retryable,
    normalize_reason,
    reason_for_exception,
)

RETRYABLE_WORDS = {
    "harbor_broker_connection_failed",
    "harbor_cancelled_error",
    "harbor_environment_start_timeout_error",
    "terminal_bench_broker_ref_missing",
    "terminal_bench_job_dir_missing",
    "terminal_bench_lease_expired",
}
FINAL_WORDS = {
    "harbor_agent_timeout_error",
    "harbor_nonzero_exit",
    "harbor_result_invalid",
    "harbor_result_malformed",
    "harbor_result_missing",
    "harbor_result_partial",
    "harbor_reward_empty",
    "harbor_reward_missing",
    "harbor_reward_parse_error",
    "harbor_submission_code_failed",
    "harbor_trial_failed",
    "harbor_trial_result_malformed",
    "harbor_trial_result_missing",
    "harbor_verifier_timeout_error",
}
SENTINEL_WORDS = {
    "terminal_bench_attempt_not_running",
    "terminal_bench_failed",
    "phala_attestation_failed",
    "phala_key_release_failed",
    "phala_golden_decrypt_failed",
}
WIRE_ONLY = {
    "timed_out",
    "terminal_bench_setup_failed",
    "terminal_bench_execution_error",
    "diagnostics_truncated",
    "agent_hydrate_failed",
}
"""Words that the platform writes in place of codes, and that belong to no set."""


def test_the_sets_hold_exactly_these_words() -> None:
    assert {str(code) for code in RETRYABLE} == RETRYABLE_WORDS
    assert {str(code) for code in FINAL} == FINAL_WORDS
    assert {str(code) for code in SENTINEL} == SENTINEL_WORDS


def test_the_sets_part_the_taxonomy_without_overlap() -> None:
    assert len(ReasonCode) == 25
    assert len(RETRYABLE) + len(FINAL) + len(SENTINEL) == 25
    assert set(ReasonCode) == RETRYABLE | FINAL | SENTINEL
    assert KNOWN == RETRYABLE | FINAL


def test_seventeen_codes_are_harbors() -> None:
    assert sum(code.startswith("harbor_") for code in ReasonCode) == 17


def test_a_codes_name_is_its_word_in_capitals() -> None:
    assert all(code.name == code.value.upper() for code in ReasonCode)


def test_words_seen_only_on_the_wire_are_no_codes() -> None:
    assert not WIRE_ONLY & set(ReasonCode)


def test_the_nine_aliases_stand_for_known_codes() -> None:
    assert {alias: str(code) for alias, code in ALIASES.items()} == {
        "agent_timeout_error": "harbor_agent_timeout_error",
        "agenttimeouterror": "harbor_agent_timeout_error",
        "cancelled_error": "harbor_cancelled_error",
        "cancellederror": "harbor_cancelled_error",
        "environment_start_timeout_error": "harbor_environment_start_timeout_error",
        "environmentstarttimeouterror": "harbor_environment_start_timeout_error",
        "verifier_timeout_error": "harbor_verifier_timeout_error",
        "verifiertimeouterror": "harbor_verifier_timeout_error",
        "submission_code_failure": "harbor_submission_code_failed",
    }
    assert set(ALIASES.values()) <= KNOWN


@pytest.mark.parametrize("code", sorted(RETRYABLE_WORDS))
def test_a_retryable_code_is_retried_until_the_third_attempt(code: str) -> None:
    assert [is_retryable(code, attempt) for attempt in (1, 2, 3, 4)] == [True, True, False, False]
    assert is_known(code)


@pytest.mark.parametrize("code", sorted(FINAL_WORDS))
def test_a_final_code_is_never_retried(code: str) -> None:
    assert [is_retryable(code, attempt) for attempt in (1, 2, 3)] == [False, False, False]
    assert is_known(code)


@pytest.mark.parametrize("code", [None, "", "timed_out", "anything", *sorted(SENTINEL_WORDS)])
def test_what_is_not_classified_is_retried_like_the_retryable(code: str | None) -> None:
    assert [is_retryable(code, attempt) for attempt in (1, 2, 3)] == [True, True, False]
    assert not is_known(code)


def test_three_attempts_are_all_a_task_gets() -> None:
    assert MAX_ATTEMPTS == 3


@pytest.mark.parametrize("text", [None, "", "  "])
def test_a_failure_without_a_reason_is_filed_under_the_sentinel(text: str | None) -> None:
    assert classify(text) == "terminal_bench_failed"


def test_a_failure_is_filed_under_its_normalized_reason() -> None:
    assert classify("CancelledError") == "harbor_cancelled_error"
    assert classify("Odd Thing") == "odd_thing"


@pytest.mark.parametrize(
    ("exception_type", "code"),
    [
        ("AgentTimeoutError", "harbor_agent_timeout_error"),
        ("VerifierTimeoutError", "harbor_verifier_timeout_error"),
        ("CancelledError", "harbor_cancelled_error"),
        ("EnvironmentStartTimeoutError", "harbor_environment_start_timeout_error"),
        ("RewardFileNotFoundError", "harbor_reward_missing"),
        ("RewardFileEmptyError", "harbor_reward_empty"),
        ("VerifierOutputParseError", "harbor_reward_parse_error"),
        ("NonZeroAgentExitCodeError", "harbor_trial_failed"),
        ("AgentSetupTimeoutError", "harbor_trial_failed"),
        ("ValidationError", "harbor_trial_failed"),
        ("reward missing", "harbor_trial_failed"),
        ("", "harbor_trial_failed"),
    ],
)
def test_an_exception_class_has_its_code_without_reading_text(
    exception_type: str, code: str
) -> None:
    assert reason_for_exception(exception_type) == code


def test_a_trial_without_exception_has_no_reason() -> None:
    assert reason_for_exception(None) is None


@pytest.mark.parametrize(
    "error", [RewardFileNotFoundError, RewardFileEmptyError, VerifierOutputParseError]
)
def test_our_own_reward_errors_carry_the_same_codes(
    error: type[RewardFileNotFoundError | RewardFileEmptyError | VerifierOutputParseError],
) -> None:
    assert reason_for_exception(error.__name__) == error.reason_code


@pytest.mark.parametrize(
    ("text", "rule", "code", "why"),
    [
        (None, 1, None, "there is no text"),
        ("", 1, None, "there is no text"),
        (" \t\n\u00a0", 2, None, "the text is blank"),
        (" Harbor_Trial_Failed ", 4, "harbor_trial_failed", "it is a reason code"),
        (
            "Harbor  Trial-Failed",
            5,
            "harbor_trial_failed",
            "it is a reason code once blanks and hyphens are underscores",
        ),
        (
            "Agent.Timeout.Error",
            6,
            "harbor_agent_timeout_error",
            "it is an alias of a reason code",
        ),
        (
            "submission-code failure",
            6,
            "harbor_submission_code_failed",
            "it is an alias of a reason code",
        ),
        (
            "a CancelledError",
            7,
            "harbor_cancelled_error",
            'its compact form has "cancellederror"',
        ),
        (
            "CanceledError",
            7,
            "harbor_cancelled_error",
            'its compact form has "cancelederror"',
        ),
        (
            "x: Environment Start_Timeout-Error",
            8,
            "harbor_environment_start_timeout_error",
            'its compact form has "environmentstarttimeouterror"',
        ),
        (
            "x AgentTimeoutError",
            9,
            "harbor_agent_timeout_error",
            'its compact form has "agenttimeouterror"',
        ),
        (
            "x Verifier.Timeout.Error",
            10,
            "harbor_verifier_timeout_error",
            'its compact form has "verifiertimeouterror"',
        ),
        (
            "Connection to BROKER",
            11,
            "harbor_broker_connection_failed",
            'its lowered form has "broker" and "connection"',
        ),
        (
            "Connection refused",
            12,
            "harbor_broker_connection_failed",
            'its lowered form has "connection refused"',
        ),
        (
            "Connection reset",
            12,
            "harbor_broker_connection_failed",
            'its lowered form has "connection reset"',
        ),
        (
            "missing Reward",
            13,
            "harbor_reward_missing",
            'its lowered form has "reward" and "missing"',
        ),
        ("empty reward", 14, "harbor_reward_empty", 'its lowered form has "reward" and "empty"'),
        (
            "unparseable reward",
            15,
            "harbor_reward_parse_error",
            'its lowered form has "reward" and "parse"',
        ),
        (
            "malformed reward",
            15,
            "harbor_reward_parse_error",
            'its lowered form has "reward" and "malformed"',
        ),
        (
            "decode submission",
            16,
            "harbor_submission_code_failed",
            'its lowered form has "submission" and "code"',
        ),
        (
            "submission at runtime",
            16,
            "harbor_submission_code_failed",
            'its lowered form has "submission" and "runtime"',
        ),
        (
            " Odd-Thing  happened\u00a0__ ",
            17,
            "odd_thing_happened___",
            "no rule matches; this is a slug of the text",
        ),
    ],
)
def test_each_rule_says_that_it_decided_and_why(
    text: str | None, rule: int, code: str | None, why: str
) -> None:
    assert find_rule(text) == RuleMatch(rule, code, why)
    assert normalize_reason(text) == code


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("cancellederror environmentstarttimeouterror", 7),
        ("environmentstarttimeouterror agenttimeouterror", 8),
        ("verifiertimeouterror agenttimeouterror", 9),
        ("verifiertimeouterror broker connection", 10),
        ("broker connection refused", 11),
        ("connection reset, reward missing", 12),
        ("reward empty and missing", 13),
        ("reward empty, parse", 14),
        ("reward of the submission code malformed", 15),
    ],
)
def test_of_two_rules_that_fit_the_earlier_decides(text: str, rule: int) -> None:
    assert find_rule(text).rule == rule


@pytest.mark.parametrize(
    "text",
    [
        "broker",
        "connection",
        "connectionrefused",
        "connection-reset",
        "reward",
        "missing",
        "empty",
        "parse",
        "malformed",
        "submission",
        "code",
        "runtime",
        "timeout error",
        "agent timeout",
        "canceled",
        "harbor_result_missing.",
        "no reward file found at a or b",
        "verifieroutputparseerror",
    ],
)
def test_half_a_rule_is_no_rule(text: str) -> None:
    assert find_rule(text).rule == 17


@pytest.mark.parametrize("code", sorted(SENTINEL_WORDS | WIRE_ONLY))
def test_a_word_that_is_not_classified_comes_back_as_itself(code: str) -> None:
    assert find_rule(code).rule == 17
    assert normalize_reason(code) == code


@pytest.mark.parametrize("code", sorted(RETRYABLE_WORDS | FINAL_WORDS))
def test_a_known_code_is_itself_in_any_spelling(code: str) -> None:
    assert normalize_reason(code) is ReasonCode(code)
    assert find_rule(code.upper()) == RuleMatch(4, code, "it is a reason code")
    assert normalize_reason(code.replace("_", "-")) is ReasonCode(code)
    assert find_rule(f" {code.replace('_', ' ')}\n").rule == 5


@pytest.mark.parametrize("alias", sorted(ALIASES))
def test_an_alias_is_found_before_the_words_in_it(alias: str) -> None:
    assert find_rule(alias).rule == 6
    assert normalize_reason(alias) == ALIASES[alias]


def test_the_word_rules_are_numbered_in_the_order_they_are_tried() -> None:
    assert [rule.number for rule in WORD_RULES] == list(range(7, 17))


def test_words_can_be_looked_for_by_some_rules_only() -> None:
    missing = [rule for rule in WORD_RULES if rule.number == 13]
    text = "connection refused: reward missing"
    match = find_word_rule(text, missing)
    assert match == RuleMatch(
        13, "harbor_reward_missing", 'its lowered form has "reward" and "missing"'
    )
    assert find_word_rule("reward empty", missing) is None


@given(st.text())
def test_a_normalized_reason_stays_as_it_is(text: str) -> None:
    once = normalize_reason(text)
    assert normalize_reason(once) == once


@given(st.text())
def test_text_without_letters_is_never_lost(text: str) -> None:
    assert (normalize_reason(text) is None) is (not text.strip())
