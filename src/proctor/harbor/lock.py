"""lock.json of a job: the planned trials, in order, with the digests of their inputs.

The text equals harbor 0.13.1's for the same plan, except for sets, which harbor writes in arbitrary
order and proctor sorted. Trials that are one object are rendered once: a plan with many attempts is
mostly repetition. A plan of more than 100,000 trials is written without white space and defaults,
which harbor reads as the same plan: a fifth of the size.
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
MANY_TRIALS = 100_000
"""A job of more trials has its own files in a compact form."""


class HarborLock(BaseModel, defer_build=True):
    """The harbor that can read the lock."""

    version: str | None = None
    git_commit_hash: str | None = None
    is_editable: bool | None = None


class TaskLock(BaseModel, defer_build=True):
    """A task with the digest of its files."""

    name: str
    type: Literal["local", "git", "package"]
    digest: str
    """`sha256:…` over the files that harbor would publish."""
    source: str | None = None
    path: Path | None = None
    git_url: str | None = None
    git_commit_id: str | None = None
    """The resolved commit, also if a branch or tag was requested."""


class FileLock(BaseModel, defer_build=True):
    """A file that every trial reads, with its digest."""

    path: Path
    """The path as given."""
    digest: str
    """`sha256:…`."""


class SkillLock(BaseModel, defer_build=True):
    """A skill of the agent, with its digest."""

    name: str
    source: Path
    digest: str
    """`sha256:…` over names and contents."""


class TrialLock(BaseModel, defer_build=True):
    """One planned trial."""

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
    """The command line, with secrets redacted."""
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
    """Make the lock of a plan; a secret that equals a variable in `host` is written as its name."""
    return JobLock.model_construct(
        schema_version=1,
        created_at=created_at,
        harbor=HarborLock(version=FORMAT_OF, is_editable=False),
        invocation=written_invocation(invocation, host),
        n_concurrent_trials=n_concurrent_trials,
        retry=retry,
        # model_construct does not copy: rendering relies on repeated trials being one object.
        trials=list(trials),
    )


def render_lock(lock: JobLock, *, many: int = MANY_TRIALS) -> bytes:
    """Render lock.json, without a final newline; compact if it has more than `many` trials."""
    if len(lock.trials) > many:
        return _render_compact(lock)
    head = lock.model_copy(update={"trials": []}).model_dump_json(indent=4, exclude_none=True)
    if not lock.trials:
        return head.encode()
    texts = {id(trial): _render_trial(trial) for trial in _each_once(lock.trials)}
    joined = ",\n".join([texts[id(trial)] for trial in lock.trials])
    return f"{head.removesuffix('[]\n}')}[\n{joined}\n    ]\n}}".encode()


def _render_compact(lock: JobLock) -> bytes:
    head = lock.model_copy(update={"trials": []}).model_dump_json(exclude_none=True)
    texts = {
        id(trial): trial.model_dump_json(exclude_none=True, exclude_defaults=True)
        for trial in _each_once(lock.trials)
    }
    # A line each, so that tools for text can be used on it.
    joined = ",\n".join([texts[id(trial)] for trial in lock.trials])
    return f"{head.removesuffix(']}')}\n{joined}\n]}}".encode()


def written_invocation(argv: Sequence[str], host: Mapping[str, str]) -> list[str]:
    """The command line as it may be written to a file: secrets in NAME=VALUE are redacted."""
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
    # harbor does not redact kwargs; proctor redacts those whose name looks sensitive.
    if flag in _KWARG_FLAGS and not is_sensitive(assignment.partition("=")[0]):
        return assignment
    return written_assignment(assignment, host)


def _each_once(trials: Sequence[TrialLock]) -> list[TrialLock]:
    return list({id(trial): trial for trial in trials}.values())


def _render_trial(trial: TrialLock) -> str:
    text = trial.model_dump_json(indent=4, exclude_none=True)
    # Strings in JSON have no raw newlines, so this only indents.
    return _INDENT + text.replace("\n", f"\n{_INDENT}")
