"""Scoring policy v1: the document that fixes, before a run, how its scores will be made.

What it may say is less than `policy` can do, and a field that the policy does not use must have
its neutral value, so that one policy has one document and one digest.
"""

from dataclasses import dataclass, field

from proctor.errors import InvalidKeepPolicyError, PolicyError, ScoreRecordError
from proctor.outcome.canonical import (
    Json,
    canonical_digest,
    parse_count,
    parse_json,
    parse_object,
    parse_text,
)
from proctor.outcome.f64be import parse_f64be, render_f64be
from proctor.outcome.policy import Aggregation, Keep, KeepPolicy

_FIELDS = (
    "schema_version",
    "per_task_aggregation",
    "keep_policy",
    "drop_lowest_n",
    "threshold_f64be",
)
_AGGREGATIONS = {"mean": Aggregation.MEAN, "best_of_k": Aggregation.BEST_OF_K}
_KEEP_POLICIES = {
    "off": KeepPolicy.OFF,
    "drop_lowest_n": KeepPolicy.DROP_LOWEST_N,
    "threshold_band": KeepPolicy.THRESHOLD_BAND,
}


@dataclass(frozen=True, slots=True)
class ScoringPolicy:
    """How trials become task scores, and task scores the job's."""

    aggregation: Aggregation = Aggregation.MEAN
    keep: Keep = field(default_factory=Keep)

    def __post_init__(self) -> None:
        if self.keep.policy is KeepPolicy.BEST_OF_K:
            names = ", ".join(_KEEP_POLICIES.values())
            raise InvalidKeepPolicyError(
                f"keep policy best-of-k cannot stand in a scoring policy; expected one of {names}"
            )

    @property
    def document(self) -> dict[str, Json]:
        """The policy as it is hashed."""
        policy = self.keep.policy
        dropping = policy is KeepPolicy.DROP_LOWEST_N
        banding = policy is KeepPolicy.THRESHOLD_BAND
        return {
            "schema_version": 1,
            "per_task_aggregation": self.aggregation.replace("-", "_"),
            "keep_policy": policy.replace("-", "_"),
            "drop_lowest_n": self.keep.drop_lowest_n if dropping else 0,
            "threshold_f64be": render_f64be(self.keep.threshold) if banding else None,
        }

    @property
    def digest(self) -> str:
        """SHA-256 of the canonical document."""
        return canonical_digest(self.document)


def parse_scoring_policy(data: bytes) -> ScoringPolicy:
    """The policy in a document.

    Raises:
        PolicyError: a field is missing, unknown, out of range or not neutral; says which.
    """
    try:
        return _parse_policy(parse_object(parse_json(data), "the scoring policy", _FIELDS))
    except ScoreRecordError as error:
        raise PolicyError(str(error)) from error


def _parse_policy(fields: dict[str, object]) -> ScoringPolicy:
    version = parse_count(fields["schema_version"], "schema_version")
    if version != 1:
        raise PolicyError(f"schema_version is {version}; expected 1")
    aggregation = _parse_name(fields, "per_task_aggregation", _AGGREGATIONS)
    policy = _parse_name(fields, "keep_policy", _KEEP_POLICIES)
    count = parse_count(fields["drop_lowest_n"], "drop_lowest_n")
    if policy is not KeepPolicy.DROP_LOWEST_N and count != 0:
        raise PolicyError(f"drop_lowest_n is {count}; expected 0 where nothing is dropped")
    return ScoringPolicy(aggregation, Keep(policy, count, _parse_threshold(fields, policy)))


def _parse_threshold(fields: dict[str, object], policy: KeepPolicy) -> float:
    threshold = fields["threshold_f64be"]
    if policy is KeepPolicy.THRESHOLD_BAND:
        return parse_f64be(threshold, "threshold_f64be")
    if threshold is not None:
        raise PolicyError(f"threshold_f64be is {threshold!r}; expected null where there is no band")
    return 0.0


def _parse_name[T](fields: dict[str, object], key: str, names: dict[str, T]) -> T:
    name = parse_text(fields[key], key)
    if name not in names:
        raise PolicyError(f"{key} is {name!r}; expected one of {', '.join(names)}")
    return names[name]
