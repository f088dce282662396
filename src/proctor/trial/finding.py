"""Findings: facts about a trial's integrity that a reader of its score should know.

They are stored in `<trial>/findings.json` and never change a score.
"""

from collections.abc import Iterable, Sequence
from enum import StrEnum

import msgspec

from proctor.sentence import count_of

ATTEMPT = "attempt"
"""Key in `detail` for findings of an earlier attempt at the trial: the attempt's number."""


class FindingCode(StrEnum):
    """Kind of finding; each code is explained in docs/reference/integrity.md."""

    REWARD_PLANTED = "reward-planted"
    """Files were in /logs/verifier before the verifier began."""
    LINKED_REWARD = "linked-reward"
    """The reward file was a link that led out of the trial's directory."""
    TESTS_PLANTED = "tests-planted"
    """Files were in /tests before the tests were uploaded."""
    TESTS_CHANGED = "tests-changed"
    """The task's tests directory on the host, or /tests, changed while the verifier ran."""
    SYSTEM_CHANGED = "system-changed"
    """System tools that tests rely on differed from the image's."""
    AGENT_STILL_BUSY = "agent-still-busy"
    """Processes that the agent started were alive when verification began."""
    VERIFIER_FLAKY = "verifier-flaky"
    """Repeated verifications of the same state gave another result."""
    CLOCK_JUMPED = "clock-jumped"
    """The wall clock and the monotonic clock disagree over a phase."""
    BASE_SUBSTITUTED = "base-substituted"
    """The image that the task names was missing and another root file system was used instead."""
    NETWORK_SHARED = "network-shared"
    """The environment used the host's own network."""
    HOST_PORTS_OPEN = "host-ports-open"
    """The agent could reach ports of the host that the job names."""
    LIMITS_NOT_ENFORCED = "limits-not-enforced"
    """Limits that the task asks for could not be enforced on this machine."""
    STORAGE_NOT_ENFORCED = "storage-not-enforced"
    """The disk space that the task asks for was not limited."""
    USR_READ_ONLY = "usr-read-only"
    """Nothing could be installed below /usr: it is the host's, and proctor does not run as root."""
    IDS_SHARED = "ids-shared"
    """Running as root: users in the sandbox shared ids with users of the host and of other trials.
    """
    OWNERS_SQUASHED = "owners-squashed"
    """Files of other users in the image belonged to root: proctor did not run as root."""
    OUTPUT_CUT = "output-cut"
    """A command printed more than is kept."""
    VERIFIER_NOT_APART = "verifier-not-apart"
    """The verifier ran where processes of the agent could reach its files."""
    ROOM_IN_PARTS = "room-in-parts"
    """Tests could not rename files between top-level directories: each was a mount of its own."""
    FILES_REFUSED = "files-refused"
    """Files of the environment were not collected: links out of it, devices, or too large."""
    LOGS_DIFFER = "logs-differ"
    """A file of /logs/agent is not what the agent wrote on the host; both are kept."""
    COMMANDS_LIKE_SOLUTION = "commands-like-solution"
    """Most lines of the task's solution appeared in the agent's commands."""
    STEPS_NOT_REPLAYED = "steps-not-replayed"
    """The agent `replay` skipped calls that are not shell commands."""
    CLEAN_ROOM_DIFFERS = "clean-room-differs"
    """Without the agent's changes to the system, the same tests gave another reward."""
    CLEAN_ROOM_DECLARED = "clean-room-declared"
    """The clean room gives another reward because of packages or services that the task declares.
    """
    CLEAN_ROOM_SERVICES = "clean-room-services"
    """The reward differs without the services that the agent left running."""
    CLEAN_ROOM_PACKAGES = "clean-room-packages"
    """The clean room gives the same reward once the agent's packages are reinstalled."""
    CLEAN_ROOM_SKIPPED = "clean-room-skipped"
    """The tests were not repeated in a clean room, or not completely."""
    CLEAN_ROOM_PREVENTED = "clean-room-prevented"
    """The agent left more files than can be listed or kept, so the tests could not be repeated."""
    TEST_IMPORTS_CHANGED = "test-imports-changed"
    """The agent made files in places that the test command imports from."""
    CHANGES_CUT = "changes-cut"
    """The agent changed more files than the change record lists."""
    AGENT_PROGRAM_RUNNING = "agent-program-running"
    """A program that the agent made was still running when verification began."""
    AGENT_NOT_PAUSED = "agent-not-paused"
    """Processes of the agent kept running while its changes were recorded and its files kept."""
    TWO_REWARDS = "two-rewards"
    """The verifier left both reward.txt and reward.json."""
    VERIFIER_FILES_OPENED = "verifier-files-opened"
    """A program that the agent made opened tests or rewards while the tests ran."""
    LATE_REWARD = "late-reward"
    """A reward file changed after the test script had ended."""
    REWARD_MOVED = "reward-moved"
    """The reward file was not written under its name: it was moved or linked there."""
    TESTS_KILLED = "tests-killed"
    """A signal ended the test script, yet there is a reward."""
    SYSTEM_CHANGED_LATE = "system-changed-late"
    """Programs or libraries of the image changed while the tests ran."""
    MODELS_DIRECT = "models-direct"
    """The agent reached its model by itself, unrecorded: --no-gateway."""
    MODEL_USE_DIFFERS = "model-use-differs"
    """The agent's own account of its tokens, models or answers contradicts the recorded calls."""
    MODELS_REPLAYED = "models-replayed"
    """The answers of the agent's model came from a recording."""
    MODEL_REPLAY_DIFFERS = "model-replay-differs"
    """Answers came from a recording, and a request was not the recorded one."""


class Level(StrEnum):
    """How strongly a finding casts doubt on a score."""

    INFO = "info"
    """Describes where and how the trial ran."""
    NOTICE = "notice"
    """Worth a look; honest work can cause it."""
    ALARM = "alarm"
    """Evidence that the score may not be earned."""

    @property
    def rank(self) -> int:
        """0 for info; higher levels cast more doubt on a score."""
        return _RANKS[self]


_RANKS = {level: rank for rank, level in enumerate(Level)}

_INFO = frozenset(
    {
        FindingCode.BASE_SUBSTITUTED,
        FindingCode.NETWORK_SHARED,
        FindingCode.HOST_PORTS_OPEN,
        FindingCode.MODELS_DIRECT,
        FindingCode.MODELS_REPLAYED,
        FindingCode.MODEL_REPLAY_DIFFERS,
        FindingCode.LIMITS_NOT_ENFORCED,
        FindingCode.STORAGE_NOT_ENFORCED,
        FindingCode.USR_READ_ONLY,
        FindingCode.IDS_SHARED,
        FindingCode.OWNERS_SQUASHED,
        FindingCode.OUTPUT_CUT,
        FindingCode.ROOM_IN_PARTS,
        FindingCode.AGENT_STILL_BUSY,
        FindingCode.STEPS_NOT_REPLAYED,
    }
)
_ALARMS = frozenset(
    {
        FindingCode.REWARD_PLANTED,
        FindingCode.LINKED_REWARD,
        FindingCode.TESTS_CHANGED,
        FindingCode.COMMANDS_LIKE_SOLUTION,
        FindingCode.CLEAN_ROOM_DIFFERS,
        FindingCode.CLEAN_ROOM_PREVENTED,
        FindingCode.TWO_REWARDS,
        FindingCode.LATE_REWARD,
        FindingCode.VERIFIER_FILES_OPENED,
        FindingCode.REWARD_MOVED,
        FindingCode.TESTS_KILLED,
        FindingCode.SYSTEM_CHANGED_LATE,
    }
)


def level_of(code: str) -> Level:
    """Return the level of a code. Unknown codes, from newer versions, are notices.

    The level follows from the code alone, so a stored finding cannot lower its own level.
    """
    if code in _ALARMS:
        return Level.ALARM
    return Level.INFO if code in _INFO else Level.NOTICE


def worst_level(codes: Iterable[str]) -> Level | None:
    """The highest level among findings; None without findings."""
    return max(map(level_of, codes), key=lambda level: level.rank, default=None)


def sort_codes(codes: Iterable[str]) -> list[str]:
    """Sort codes with alarms first and infos last, keeping the order within a level."""
    return sorted(codes, key=lambda code: -level_of(code).rank)


_MEANINGS: dict[str, str] = {
    FindingCode.REWARD_PLANTED: "A reward file existed before the verifier; it did not count.",
    FindingCode.TESTS_PLANTED: "Test files existed before the task's own; they were not run.",
    FindingCode.TESTS_CHANGED: "Tests changed while the verifier ran.",
    FindingCode.SYSTEM_CHANGED: "System files that the tests may use were changed.",
    FindingCode.AGENT_STILL_BUSY: "Agent processes were still alive when verification started.",
    FindingCode.VERIFIER_FLAKY: "Repeating the verification gave a different result.",
    FindingCode.CLOCK_JUMPED: "The system clock jumped: the times of this trial are unreliable.",
    FindingCode.BASE_SUBSTITUTED: "Ran on a build of the Dockerfile or --base, not the task's "
    "image; pull the image with `proctor image pull`, or use -e docker.",
    FindingCode.NETWORK_SHARED: "The trial used the host's network.",
    FindingCode.HOST_PORTS_OPEN: "The agent could reach host ports that the job allowed.",
    FindingCode.MODELS_REPLAYED: "The model's answers came from a recording: --replay-model.",
    FindingCode.MODEL_REPLAY_DIFFERS: "The agent asked its model something else than in the "
    "recording.",
    FindingCode.MODELS_DIRECT: "The agent reached its model unrecorded: --no-gateway.",
    FindingCode.MODEL_USE_DIFFERS: "The agent's own token counts or models contradict the "
    "recorded model calls.",
    FindingCode.LIMITS_NOT_ENFORCED: "Resource limits of the task could not be enforced.",
    FindingCode.STORAGE_NOT_ENFORCED: "The disk space of the task was not limited.",
    FindingCode.USR_READ_ONLY: "/usr was read-only: nothing could be installed there.",
    FindingCode.IDS_SHARED: "User ids were shared with other trials and the host.",
    FindingCode.OWNERS_SQUASHED: "Files of other users in the image belonged to root.",
    FindingCode.OUTPUT_CUT: "A command printed more than is kept.",
    FindingCode.AGENT_NOT_PAUSED: "Agent processes kept running while its changes were recorded.",
    FindingCode.VERIFIER_NOT_APART: "The agent's processes could reach the verifier's files.",
    FindingCode.ROOM_IN_PARTS: "Tests could not rename files between top-level directories.",
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


def meaning_of(code: str) -> str | None:
    """One sentence about what a code means; None for an unknown code, from a newer version."""
    return _MEANINGS.get(code)


def is_common(code: str, n: int, total: int) -> bool:
    """Whether a finding only informs, and most trials have it.

    It is about the machine rather than about a trial: lists say it once, with `render_common`.
    """
    return level_of(code) is Level.INFO and n > 1 and 2 * n > total


def render_common(code: str, n: int, total: int) -> str:
    """One sentence about a finding that most trials have: how many, and what it means."""
    meaning = meaning_of(code)
    return f"{code} in {n:,} of {count_of(total, 'trial')}" + (f": {meaning}" if meaning else "")


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One finding."""

    code: FindingCode
    phase: str
    """The phase of the trial in which it was found."""
    message: str
    """A sentence for a person."""
    detail: dict[str, object] = {}
    """The facts: paths, digests, process names, seconds."""


def render_findings(found: Sequence[Finding]) -> bytes:
    """Render findings.json."""
    value = [_written(msgspec.to_builtins(each, enc_hook=str)) for each in found]
    return msgspec.json.format(msgspec.json.encode(value), indent=2)


def _written(value: object) -> object:
    """Escape lone surrogates, which come from untrusted file names and cannot be encoded."""
    if isinstance(value, str):
        return value.encode(errors="backslashreplace").decode()
    if isinstance(value, list):
        return [_written(each) for each in value]
    if isinstance(value, dict):
        return {str(_written(name)): _written(each) for name, each in value.items()}
    return value
