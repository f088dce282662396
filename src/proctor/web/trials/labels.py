"""Labels for codes of the formats. Codes without a label are shown unchanged."""

from typing import Final

from proctor.record.reasons import ReasonCode
from proctor.traces.causes import CauseKind

REASONS: Final[dict[str, str]] = {
    ReasonCode.HARBOR_BROKER_CONNECTION_FAILED: "a service that it needs refused the connection",
    ReasonCode.HARBOR_CANCELLED_ERROR: "it was stopped",
    ReasonCode.HARBOR_ENVIRONMENT_START_TIMEOUT_ERROR: "its environment took too long to start",
    ReasonCode.TERMINAL_BENCH_BROKER_REF_MISSING: "the platform lost track of its runner",
    ReasonCode.TERMINAL_BENCH_JOB_DIR_MISSING: "the directory of its job is missing",
    ReasonCode.TERMINAL_BENCH_LEASE_EXPIRED: "its runner did not answer in time",
    ReasonCode.HARBOR_AGENT_TIMEOUT_ERROR: "the agent timed out",
    ReasonCode.HARBOR_NONZERO_EXIT: "the program that ran the job ended with an error",
    ReasonCode.HARBOR_RESULT_INVALID: "the job's result does not fit its trials",
    ReasonCode.HARBOR_RESULT_MALFORMED: "the job's result cannot be read",
    ReasonCode.HARBOR_RESULT_MISSING: "the job wrote no result",
    ReasonCode.HARBOR_RESULT_PARTIAL: "the job ended before all its trials did",
    ReasonCode.HARBOR_REWARD_EMPTY: "the verifier's reward file is empty",
    ReasonCode.HARBOR_REWARD_MISSING: "the verifier left no reward",
    ReasonCode.HARBOR_REWARD_PARSE_ERROR: "the verifier's reward is not a number",
    ReasonCode.HARBOR_SUBMISSION_CODE_FAILED: "the agent's own code failed",
    ReasonCode.HARBOR_TRIAL_FAILED: "an error ended it",
    ReasonCode.HARBOR_TRIAL_RESULT_MALFORMED: "its result.json cannot be read",
    ReasonCode.HARBOR_TRIAL_RESULT_MISSING: "it wrote no result.json: it was killed, or still runs",
    ReasonCode.HARBOR_VERIFIER_TIMEOUT_ERROR: "the verifier timed out",
    ReasonCode.TERMINAL_BENCH_ATTEMPT_NOT_RUNNING: "the attempt was no longer running",
    ReasonCode.TERMINAL_BENCH_FAILED: "it failed without a recorded reason",
    ReasonCode.PHALA_ATTESTATION_FAILED: "the machine's attestation failed",
    ReasonCode.PHALA_KEY_RELEASE_FAILED: "the key of the tests was not released",
    ReasonCode.PHALA_GOLDEN_DECRYPT_FAILED: "the tests could not be decrypted",
}
"""Why a trial has no score."""

CAUSES: Final[dict[str, str]] = {
    CauseKind.AGENT: "the agent did not solve it",
    CauseKind.TASK: "the task is invalid",
    CauseKind.VERIFIER: "the verifier gave no valid number",
    CauseKind.INFRASTRUCTURE: "machines, networks, endpoints, or a person who stopped it",
    CauseKind.LIMIT: "a limit of time, turns, tokens, money or context ended it",
    CauseKind.CHEATING: "an integrity finding casts doubt on it",
}
"""Who caused a failure."""

STATUSES: Final[dict[str, str]] = {
    "sealed": "a complete record, sealed in the ledger",
    "diagnostic": "a partial record, sealed as diagnostic; boards mark it",
    "superseded": "another trial supersedes it",
    "begun again": "an earlier attempt, which does not count",
    "withheld": "its bytes were withheld from the ledger; their hashes stay",
}
"""Status of a trial in a ledger."""

COSTS: Final[dict[str, str]] = {
    "reported": "the amount that the provider or the agent reported",
    "estimated": "tokens times the list prices of that day",
    "replayed": "the model's answers came from a recording; nothing was spent",
    "unknown": "no amount was reported, and not all of the tokens have a price",
}
"""Source of a cost."""

BASES: Final[dict[str, str]] = {
    "reward file": "Verification ended without an exception, so the reward file counts, not "
    "result.json.",
    "step reward files": "The task has several steps; the reward file of each step counts.",
    "trial result": "The reward in result.json counts, not a file: verification was disabled or "
    "interrupted, or the verifier leaves no file.",
}
"""Source of a trial's rewards."""
