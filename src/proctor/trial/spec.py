"""One trial before it runs: everything that decides it, as a value that can be sent elsewhere.

    render_spec(spec)    its JSON, with the values of secrets: for a pipe, never for a file
    parse_spec(text)     the same value again

Paths in it are those of the machine that planned it: of the task's directory, the agent's skills,
compose files, and whatever kwargs name. Whoever runs it on another machine brings these along.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
from pydantic import BaseModel

from proctor.harbor.configs import TrialConfig
from proctor.harbor.env import WITH_SECRETS
from proctor.record.model import AdaptationProvenance
from proctor.task.digests import TaskDigests
from proctor.task.directory import Task
from proctor.trial.finding import Finding


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordFields:
    """What the record says beyond what the trial itself knows."""

    experiment: str
    """Default: the job's name."""
    dataset_id: str | None = None
    adaptation: AdaptationProvenance | None = None
    system_prompt: str | None = None
    """The text of the system prompt that the agent is run with."""
    adapter_revision: str | None = None
    """Revision of the agent's tree or version, where the caller found one."""
    adapter_carrier: str | None = None
    """The package that the agent comes with, as `harbor==0.13.1`."""

    @property
    def pin(self) -> str | None:
        """What is known of the agent's revision before it runs."""
        return " ".join(filter(None, (self.adapter_revision, self.adapter_carrier))) or None


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialSpec:
    """One trial that is to run; where it runs is decided by whoever runs it."""

    config: TrialConfig
    """harbor's config.json of the trial."""
    uri: str
    """Where the trial lies once its job has it: `trial_uri` of its result."""
    task: Task
    """With extra instructions already joined to its instruction."""
    digests: TaskDigests
    record: RecordFields
    is_harbor_compatible: bool = False
    """--verifier-compat harbor-0.13.1: the verifier finds things as harbor leaves them."""
    verify_again: int = 0
    """--verify-again: how often what the agent left is verified beyond the time that counts."""
    clean_room: bool = True
    """--no-clean-room: not; whether the tests are repeated without the agent's system changes."""
    attempt: int = 1
    """1, 2, …: how often this slot has been begun."""
    carried: tuple[Finding, ...] = ()
    """Findings of earlier attempts, which stay findings of the trial."""

    @property
    def name(self) -> str:
        """The trial's name, which is also that of its directory."""
        return self.config.trial_name


def render_spec(spec: TrialSpec) -> str:
    """The JSON of a spec, on one line, with the values of secrets in it."""
    # The standard library's: it has escapes for names of files that are no UTF-8.
    return json.dumps(msgspec.to_builtins(spec, enc_hook=_to_plain))


def parse_spec(text: str) -> TrialSpec:
    """The spec that was rendered.

    Raises:
        ValueError: it is none.
    """
    return msgspec.convert(json.loads(text), TrialSpec, dec_hook=_from_plain)


def _to_plain(value: object) -> object:
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json", context=WITH_SECRETS)
    return str(value)


def _from_plain(kind: type, plain: Any) -> object:
    if issubclass(kind, BaseModel):
        return kind.model_validate(plain)
    return Path(plain) if kind is Path else plain
