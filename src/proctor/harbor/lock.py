"""lock.json of a job: what was planned, each trial with the digests of its inputs, in order.

The text is harbor 0.13.1's for the same plan, but for sets, which harbor writes in no order and
we sorted. Trials that are one object are rendered once: a plan of many attempts is mostly
repetition.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Literal

from pydantic import BaseModel

from proctor.harbor.configs import AgentConfig, EnvironmentConfig, RetryConfig, VerifierConfig
from proctor.harbor.env import is_sensitive, written_assignment

FORMAT_OF = "0.13.1"
"""The release of harbor whose format this is."""

_ENV_FLAGS = frozenset({"--ae", "--agent-env", "--ve", "--verifier-env"})
_KWARG_FLAGS = frozenset(
    {"--ak", "--agent-kwarg", "--ek", "--environment-kwarg", "--verifier-kwarg"}
)
_INDENT = " " * 8


class HarborLock(BaseModel, defer_build=True):
    """The harbor that can read the lock."""

    version: str | None = None
    git_commit_hash: str | None = None
    is_editable: bool | None = None


class TaskLock(BaseModel, defer_build=True):
    """A task and the digest of its files."""

    name: str
    type: Literal["local", "git", "package"]
    digest: str
    """`sha256:…` over the files that harbor would publish."""
    source: str | None = None
    path: Path | None = None
    git_url: str | None = None
    git_commit_id: str | None = None
    """The commit that was found, where another name was asked for."""


class FileLock(BaseModel, defer_build=True):
    """A file that every trial reads, and its digest."""

    path: Path
    """As it was given."""
    digest: str
    """`sha256:…`."""


class SkillLock(BaseModel, defer_build=True):
    """A skill of the agent, and its digest."""

    name: str
    source: Path
    digest: str
    """`sha256:…` over names and contents."""


class TrialLock(BaseModel, defer_build=True):
    """One trial of the plan."""

    task: TaskLock
    timeout_multiplier: float = 1.0
    agent_timeout_multiplier: float | None = None
    verifier_timeout_multiplier: float | None = None
    agent_setup_timeout_multiplier: float | None = None
    environment_build_timeout_multiplier: float | None = None
    extra_instructions: list[FileLock] | None = None
    agent: AgentConfig
    skills: list[SkillLock] = []
    environment: EnvironmentConfig
    extra_docker_compose: list[FileLock] | None = None
    verifier: VerifierConfig


class JobLock(BaseModel, defer_build=True):
    """The whole plan."""

    schema_version: int = 1
    created_at: datetime
    """UTC."""
    harbor: HarborLock
    invocation: list[str] | None = None
    """The command line, without the values of secrets."""
    n_concurrent_trials: int
    retry: RetryConfig
    trials: list[TrialLock] = []


def make_lock(
    *,
    created_at: datetime,
    invocation: Sequence[str],
    n_concurrent_trials: int,
    retry: RetryConfig,
    trials: Sequence[TrialLock],
    host: Mapping[str, str],
) -> JobLock:
    """The lock of a plan; `host` has the variables that a secret may be written as a name of."""
    return JobLock.model_construct(
        schema_version=1,
        created_at=created_at,
        harbor=HarborLock(version=FORMAT_OF, is_editable=False),
        invocation=written_invocation(invocation, host),
        n_concurrent_trials=n_concurrent_trials,
        retry=retry,
        # Not validated, that is not copied: which trials are one object must be seen.
        trials=list(trials),
    )


def render_lock(lock: JobLock) -> bytes:
    """The text of lock.json; it has no final newline."""
    head = lock.model_copy(update={"trials": []}).model_dump_json(indent=4, exclude_none=True)
    if not lock.trials:
        return head.encode()
    texts = {id(trial): _render_trial(trial) for trial in _each_once(lock.trials)}
    joined = ",\n".join([texts[id(trial)] for trial in lock.trials])
    return f"{head.removesuffix('[]\n}')}[\n{joined}\n    ]\n}}".encode()


def written_invocation(argv: Sequence[str], host: Mapping[str, str]) -> list[str]:
    """A command line as it may be written down: secrets given as NAME=VALUE are redacted."""
    written: list[str] = []
    flag = ""
    for word in argv:
        name, equals, value = word.partition("=")
        if flag:
            written.append(_written_value(flag, word, host))
            flag = ""
        elif word in _ENV_FLAGS | _KWARG_FLAGS:
            written.append(word)
            flag = word
        elif equals and name in _ENV_FLAGS | _KWARG_FLAGS:
            written.append(f"{name}={_written_value(name, value, host)}")
        else:
            written.append(word)
    return written


def _written_value(flag: str, assignment: str, host: Mapping[str, str]) -> str:
    # harbor writes arguments as they are, keys among them; only those are changed.
    if flag in _KWARG_FLAGS and not is_sensitive(assignment.partition("=")[0]):
        return assignment
    return written_assignment(assignment, host)


def _each_once(trials: Sequence[TrialLock]) -> list[TrialLock]:
    return list({id(trial): trial for trial in trials}.values())


def _render_trial(trial: TrialLock) -> str:
    text = trial.model_dump_json(indent=4, exclude_none=True)
    # Text inside quotes has no newline of its own.
    return _INDENT + text.replace("\n", f"\n{_INDENT}")
