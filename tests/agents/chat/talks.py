"""A run of `chat` in a small real environment, against an endpoint on loopback."""

import asyncio
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from proctor.agents.chat.agent import ChatAgent
from proctor.agents.chat.endpoint import Pace
from proctor.harbor.configs import AgentConfig
from proctor.traces.entry import Entry
from proctor.traces.trajectory import load_trajectory
from proctor.trial.agent import AgentContext
from proctor.trial.clock import SYSTEM
from tests.agents.chat.server import Server
from tests.agents.places import Place, make_place, order_for

KEY = "sk-loopback-0123456789"


@dataclass
class Waits:
    """Waits that take no time, and are remembered."""

    seconds: list[float] = field(default_factory=list)

    async def __call__(self, seconds: float) -> None:
        self.seconds.append(seconds)
        await asyncio.sleep(0)


@dataclass
class Talk:
    """A run that ended."""

    place: Place
    context: AgentContext
    waits: list[float]

    @property
    def entries(self) -> list[Entry]:
        path = self.place.trial_paths.agent_dir / "trajectory.jsonl"
        return load_trajectory(str(path)).entries

    def of(self, role: str) -> list[Entry]:
        return [entry for entry in self.entries if entry.role == role]

    @property
    def told(self) -> dict[str, Any]:
        """What the trial is told beyond tokens."""
        assert self.context.metadata is not None
        return self.context.metadata

    @property
    def commands(self) -> list[str]:
        return [call[1] for call in self.place.calls if call[0] == "exec"]


def make_chat(place: Place, url: str, waits: Waits, **kwargs: Any) -> ChatAgent:
    env = kwargs.pop("env", {"OPENAI_API_KEY": KEY})
    model = kwargs.pop("model", "gpt-4o")
    wishes = kwargs.pop("wishes", {})
    clock = kwargs.pop("clock", SYSTEM)
    config = AgentConfig(
        name="chat", model_name=model, kwargs={"base_url": url, **kwargs}, env=dict(env)
    )
    order = order_for(place, config, extra_env=env, **wishes)
    return ChatAgent(order, Pace(sleep=waits, chance=lambda: 0.5, clock=clock))


def start(root: Path, server: Server | str, **kwargs: Any) -> tuple[ChatAgent, Talk]:
    """A run that has not begun, and what will be known of it."""
    place, waits = make_place(root), Waits()
    url = server if isinstance(server, str) else server.url
    agent = make_chat(place, url, waits, **kwargs)
    return agent, Talk(place, AgentContext(), waits.seconds)


def talk(root: Path, server: Server | str, **kwargs: Any) -> Talk:
    """A whole run."""
    agent, run = start(root, server, **kwargs)
    asyncio.run(agent.run("Do it.", run.place, run.context))
    return run


def fail(root: Path, server: Server | str, **kwargs: Any) -> tuple[Exception, Talk]:
    """A run that ends in an exception."""
    agent, run = start(root, server, **kwargs)
    try:
        asyncio.run(agent.run("Do it.", run.place, run.context))
    except Exception as error:  # noqa: BLE001 - the test looks what it is
        return error, run
    raise AssertionError("it ended as if nothing had been wrong")
