"""Trials drawn at random from a seed: the same trials for proctor, for harbor and on every machine.

One agent and model, one binary reward, as in the usual benchmark. Some trials end with an exception
beside their reward (the agent ran out of time), some without any (the environment never came up).
"""

import random
import string
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from uuid import UUID

AGENT = "claude-code"
AGENT_VERSION = "2.0.31"
MODEL = "claude-sonnet-4-5-20250929"
PROVIDER = "anthropic"
DATASET = "terminal-bench"

TIMED_OUT = "AgentTimeoutError"
NEVER_STARTED = "EnvironmentStartTimeoutError"

_SEED = 20260101
_EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
_LETTERS = string.ascii_letters + string.digits


@dataclass(frozen=True, slots=True)
class DrawnTrial:
    """What happened in one trial."""

    id: UUID
    name: str
    task: str
    started: datetime
    reward: float | None
    exception: str | None
    n_input_tokens: int
    n_cache_tokens: int
    n_output_tokens: int
    cost_usd: float


def draw_trials(n_tasks: int, n_attempts: int) -> Iterator[DrawnTrial]:
    """Trials in the order of harbor's plan: every task once, then every task again."""
    chance = random.Random(_SEED)
    difficulty = {f"task-{number:03}-of-the-set": chance.random() for number in range(n_tasks)}
    for attempt in range(n_attempts):
        for place, (task, limit) in enumerate(difficulty.items()):
            started = _EPOCH + timedelta(seconds=attempt * n_tasks + place, microseconds=1000)
            yield _draw_trial(chance, task, limit, started)


def _draw_trial(chance: random.Random, task: str, limit: float, started: datetime) -> DrawnTrial:
    fate = chance.random()
    exception = NEVER_STARTED if fate < 0.01 else TIMED_OUT if fate < 0.05 else None
    reward = None if exception == NEVER_STARTED else float(chance.random() < limit)
    n_input = chance.randrange(20_000, 2_000_000)
    n_output = chance.randrange(500, 50_000)
    return DrawnTrial(
        id=UUID(int=chance.getrandbits(128), version=4),
        name=f"{task}__{''.join(chance.choices(_LETTERS, k=7))}",
        task=task,
        started=started,
        reward=reward,
        exception=exception,
        n_input_tokens=n_input,
        n_cache_tokens=n_input * 9 // 10,
        n_output_tokens=n_output,
        cost_usd=round(n_input * 0.4e-6 + n_output * 15e-6, 6),
    )
