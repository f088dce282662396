"""Scoring policy v1: one policy, one document, one digest."""

import json

import pytest

from proctor.errors import InvalidKeepPolicyError, PolicyError, ScoreRecordError
from proctor.record.policy import Aggregation, Keep, KeepPolicy
from proctor.record.score_record import ScoringPolicy, parse_scoring_policy

NEUTRAL: dict[str, object] = {
    "schema_version": 1,
    "per_task_aggregation": "mean",
    "keep_policy": "off",
    "drop_lowest_n": 0,
    "threshold_f64be": None,
}
POLICIES: list[tuple[ScoringPolicy, dict[str, object]]] = [
    (ScoringPolicy(), {}),
    (ScoringPolicy(Aggregation.BEST_OF_K), {"per_task_aggregation": "best_of_k"}),
    (
        ScoringPolicy(keep=Keep(KeepPolicy.DROP_LOWEST_N, drop_lowest_n=2)),
        {"keep_policy": "drop_lowest_n", "drop_lowest_n": 2},
    ),
    (
        ScoringPolicy(keep=Keep(KeepPolicy.DROP_LOWEST_N)),
        {"keep_policy": "drop_lowest_n"},
    ),
    (
        ScoringPolicy(keep=Keep(KeepPolicy.THRESHOLD_BAND, threshold=0.5)),
        {"keep_policy": "threshold_band", "threshold_f64be": "3fe0000000000000"},
    ),
]


def parse(**changes: object) -> ScoringPolicy:
    return parse_scoring_policy(json.dumps(NEUTRAL | changes).encode())


@pytest.mark.parametrize(("policy", "changes"), POLICIES)
def test_a_policy_and_its_document_are_the_same_thing(
    policy: ScoringPolicy, changes: dict[str, object]
) -> None:
    assert policy.document == NEUTRAL | changes
    assert parse(**changes) == policy


def test_each_policy_has_a_digest_of_its_own() -> None:
    digests = {policy.digest for policy, _ in POLICIES}
    assert len(digests) == len(POLICIES)
    assert ScoringPolicy().digest == (
        "cb400ff5278105d9b5fdfbd562385a962103108a6c70ccb1ed86ccdc60a5af84"
    )


def test_parameters_that_are_not_used_are_neutral_in_the_document() -> None:
    off = ScoringPolicy(keep=Keep(KeepPolicy.OFF, drop_lowest_n=3, threshold=0.5))
    assert off.document == NEUTRAL
    drop = Keep(KeepPolicy.DROP_LOWEST_N, drop_lowest_n=3, threshold=0.5)
    assert ScoringPolicy(keep=drop).document["threshold_f64be"] is None
    band = Keep(KeepPolicy.THRESHOLD_BAND, drop_lowest_n=3, threshold=0.5)
    assert ScoringPolicy(keep=band).document["drop_lowest_n"] == 0


def test_the_legacy_keep_policy_cannot_be_planned() -> None:
    with pytest.raises(InvalidKeepPolicyError) as caught:
        ScoringPolicy(keep=Keep(KeepPolicy.BEST_OF_K))
    assert str(caught.value) == (
        "keep policy best-of-k cannot be used in a scoring policy; "
        "expected one of off, drop-lowest-n, threshold-band"
    )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"schema_version": 2}, "schema_version is 2; expected 1"),
        ({"schema_version": 0}, "schema_version is 0; expected 1"),
        (
            {"schema_version": "1"},
            "schema_version is '1'; expected a whole number, 0 or more",
        ),
        (
            {"per_task_aggregation": "best-of-k"},
            "per_task_aggregation is 'best-of-k'; expected one of mean, best_of_k",
        ),
        ({"per_task_aggregation": None}, "per_task_aggregation is None; expected a text"),
        (
            {"keep_policy": "best_of_k"},
            "keep_policy is 'best_of_k'; expected one of off, drop_lowest_n, threshold_band",
        ),
        ({"keep_policy": 1}, "keep_policy is 1; expected a text"),
        ({"drop_lowest_n": 1}, "drop_lowest_n is 1; expected 0 for a policy that drops nothing"),
        ({"drop_lowest_n": -1}, "drop_lowest_n is -1; expected a whole number, 0 or more"),
        ({"drop_lowest_n": True}, "drop_lowest_n is True; expected a whole number, 0 or more"),
        (
            {
                "keep_policy": "threshold_band",
                "drop_lowest_n": 1,
                "threshold_f64be": "3fe0000000000000",
            },
            "drop_lowest_n is 1; expected 0 for a policy that drops nothing",
        ),
        (
            {"threshold_f64be": "3fe0000000000000"},
            "threshold_f64be is '3fe0000000000000'; expected null without a band",
        ),
        (
            {"keep_policy": "drop_lowest_n", "threshold_f64be": "0000000000000000"},
            "threshold_f64be is '0000000000000000'; expected null without a band",
        ),
        (
            {"keep_policy": "threshold_band"},
            "threshold_f64be is None; expected 16 lower-case hex digits",
        ),
        (
            {"keep_policy": "threshold_band", "threshold_f64be": "4000000000000000"},
            "threshold_f64be is 4000000000000000: score must be finite and in [0, 1]",
        ),
        (
            {"extra": 1},
            "the scoring policy has a field 'extra'; expected schema_version, "
            "per_task_aggregation, keep_policy, drop_lowest_n, threshold_f64be",
        ),
    ],
)
def test_a_document_that_breaks_the_format_is_refused(
    changes: dict[str, object], message: str
) -> None:
    with pytest.raises(PolicyError) as caught:
        parse(**changes)
    assert str(caught.value) == message


@pytest.mark.parametrize("field", list(NEUTRAL))
def test_no_field_may_be_left_out(field: str) -> None:
    document = {key: value for key, value in NEUTRAL.items() if key != field}
    with pytest.raises(PolicyError) as caught:
        parse_scoring_policy(json.dumps(document).encode())
    assert str(caught.value) == f"the scoring policy has no {field}"
    assert isinstance(caught.value.__cause__, ScoreRecordError)


def test_what_is_no_document_is_refused() -> None:
    with pytest.raises(PolicyError, match=r"^the scoring policy is \[\]; expected an object$"):
        parse_scoring_policy(b"[]")


def test_a_policy_with_a_key_twice_is_refused() -> None:
    with pytest.raises(PolicyError, match=r"^the key 'a' is given twice in one object$"):
        parse_scoring_policy(b'{"a": 1, "a": 1}')
