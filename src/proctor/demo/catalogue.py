"""The invented tasks, agents, models and experiments of the demo data."""

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

DATASET: Final = "demo-terminal"
VERSION: Final = "1.0"


@dataclass(frozen=True, slots=True)
class DemoTask:
    """A task that nobody solved."""

    name: str
    difficulty: float
    """Share of the way from trivial (0) to unsolvable (1)."""
    instruction: str
    product: str
    """The file or directory that the tests look at."""
    test: str
    """The test that fails where the agent fails."""
    failure: str
    """Its assertion, as pytest prints it."""
    is_partial: bool = False
    """Whether each passing test gives a share of the reward."""


@dataclass(frozen=True, slots=True)
class DemoModel:
    """A model with its skill and its prices."""

    name: str
    skill: float
    input_usd: float
    """US dollars for a million tokens."""
    output_usd: float
    speed: float
    """Seconds for a turn."""


@dataclass(frozen=True, slots=True)
class DemoAgent:
    """An agent with its version and its skill."""

    name: str
    version: str
    skill: float
    turns: int
    """Turns that it takes for an average task."""


@dataclass(frozen=True, slots=True)
class DemoExperiment:
    """An agent with a model on all tasks."""

    name: str
    agent: DemoAgent
    model: DemoModel
    is_cheating: bool = False
    """Whether the agent plants a reward where it gets stuck."""


_LARGE = DemoModel("acme/atlas-large", 0.30, 3.0, 15.0, 9.0)
_MINI = DemoModel("acme/atlas-mini", 0.02, 0.4, 1.6, 4.0)
_ORCA = DemoModel("northwind/orca-2", 0.18, 2.0, 8.0, 6.5)
_PATCHWORK = DemoAgent("patchwork", "1.8.2", 0.22, 11)
_TURTLE = DemoAgent("turtle", "0.9.0", 0.14, 18)
_QUICKFIX = DemoAgent("quickfix", "3.1.4", 0.04, 6)
_BARE = DemoAgent("bare-shell", "0.2.0", 0.0, 9)

EXPERIMENTS: Final = (
    DemoExperiment("patchwork-atlas-large", _PATCHWORK, _LARGE),
    DemoExperiment("patchwork-atlas-mini", _PATCHWORK, _MINI),
    DemoExperiment("turtle-atlas-large", _TURTLE, _LARGE),
    DemoExperiment("turtle-orca-2", _TURTLE, _ORCA),
    DemoExperiment("quickfix-orca-2", _QUICKFIX, _ORCA, is_cheating=True),
    DemoExperiment("bare-shell-atlas-mini", _BARE, _MINI),
)

TASKS: Final = tuple(
    msgspec.convert(task, DemoTask)
    for task in tomllib.loads(Path(__file__).with_name("tasks.toml").read_text("utf-8"))["task"]
)
"""Ordered by name."""
