"""Every error class of proctor, as a tree. Each message is a sentence for a person.

ProctorError
├── InputError                      an input cannot be used
│   ├── JobError                    a Harbor job or trial directory
│   │   └── MixedJobsError          jobs that must not be scored as one
│   ├── CertificateError            a score certificate
│   ├── TraceError                  a trajectory, a conversation or an ATIF file
│   │   └── ChangedTraceError       it changed while it was being read
│   ├── TaskError                   a task directory or a dataset of them
│   ├── RecordError                 a TrialRecord
│   │   └── IncompleteRecordError   called complete, but fields are missing
│   ├── PolicyError                 a policy for submissions, or a limit out of its range
│   ├── AgentError                  an agent's settings, its files or its version command
│   ├── ClusterError                a Ray cluster that is missing, unsafe or has no fitting node
│   ├── ConfigError                 a job's configuration
│   ├── PrimeError                  Prime's API, or an evaluation it returned
│   ├── InspectError                a log of Inspect, or a sample in it
│   ├── PluginError                 a class given by its import path
│   ├── ImageError                  an image for the sandbox, or a Dockerfile
│   │   ├── UnbuiltError            an instruction that buildah or docker may build
│   │   └── RegistryError           a registry refuses, or sends something else
│   │       └── UnreachableRegistryError
│   ├── UnsupportedError            a task that needs what is missing, such as GPUs
│   ├── LedgerError                 an unusable ledger, or something it rejects
│   │   ├── NotSealedError          a record that may not be sealed: secrets, lost evidence
│   │   ├── ConflictError           a trial already sealed with different bytes
│   │   └── BusyError               another process held its lock for too long
│   ├── KeyFileError                a key that cannot be read, or may not be used
│   ├── NoteError                   a checkpoint or another signed note that cannot be read
│   ├── ProofFileError              a proof or a claim that cannot be read
│   ├── NotReplayableError          a recorded trial that cannot be run again
│   └── StatisticsError             a statistic is undefined, or counts do not add up
├── DamageError                     verification failed: data differs from what was sealed
│   ├── MissingArtifactError        evidence is missing
│   ├── AlteredArtifactError        evidence differs from what was sealed
│   ├── ForkError                   a log signed two contradicting histories
│   ├── ProofError                  a Merkle proof does not match its root
│   └── SignatureError              a signature is missing, or from another key
├── SandboxError                    the sandbox could not be built or used
│   ├── SandboxDiedError            its PID 1 ended while it was in use
│   └── StateTooLargeError          its written files are too large to keep
├── DockerError                     a Docker operation failed
│   ├── ContainerDiedError          the container ended while it was in use
│   └── EngineError                 no Docker engine, or no permission to use it
├── SlowTransferError               copying files out of an environment was too slow
├── TrialError                      what ended a phase of a trial
│   ├── EnvironmentStartTimeoutError
│   ├── AgentSetupTimeoutError
│   ├── AgentTimeoutError
│   ├── VerifierTimeoutError        (all four are TimeoutErrors too, as in harbor)
│   ├── HealthcheckError
│   ├── NonZeroAgentExitCodeError
│   ├── AddTestsDirError
│   ├── ToolsChangedError           the tests ran with tools that are not the image's
│   ├── DownloadVerifierDirError
│   ├── WorkerLostError             the machine or process that ran the trial died
│   └── ModelError                  a model endpoint gave no answer; with a reason code
│       ├── ModelUnreachableError   no connection, or each one was cut off
│       ├── ModelTimeoutError       (not a TimeoutError: the agent itself was in time)
│       ├── ModelServerError        5xx
│       ├── ModelRateLimitError     429
│       ├── ModelAuthError          401, 403
│       ├── ModelLimitError         a limit on requests, tokens or cost was reached
│       ├── ModelReplayError        a request differs from the recording that answers
│       ├── ModelNotFoundError      404
│       ├── ModelContextError       the context window is exceeded
│       ├── ModelRequestError       any other refusal
│       └── ModelAnswerError        the response is not an answer
├── RewardError                     a verifier left no usable reward
│   ├── RewardFileNotFoundError     (also a FileNotFoundError, as in harbor)
│   ├── RewardFileEmptyError
│   ├── LinkedRewardError           a link that leads out of the trial; harbor follows these
│   └── VerifierOutputParseError
├── NotThereError                   the viewer has no such page
└── MetricError                     a metric could not be computed

Reward and trial errors, except model errors, have harbor's names and messages. The reason code of
a reward or model error is stored on its class, so it is never parsed out of the message.
"""

from typing import ClassVar


class ProctorError(Exception):
    """Base of every error that proctor raises deliberately."""


class InputError(ProctorError):
    """An input cannot be used; the message says where, what was found and what was expected."""


class JobError(InputError):
    """A directory that is not a readable Harbor job or trial."""


class MixedJobsError(JobError):
    """Jobs that cannot honestly be combined into one number."""


class CertificateError(InputError):
    """A file that is not a score certificate."""


class TraceError(InputError):
    """A trace that cannot be read in the format it claims."""


class ChangedTraceError(TraceError):
    """A trace changed while it was being read; reading it again may succeed."""


class TaskError(InputError):
    """A task directory, or a dataset of them, that cannot be used."""


class RecordError(InputError):
    """A TrialRecord that breaks its format."""


class IncompleteRecordError(RecordError):
    """A record marked complete that lacks required fields."""

    def __init__(self, message: str, missing: tuple[str, ...]) -> None:
        super().__init__(message)
        self.missing = missing
        """The missing fields, in the order of the format."""

    def __reduce__(self) -> tuple[type, tuple[str, tuple[str, ...]]]:
        """Support pickling, which the default fails at because of the second argument."""
        return type(self), (str(self), self.missing)


class PolicyError(InputError):
    """A policy that cannot be used, or a limit out of its range."""


class RewardError(ProctorError):
    """The verifier finished without a usable reward."""

    reason_code: ClassVar[str] = "harbor_trial_failed"


class RewardFileNotFoundError(RewardError, FileNotFoundError):
    """Neither reward.txt nor reward.json exists."""

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
    """The viewer has no page or item of this name."""


class MetricError(ProctorError):
    """A metric is undefined for these rewards."""


class AgentError(InputError):
    """An agent cannot be used: bad settings, missing files, or a failing version command."""


class ClusterError(InputError):
    """A cluster that cannot be reached or used, or has no node that fits."""


class ConfigError(InputError):
    """A job's configuration cannot be used; the message names the file and the key."""


class PrimeError(InputError):
    """Prime's API failed, or returned something unusable."""


class InspectError(InputError):
    """A log of Inspect, or a sample in it, that cannot be read or imported."""


class PluginError(InputError):
    """A class given by its import path cannot be loaded."""


class ImageError(InputError):
    """An image or a Dockerfile that the sandbox cannot use."""


class UnbuiltError(ImageError):
    """An instruction of a Dockerfile that the sandbox does not build; buildah or docker may."""


class RegistryError(ImageError):
    """A registry of images refuses, or sends something else than it was asked for."""


class UnreachableRegistryError(RegistryError):
    """A registry of images cannot be reached now."""


class UnsupportedError(InputError):
    """Something this environment does not support: a task's field, or a clean verifier room."""


class LedgerError(InputError):
    """A ledger that cannot be used, or something it rejects."""


class NotSealedError(LedgerError):
    """A record may not be sealed; the message says why. Nothing was written."""


class ConflictError(LedgerError):
    """The trial is already sealed with different bytes; the message names both digests."""


class BusyError(LedgerError):
    """Another process is writing to the ledger. Nothing was written; try again."""


class KeyFileError(InputError):
    """A signing or verifying key that cannot be read or may not be used."""


class NoteError(InputError):
    """A signed note, such as a checkpoint, that cannot be read as one."""


class ProofFileError(InputError):
    """A proof or a claim that cannot be parsed; its contents were not checked."""


class NotReplayableError(InputError):
    """A recorded trial that cannot be run again; not necessarily an error in the record."""


class StatisticsError(InputError):
    """A statistic is undefined for these numbers, or counts do not add up."""


class DamageError(ProctorError):
    """Data differs from what was sealed. Commands exit with code 1."""


class MissingArtifactError(DamageError):
    """Evidence that an entry names is missing from the ledger."""


class AlteredArtifactError(DamageError):
    """Evidence differs from what was sealed."""


class ForkError(DamageError):
    """A log signed two checkpoints that cannot belong to one history."""


class ProofError(DamageError):
    """A Merkle proof that does not match its root."""


class SignatureError(DamageError):
    """A signature that is missing, or made by another key."""


class SandboxError(ProctorError):
    """A sandbox could not be built, or an operation in it failed."""


class SandboxDiedError(SandboxError):
    """PID 1 of a sandbox ended while it was in use: it was killed, or memory ran out."""


class StateTooLargeError(SandboxError):
    """The files written in an environment are too large to keep."""


class DockerError(ProctorError):
    """A Docker operation failed: on a container, an image or a copy."""


class ContainerDiedError(DockerError):
    """A container's first process ended while it was in use; the engine still responds."""


class EngineError(DockerError):
    """No docker program, no responding engine, or no permission to use it."""


class SlowTransferError(ProctorError):
    """Copying files out of an environment was too slow; files already copied are kept."""


class TrialError(ProctorError):
    """The error that ended a phase of a trial; its class name goes into result.json."""


class EnvironmentStartTimeoutError(TrialError, TimeoutError):
    """The environment took too long to start."""


class AgentSetupTimeoutError(TrialError, TimeoutError):
    """Setting up the agent took too long."""


class AgentTimeoutError(TrialError, TimeoutError):
    """The agent took too long; its work is still verified."""


class VerifierTimeoutError(TrialError, TimeoutError):
    """The verifier took too long; a reward it wrote does not count."""


class HealthcheckError(TrialError):
    """The environment did not become healthy."""


class NonZeroAgentExitCodeError(TrialError):
    """The agent's command failed; its work is still verified."""


class AddTestsDirError(TrialError):
    """The tests could not be copied into the environment."""


class ToolsChangedError(TrialError):
    """The tests ran with tools that are not the image's own, so their result does not count."""


class DownloadVerifierDirError(TrialError):
    """The verifier's output could not be copied out."""


class WorkerLostError(TrialError):
    """The process or the node of a cluster that ran a trial died: no failure of the agent."""


class ModelError(TrialError):
    """A model endpoint gave no answer."""

    reason_code: ClassVar[str] = "harbor_trial_failed"


class ModelUnreachableError(ModelError):
    """No connection to the endpoint, or each one was cut off before the answer was complete."""

    reason_code: ClassVar[str] = "harbor_broker_connection_failed"


class ModelTimeoutError(ModelError):
    """The endpoint did not answer within the time limit of one request."""

    reason_code: ClassVar[str] = "harbor_broker_connection_failed"


class ModelServerError(ModelError):
    """The endpoint failed: 5xx, or an error in place of the answer."""

    reason_code: ClassVar[str] = "harbor_broker_connection_failed"


class ModelRateLimitError(ModelError):
    """The endpoint is limiting requests, or the account's quota is used up: 429."""

    reason_code: ClassVar[str] = "harbor_broker_connection_failed"


class ModelAuthError(ModelError):
    """The endpoint rejects the key: 401, 403."""


class ModelNotFoundError(ModelError):
    """The endpoint has no such path or no such model: 404."""


class ModelContextError(ModelError):
    """The conversation exceeds the model's context window."""


class ModelRequestError(ModelError):
    """The endpoint rejects the request."""


class ModelLimitError(ModelError):
    """A limit on requests, tokens or cost was reached; the trial is verified as it is."""


class ModelReplayError(ModelError):
    """A request differs from the recording whose answers are used, or that cannot be read.

    The trial is verified as it is.
    """


class ModelAnswerError(ModelError):
    """The endpoint's response is not an answer: not JSON, without a choice, or endless."""
