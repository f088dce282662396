"""The specification of one trial: everything that decides it, as a value that can be sent.

    render_spec(spec)    its JSON, including the values of secrets: for a pipe, never for a file
    parse_spec(text)     the inverse

Paths in it refer to the machine that planned it: the task's directory, and what `find_paths` names.
An executor on another machine copies them there, and says where in `places`.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec
from pydantic import BaseModel

from proctor.harbor.configs import AgentConfig, TrialConfig
from proctor.harbor.env import WITH_SECRETS
from proctor.record.model import AdaptationProvenance
from proctor.task.digests import TaskDigests
from proctor.task.directory import Task
from proctor.trial.finding import Finding

# Arguments of built-in agents that name a file or a directory of the host.
_PATH_KWARGS = {"command": "tree", "scripted": "script", "replay": "trajectory"}


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordFields:
    """Fields of the record that the trial itself does not know."""

    experiment: str
    """Default: the job's name."""
    dataset_id: str | None = None
    adaptation: AdaptationProvenance | None = None
    system_prompt: str | None = None
    """The text of the agent's system prompt."""
    adapter_revision: str | None = None
    """Revision or version of the agent's source, if the caller found one."""
    adapter_carrier: str | None = None
    """The package that provides the agent, such as `harbor==0.13.1`."""
    command_pin: str | None = None
    """What pins an agent's shell command, used if nothing else gives a revision. Not part of `pin`:
    the command itself is part of the configuration already."""
    node: str | None = None
    """Name of the machine of a cluster that runs the trial; set there."""

    @property
    def pin(self) -> str | None:
        """What is known of the agent's revision before it runs."""
        return " ".join(filter(None, (self.adapter_revision, self.adapter_carrier))) or None


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialSpec:
    """A trial to run; the executor decides where."""

    config: TrialConfig
    """harbor's config.json of the trial."""
    uri: str
    """Final location of the trial in its job: `trial_uri` of its result."""
    task: Task
    """Includes extra instructions."""
    digests: TaskDigests
    record: RecordFields
    is_harbor_compatible: bool = False
    """--verifier-compat harbor-0.13.1: the verifier finds things as harbor leaves them."""
    verify_again: int = 0
    """--verify-again: number of verifications beyond the one that counts."""
    clean_room: bool = True
    """Whether to repeat the tests without the agent's system changes; False with --no-clean-room.
    """
    gateway: bool = True
    """Whether its agent reaches models through the job's gateway; False with --no-gateway."""
    replay: tuple[str, ...] = ()
    """Files with recorded exchanges that answer its agent's requests to models."""
    attempt: int = 1
    """Number of this attempt, from 1."""
    carried: tuple[Finding, ...] = ()
    """Findings of earlier attempts, which remain findings of the trial."""

    places: Mapping[str, str] = field(default_factory=dict)
    """Where the paths of `find_paths` are on the machine that runs it; those left out: there."""

    @property
    def name(self) -> str:
        """The trial's name, which is also that of its directory."""
        return self.config.trial_name

    def find_paths(self) -> list[str]:
        """Return the paths of files and directories, other than the task's, that it reads."""
        agent = self.config.agent
        named = agent.kwargs.get(_PATH_KWARGS.get(agent.name or "", ""))
        compose = map(str, self.config.environment.extra_docker_compose)
        return [*map(str, agent.skills), *compose, *([str(named)] if named else [])]

    def find_place(self, path: Path | str) -> Path:
        """Return where a path of its configuration is on this machine."""
        return Path(self.places.get(str(path), path))

    def place_agent(self, config: AgentConfig) -> AgentConfig:
        """Return the config of its agent with the file that it reads on this machine."""
        key = _PATH_KWARGS.get(config.name or "")
        if key is None or str(config.kwargs.get(key)) not in self.places:
            return config
        placed = {key: str(self.find_place(config.kwargs[key]))}
        return config.model_copy(update={"kwargs": {**config.kwargs, **placed}})

    def move_task(self, directory: Path) -> "TrialSpec":
        """Return the same trial with its task in another directory, which has a copy of it."""
        steps = [
            msgspec.structs.replace(step, directory=directory / "steps" / step.name)
            for step in self.task.steps
        ]
        task = msgspec.structs.replace(self.task, directory=directory, steps=tuple(steps))
        return replace(self, task=task)


def render_spec(spec: TrialSpec) -> str:
    """Render a spec as one line of JSON, including the values of secrets."""
    # The standard library's json can escape file names that are not UTF-8; msgspec cannot.
    return json.dumps(msgspec.to_builtins(spec, enc_hook=_to_plain))


def parse_spec(text: str) -> TrialSpec:
    """Parse a rendered spec."""
    return msgspec.convert(json.loads(text), TrialSpec, dec_hook=_from_plain)


def _to_plain(value: object) -> object:
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json", context=WITH_SECRETS)
    return str(value)


def _from_plain(kind: type, plain: Any) -> object:
    if issubclass(kind, BaseModel):
        return kind.model_validate(plain)
    return Path(plain) if kind is Path else plain
