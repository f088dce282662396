"""One trial before it runs: everything that decides it, as a value."""

import os
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from proctor.harbor.configs import TrialConfig
from proctor.record.model import AdaptationProvenance
from proctor.task.digests import TaskDigests
from proctor.task.directory import Task
from proctor.trial.finding import Finding
from proctor.trial.paths import TrialPaths


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordWish:
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


_MOST = 100
"""Things that are kept; a key that is another for every attempt must not fill the memory."""


class Shared:
    """What attempts at one task by one agent have in common, made once and never changed.

    Whoever shares one among plans says that they differ in their names and numbers alone.
    """

    def __init__(self) -> None:
        self._made: dict[Hashable, Any] = {}

    def __len__(self) -> int:
        return len(self._made)

    def once[T](self, key: Hashable, make: Callable[[], T]) -> T:
        """What was made under this key, or is made now."""
        try:
            made: T = self._made[key]
        except KeyError:
            made = make()
            if len(self._made) < _MOST:
                self._made[key] = made
        return made


@dataclass(frozen=True, kw_only=True)
class Plan:
    """One trial, planned."""

    config: TrialConfig
    """harbor's config.json of the trial; its name and trials_dir say where it lies."""
    task: Task
    """With extra instructions already joined to its instruction."""
    digests: TaskDigests
    record: RecordWish
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
    shared: Shared = field(default_factory=Shared, compare=False, repr=False)
    """What other attempts at the same task by the same agent have made already."""

    @cached_property
    def paths(self) -> TrialPaths:
        """Where it leaves everything."""
        return TrialPaths(Path(self.place))

    @cached_property
    def place(self) -> str:
        """The trial's directory, as text."""
        return f"{self.trials_dir}/{self.config.trial_name}"

    @property
    def trials_dir(self) -> str:
        """Where the trials of its job lie, in the words of the config."""
        return self.shared.once("trials_dir", lambda: str(Path(self.config.trials_dir)))

    @property
    def real_trials_dir(self) -> str:
        """Where the trials of its job lie: absolute, without links."""
        directory = self.config.trials_dir
        return self.shared.once(
            "real_trials_dir", lambda: os.path.realpath(Path(directory).expanduser())
        )
