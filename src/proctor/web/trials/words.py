"""Labels for codes of the formats. Codes without a label are shown unchanged."""

from typing import Final

from proctor.record.reasons import ReasonCode
from proctor.traces.causes import CauseKind
from proctor.trial.finding import FindingCode

REASONS: Final[dict[str, str]] = {
    ReasonCode.HARBOR_BROKER_CONNECTION_FAILED: "a service that it needs refused the connection",
    ReasonCode.HARBOR_CANCELLED_ERROR: "it was stopped",
    ReasonCode.HARBOR_ENVIRONMENT_START_TIMEOUT_ERROR: "its environment took too long to start",
    ReasonCode.TERMINAL_BENCH_BROKER_REF_MISSING: "the platform lost track of who runs it",
    ReasonCode.TERMINAL_BENCH_JOB_DIR_MISSING: "the directory of its job is not there",
    ReasonCode.TERMINAL_BENCH_LEASE_EXPIRED: "its runner did not answer in time",
    ReasonCode.HARBOR_AGENT_TIMEOUT_ERROR: "the agent's time was up",
    ReasonCode.HARBOR_NONZERO_EXIT: "the program that ran the job ended with an error",
    ReasonCode.HARBOR_RESULT_INVALID: "the job's result does not fit its trials",
    ReasonCode.HARBOR_RESULT_MALFORMED: "the job's result cannot be read",
    ReasonCode.HARBOR_RESULT_MISSING: "the job wrote no result",
    ReasonCode.HARBOR_RESULT_PARTIAL: "the job ended before all its trials did",
    ReasonCode.HARBOR_REWARD_EMPTY: "the verifier's reward file has no bytes",
    ReasonCode.HARBOR_REWARD_MISSING: "the verifier left no reward",
    ReasonCode.HARBOR_REWARD_PARSE_ERROR: "what the verifier left is no number",
    ReasonCode.HARBOR_SUBMISSION_CODE_FAILED: "the agent's own code failed",
    ReasonCode.HARBOR_TRIAL_FAILED: "an error ended it",
    ReasonCode.HARBOR_TRIAL_RESULT_MALFORMED: "its result.json cannot be read",
    ReasonCode.HARBOR_TRIAL_RESULT_MISSING: "it wrote no result.json: it was killed, or still runs",
    ReasonCode.HARBOR_VERIFIER_TIMEOUT_ERROR: "the verifier's time was up",
    ReasonCode.TERMINAL_BENCH_ATTEMPT_NOT_RUNNING: "the attempt was not running any more",
    ReasonCode.TERMINAL_BENCH_FAILED: "it failed, and nothing says why",
    ReasonCode.PHALA_ATTESTATION_FAILED: "the machine could not show what it is",
    ReasonCode.PHALA_KEY_RELEASE_FAILED: "the key of the tests was not given out",
    ReasonCode.PHALA_GOLDEN_DECRYPT_FAILED: "the tests could not be decrypted",
}
"""Why a trial has no score."""

FINDINGS: Final[dict[str, str]] = {
    FindingCode.REWARD_PLANTED: "A reward lay there before the verifier began; it did not count.",
    FindingCode.TESTS_PLANTED: "Test files existed before the task's own; they were not run.",
    FindingCode.TESTS_CHANGED: "Tests changed while the verifier ran.",
    FindingCode.SYSTEM_CHANGED: "System files that the tests may use were changed.",
    FindingCode.AGENT_STILL_BUSY: "Agent processes were still alive when verification started.",
    FindingCode.VERIFIER_FLAKY: "Repeating the verification gave a different result.",
    FindingCode.CLOCK_JUMPED: "The system clock jumped: the times of this trial are unreliable.",
    FindingCode.BASE_SUBSTITUTED: "The trial did not run on the image that the task names.",
    FindingCode.NETWORK_SHARED: "The trial used the host's network.",
    FindingCode.HOST_PORTS_OPEN: "The agent could reach host ports that the job allowed.",
    FindingCode.LIMITS_NOT_ENFORCED: "Resource limits of the task could not be enforced.",
    FindingCode.USR_READ_ONLY: "/usr was read-only: nothing could be installed there.",
    FindingCode.IDS_SHARED: "User ids were shared with other trials and the host.",
    FindingCode.OUTPUT_CUT: "A command printed more than is kept.",
    FindingCode.AGENT_NOT_PAUSED: "Agent processes kept running while its changes were recorded.",
    FindingCode.VERIFIER_NOT_APART: "The agent's processes could reach the verifier's files.",
    FindingCode.FILES_REFUSED: "Some files were not collected: links, devices or odd names.",
    FindingCode.LOGS_DIFFER: "A process in the environment tried to write the agent's trace.",
    FindingCode.COMMANDS_LIKE_SOLUTION: "The agent's commands contain most of the task's solution.",
    FindingCode.STEPS_NOT_REPLAYED: "Some recorded steps could not be replayed.",
    FindingCode.LINKED_REWARD: "The reward file was a link.",
    FindingCode.CLEAN_ROOM_DIFFERS: "The reward differs without the agent's changes to the system.",
    FindingCode.CLEAN_ROOM_DECLARED: "The reward needs packages or services, as the task declares.",
    FindingCode.CLEAN_ROOM_PACKAGES: "The reward needs packages that the agent installed.",
    FindingCode.CLEAN_ROOM_SERVICES: "The reward needs services that the agent left running.",
    FindingCode.CLEAN_ROOM_SKIPPED: "The tests were not repeated in a clean room.",
    FindingCode.CLEAN_ROOM_PREVENTED: "The agent left too much to repeat the tests.",
    FindingCode.TEST_IMPORTS_CHANGED: "The agent made files that the tests may import.",
    FindingCode.CHANGES_CUT: "The agent changed more files than the change record lists.",
    FindingCode.AGENT_PROGRAM_RUNNING: "A program that the agent made ran during the tests.",
    FindingCode.TWO_REWARDS: "The verifier left two reward files.",
    FindingCode.VERIFIER_FILES_OPENED: "A program of the agent opened tests or rewards.",
    FindingCode.LATE_REWARD: "A reward file changed after the test script had ended.",
    FindingCode.REWARD_MOVED: "A reward file was moved or linked to its place.",
    FindingCode.TESTS_KILLED: "A signal ended the test script, and there is a reward.",
    FindingCode.SYSTEM_CHANGED_LATE: "Programs of the image changed while the tests ran.",
}
"""Explanations of integrity findings."""

CAUSES: Final[dict[str, str]] = {
    CauseKind.AGENT: "the agent did not solve it",
    CauseKind.TASK: "the task is invalid",
    CauseKind.VERIFIER: "the verifier gave no number that counts",
    CauseKind.INFRASTRUCTURE: "machines, networks, endpoints, or somebody who stopped it",
    CauseKind.LIMIT: "a limit of time, turns, tokens, money or context ended it",
    CauseKind.CHEATING: "what was found about its integrity speaks against it",
}
"""Who caused a failure."""

STATUSES: Final[dict[str, str]] = {
    "sealed": "a complete record, sealed in the ledger",
    "diagnostic": "a partial record, sealed for what it shows; boards say so",
    "superseded": "another trial supersedes it",
    "withheld": "its bytes were withheld from the ledger; their hashes stay",
}
"""Status of a trial in a ledger."""

COSTS: Final[dict[str, str]] = {
    "reported": "the amount that the provider or the agent reported",
    "estimated": "tokens times listed prices of the day",
    "unknown": "no amount was reported, and not all of the tokens have a price",
}
"""Source of a cost."""

BASES: Final[dict[str, str]] = {
    "reward file": "Verification ended without an exception, so the reward file counts, "
    "not what result.json says of it.",
    "step reward files": "The task has several steps; the reward file of each step counts.",
    "trial result": "What result.json says counts, not a file: verification was turned off, was "
    "broken off, or its verifier leaves no file.",
}
"""Source of a trial's rewards."""
