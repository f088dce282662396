"""A finding: something about a trial's integrity that a reader of its score should know.

Findings lie beside the record, in `<trial>/findings.json`. They never change a score.
"""

from enum import StrEnum

import msgspec


class FindingCode(StrEnum):
    """What was found; each code has a paragraph in docs/integrity.md."""

    REWARD_PLANTED = "reward-planted"
    """Files lay in /logs/verifier before the verifier began."""
    LINKED_REWARD = "linked-reward"
    """The reward file was a link that led out of the trial's directory."""
    TESTS_PLANTED = "tests-planted"
    """Files lay in /tests before the tests were put there."""
    TESTS_CHANGED = "tests-changed"
    """The task's tests directory on the host, or /tests, changed while the verifier ran."""
    SYSTEM_CHANGED = "system-changed"
    """Tools of the system that tests rest on were not the image's own any more."""
    AGENT_STILL_BUSY = "agent-still-busy"
    """Processes that the agent started were alive when verification began."""
    VERIFIER_FLAKY = "verifier-flaky"
    """Further verifications of the state that the agent left gave another result."""
    CLOCK_JUMPED = "clock-jumped"
    """The wall clock and the monotonic clock disagree over a phase."""
    BASE_SUBSTITUTED = "base-substituted"
    """The image that the task names was not there, and another root file system stood in."""
    NETWORK_SHARED = "network-shared"
    """The environment used the host's own network."""
    LIMITS_NOT_ENFORCED = "limits-not-enforced"
    """The task asks for limits that could not be set here."""
    USR_READ_ONLY = "usr-read-only"
    """Nothing could be installed below /usr: it is the host's, and the runner no root."""
    OUTPUT_CUT = "output-cut"
    """A command printed more than is kept."""
    VERIFIER_NOT_APART = "verifier-not-apart"
    """The verifier ran where processes of the agent could reach its files."""
    FILES_REFUSED = "files-refused"
    """Files of the environment were not collected: links out of it, devices, too large."""
    LOGS_DIFFER = "logs-differ"
    """A file of /logs/agent is not what the agent wrote on the host; both are kept."""
    COMMANDS_LIKE_SOLUTION = "commands-like-solution"
    """Most lines of the task's own solution came back in the agent's commands."""
    STEPS_NOT_REPLAYED = "steps-not-replayed"
    """The agent `replay` passed over calls that are no shell commands."""


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One finding."""

    code: FindingCode
    phase: str
    """The phase of the trial in which it was seen."""
    message: str
    """A sentence for a person."""
    detail: dict[str, object] = {}
    """The facts: paths, digests, process names, seconds."""
