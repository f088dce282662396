"""Every error class of proctor, as a tree. The message of each is a sentence for a person.

ProctorError
├── InputError                      what was given cannot be used as it is
│   ├── JobError                    a Harbor job or trial directory
│   │   └── MixedJobsError          jobs that must not be scored as one
│   ├── CertificateError            a score certificate
│   ├── TraceError                  a trajectory, a conversation or an ATIF file
│   │   └── ChangedTraceError       it was changed while it was looked at
│   ├── TaskError                   a task directory or a dataset of them
│   ├── RecordError                 a TrialRecord
│   │   └── IncompleteRecordError   not yet what `complete` promises
│   ├── PolicyError                 a scoring policy or its parameters
│   │   ├── InvalidKeepPolicyError
│   │   └── InvalidAggregationModeError
│   ├── ScoreRecordError            a score record, or a score that does not fit one
│   ├── AgentError                  an agent's settings, its files or its version command
│   ├── ConfigError                 what a job is told to do
│   ├── PrimeError                  Prime's interface, or what it gave of an evaluation
│   ├── PluginError                 a class that was named by its import path
│   ├── ImageError                  an image for the sandbox, or a Dockerfile
│   ├── UnsupportedError            a task that asks for what is not there, such as GPUs
│   ├── LedgerError                 a directory that is no usable ledger, or what it will not take
│   │   ├── NotSealedError          a record that may not be sealed: a secret in it, evidence gone
│   │   ├── ConflictError           a trial that is sealed already, with other bytes
│   │   └── BusyError               another process writes to it, for longer than was waited
│   ├── KeyFileError                a key that cannot be read, or may not be used
│   ├── NoteError                   a checkpoint or another signed note that cannot be read
│   ├── ProofFileError              a proof or a claim that cannot be read
│   ├── NotReplayableError          a recorded trial that cannot be run again
│   └── StatisticsError             numbers without the statistic asked for, or a sum amiss
├── DamageError                     a check failed: what is there is not what was sealed
│   ├── MissingArtifactError        evidence that is not there
│   ├── AlteredArtifactError        evidence that is not what was sealed
│   ├── ForkError                   a log signed two histories that contradict each other
│   ├── ProofError                  a Merkle proof that does not lead where it says
│   └── SignatureError              a signature that is missing, or not the key's
├── SandboxError                    the sandbox could not be built or used
│   ├── SandboxDiedError            its PID 1 ended while it was in use
│   └── StateTooLargeError          what was written in it is too much to be kept
├── DockerError                     Docker could not do what it was asked for
│   ├── ContainerDiedError          the container ended while it was in use
│   └── EngineError                 there is no Docker engine, or it may not be used
├── SlowTransferError               files came out of an environment too slowly
├── TrialError                      what ended a phase of a trial
│   ├── EnvironmentStartTimeoutError
│   ├── AgentSetupTimeoutError
│   ├── AgentTimeoutError
│   ├── VerifierTimeoutError        (all four are TimeoutErrors too, as in harbor)
│   ├── HealthcheckError
│   ├── NonZeroAgentExitCodeError
│   ├── AddTestsDirError
│   ├── ToolsChangedError           the tests had tools that are not the image's
│   ├── DownloadVerifierDirError
│   └── ModelError                  a model's endpoint gave no answer; each has a reason code
│       ├── ModelUnreachableError   no connection, or every one broke off
│       ├── ModelTimeoutError       (no TimeoutError: the agent itself was in time)
│       ├── ModelServerError        5xx
│       ├── ModelRateLimitError     429
│       ├── ModelAuthError          401, 403
│       ├── ModelNotFoundError      404
│       ├── ModelContextError       more tokens than the model takes
│       ├── ModelRequestError       any other refusal
│       └── ModelAnswerError        what came is no answer
├── RewardError                     a verifier left no usable reward
│   ├── RewardFileNotFoundError     (also a FileNotFoundError, as in harbor)
│   ├── RewardFileEmptyError
│   ├── LinkedRewardError           a link that leads out of the trial; harbor follows it
│   └── VerifierOutputParseError
├── NotThereError                   nothing of that name is looked at by the viewer
└── MetricError                     a metric could not be computed

The reward and trial errors have harbor's names and messages, model errors apart. The reason code of
a reward or model error is data on its class, so that nobody has to find it again in the text.
"""

from typing import ClassVar


class ProctorError(Exception):
    """Base of everything proctor raises on purpose."""


class InputError(ProctorError):
    """What was given cannot be used: says where, what was found and what was expected."""


class JobError(InputError):
    """A directory that is not a readable Harbor job or trial."""


class MixedJobsError(JobError):
    """Jobs that would not make one honest number together."""


class CertificateError(InputError):
    """A file that is not a score certificate."""


class TraceError(InputError):
    """A trace that cannot be read as what it claims to be."""


class ChangedTraceError(TraceError):
    """A trace is not what it was a moment ago; looked at again, it may be read."""


class TaskError(InputError):
    """A task directory, or a dataset of them, that cannot be used."""


class RecordError(InputError):
    """A TrialRecord that breaks its format."""


class IncompleteRecordError(RecordError):
    """A record that is called complete and lacks what that promises."""

    def __init__(self, message: str, missing: tuple[str, ...]) -> None:
        super().__init__(message)
        self.missing = missing
        """The fields that are missing, in the order of the format."""

    def __reduce__(self) -> tuple[type, tuple[str, tuple[str, ...]]]:
        """How it travels between processes."""
        return type(self), (str(self), self.missing)


class PolicyError(InputError):
    """A scoring policy that does not exist, or a parameter out of its range."""


class InvalidKeepPolicyError(PolicyError):
    """Which tasks are kept: unknown policy or bad parameter."""


class InvalidAggregationModeError(PolicyError):
    """How the trials of one task become one score: unknown mode or nothing to aggregate."""


class ScoreRecordError(InputError):
    """A score record that breaks its format, or whose numbers do not follow from its trials."""


class RewardError(ProctorError):
    """A verifier ended and left no reward that counts."""

    reason_code: ClassVar[str] = "harbor_trial_failed"


class RewardFileNotFoundError(RewardError, FileNotFoundError):
    """Neither reward.txt nor reward.json is there."""

    reason_code: ClassVar[str] = "harbor_reward_missing"


class RewardFileEmptyError(RewardError):
    """The reward file has no bytes."""

    reason_code: ClassVar[str] = "harbor_reward_empty"


class LinkedRewardError(RewardError):
    """The reward file is reached through a link that leads out of the trial."""

    reason_code: ClassVar[str] = "harbor_reward_missing"


class VerifierOutputParseError(RewardError):
    """The reward file is not a number, or not JSON."""

    reason_code: ClassVar[str] = "harbor_reward_parse_error"


class NotThereError(ProctorError):
    """Nothing of that name is looked at."""


class MetricError(ProctorError):
    """A metric that gives no value for these rewards."""


class AgentError(InputError):
    """An agent that cannot be had as it is asked for: its settings, files or version command."""


class ConfigError(InputError):
    """A job's configuration that cannot be used: names the file and the key."""


class PrimeError(InputError):
    """Prime's interface does not give what was asked for, or what it gave cannot be used."""


class PluginError(InputError):
    """A class named by its import path that cannot be had."""


class ImageError(InputError):
    """An image or a Dockerfile that the sandbox cannot use."""


class UnsupportedError(InputError):
    """Something that this environment does not have: a field of a task, or a clean room."""


class LedgerError(InputError):
    """A ledger that cannot be used as it is, or something that it will not take."""


class NotSealedError(LedgerError):
    """A record that may not be sealed; says why, and nothing was written."""


class ConflictError(LedgerError):
    """The trial is sealed already with other bytes; names both digests."""


class BusyError(LedgerError):
    """Another process writes to the ledger; nothing was written, and it may be tried again."""


class KeyFileError(InputError):
    """A signing or verifying key that cannot be read or may not be used."""


class NoteError(InputError):
    """A signed note, such as a checkpoint, that cannot be read as one."""


class ProofFileError(InputError):
    """A proof or a claim that cannot be read as one; what it says was not looked at."""


class NotReplayableError(InputError):
    """A recorded trial that cannot be run again; that may be nobody's fault."""


class StatisticsError(InputError):
    """Numbers that a statistic is not defined for, or counts that do not add up."""


class DamageError(ProctorError):
    """What is there is not what was sealed. A check that was asked for failed: exit code 1."""


class MissingArtifactError(DamageError):
    """Evidence that an entry names and the ledger does not hold."""


class AlteredArtifactError(DamageError):
    """Evidence that is there and is not what was sealed."""


class ForkError(DamageError):
    """A log signed two checkpoints that no single history has."""


class ProofError(DamageError):
    """A Merkle proof that does not lead where it says."""


class SignatureError(DamageError):
    """A signature that is missing, or that the key did not make."""


class SandboxError(ProctorError):
    """A sandbox that could not be built, or could not do what it was asked for."""


class SandboxDiedError(SandboxError):
    """A sandbox whose PID 1 ended while it was in use: somebody killed it, or memory ran out."""


class StateTooLargeError(SandboxError):
    """What was written in an environment is too much to be kept beside it."""


class DockerError(ProctorError):
    """Docker could not do what it was asked for: a container, an image or a copy."""


class ContainerDiedError(DockerError):
    """A container whose first process ended while it was in use; the engine still answers."""


class EngineError(DockerError):
    """No docker program, no engine that answers, or no right to talk to it."""


class SlowTransferError(ProctorError):
    """Files that came out of an environment too slowly; those that came in time are kept."""


class TrialError(ProctorError):
    """What ended a phase of a trial; the class name is what result.json says."""


class EnvironmentStartTimeoutError(TrialError, TimeoutError):
    """The environment took too long to start."""


class AgentSetupTimeoutError(TrialError, TimeoutError):
    """The agent took too long to be set up."""


class AgentTimeoutError(TrialError, TimeoutError):
    """The agent took too long; what it left is verified all the same."""


class VerifierTimeoutError(TrialError, TimeoutError):
    """The verifier took too long; a reward that it left does not count."""


class HealthcheckError(TrialError):
    """The environment did not become healthy."""


class NonZeroAgentExitCodeError(TrialError):
    """The agent's command failed; what it left is verified all the same."""


class AddTestsDirError(TrialError):
    """The tests could not be put into the environment."""


class ToolsChangedError(TrialError):
    """The tests had tools that are not the image's own: what they say does not count."""


class DownloadVerifierDirError(TrialError):
    """What the verifier left could not be fetched."""


class ModelError(TrialError):
    """A model's endpoint gave no answer."""

    reason_code: ClassVar[str] = "harbor_trial_failed"


class ModelUnreachableError(ModelError):
    """There was no connection to the endpoint, or each broke off before the answer was whole."""

    reason_code: ClassVar[str] = "harbor_broker_connection_failed"


class ModelTimeoutError(ModelError):
    """The endpoint did not answer in the time that one request has."""

    reason_code: ClassVar[str] = "harbor_broker_connection_failed"


class ModelServerError(ModelError):
    """The endpoint has a fault of its own: 5xx, or an error where the answer should be."""

    reason_code: ClassVar[str] = "harbor_broker_connection_failed"


class ModelRateLimitError(ModelError):
    """The endpoint takes no more requests for now, or the account is used up: 429."""

    reason_code: ClassVar[str] = "harbor_broker_connection_failed"


class ModelAuthError(ModelError):
    """The endpoint does not take the key: 401, 403."""


class ModelNotFoundError(ModelError):
    """The endpoint has no such path or no such model: 404."""


class ModelContextError(ModelError):
    """The conversation has more tokens than the model takes."""


class ModelRequestError(ModelError):
    """The endpoint refuses the request as it is."""


class ModelAnswerError(ModelError):
    """What came from the endpoint is no answer: not JSON, no choice in it, endless."""
