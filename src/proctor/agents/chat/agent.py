"""`chat` as an agent of a trial. Loaded on use: httpx takes its time to load."""

from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from typing import Final

import msgspec

from proctor.agents.chat.accounting import Account
from proctor.agents.chat.endpoint import Endpoint, open_endpoint
from proctor.agents.chat.limits import Reached
from proctor.agents.chat.loop import SYSTEM_PROMPT, Loop
from proctor.agents.chat.retries import Asker, Pace
from proctor.agents.chat.settings import (
    KEY_VARIABLE,
    URL_VARIABLE,
    ChatSettings,
    find_address,
    load_system_prompt,
)
from proctor.agents.chat.story import Story
from proctor.agents.chat.tool import describe_tool
from proctor.agents.chat.wire import Object
from proctor.agents.live import open_trace
from proctor.agents.secrets import redact_env
from proctor.agents.settings import parse_settings
from proctor.errors import AgentError, ModelError
from proctor.harbor.agents import SHORTEST_CHAT_KEY
from proctor.traces.writer import Redactor
from proctor.trial.agent import AgentContext
from proctor.trial.environment import Environment
from proctor.trial.order import AgentOrder
from proctor.trial.sitting import host_variables

VERSION: Final = "1.0.0"
"""Of the loop: what it says to the model and how it runs what comes back."""


class ChatAgent:
    """A loop around a model behind an endpoint, with one tool."""

    def __init__(self, order: AgentOrder, pace: Pace | None = None) -> None:
        self._order = order
        self._settings = parse_settings(ChatSettings, order.config)
        self._model = order.config.model_name or ""
        self._address = find_address(self._settings, order.extra_env, host_variables())
        self._system = _find_system(self._settings, order.skills_dir)
        self._pace = pace or Pace()
        if order.mcp_servers:
            names = ", ".join(server.name for server in order.mcp_servers)
            order.logger.warning("chat has one tool, bash; MCP servers are not used: %s", names)

    @staticmethod
    def name() -> str:
        """Its name in results."""
        return "chat"

    def version(self) -> str | None:
        """Version of the loop."""
        return VERSION

    async def setup(self, environment: Environment) -> None:
        """Needs nothing inside."""

    async def run(self, instruction: str, environment: Environment, context: AgentContext) -> None:
        """Do the task; each answer of the model is a step of <trial>/agent/trajectory.jsonl.

        Raises:
            ModelError: the endpoint gave no answer; the class says why.
            AgentError: max_tokens or max_cost_usd cannot be watched.
        """
        redactor = self._find_redactor()
        async with self._open_endpoint(redactor) as endpoint:
            with open_trace(self._order.logs_dir, redactor) as trace:
                retries, logger = self._settings.retries, self._order.logger
                loop = Loop(
                    settings=self._settings,
                    model=self._model,
                    asker=Asker(endpoint, retries, self._pace, logger),
                    environment=environment,
                    env=_without_endpoint(self._order.extra_env),
                    story=Story(trace, redactor),
                    account=Account(self._model),
                    pace=self._pace,
                    redactor=redactor,
                )
                loop.story.begin(self._system, instruction, self._describe())
                await self._run(loop, instruction, context)

    async def _run(self, loop: Loop, instruction: str, context: AgentContext) -> None:
        """Run the loop; however it ends, the trial is told what it took."""
        ended: dict[str, object] = {"ended": "stopped"}
        try:
            reached = await loop.run(self._system, instruction)
            ended = {"ended": "answer"} if reached is None else _describe_limit(reached)
            if reached is not None:
                loop.story.end(reached.sentence, limit=msgspec.to_builtins(reached))
        except (ModelError, AgentError) as error:
            ended = {"ended": "error"}
            loop.story.end(str(error), exception=type(error).__name__)
            raise
        finally:
            loop.account.fill(context)
            told = {**ended, "endpoint": self._address.shown, **loop.account.describe()}
            # A model's name is the endpoint's own words.
            context.metadata = loop.redactor.redact(told)

    def _find_redactor(self) -> Redactor:
        key = self._address.key or ""
        env = {**self._order.extra_env, KEY_VARIABLE: key}
        if len(key) < SHORTEST_CHAT_KEY:
            del env[KEY_VARIABLE]
        return redact_env(env)

    def _open_endpoint(self, redactor: Redactor) -> AbstractAsyncContextManager[Endpoint]:
        seconds = self._settings.request_timeout_sec
        return open_endpoint(self._address, seconds, redactor, self._pace.clock)

    def _describe(self) -> Object:
        """The agent as a trajectory names it."""
        return {
            "name": self.name(),
            "version": VERSION,
            "model_name": self._model,
            "tool_definitions": [describe_tool(self._settings)],
        }


def _describe_limit(reached: Reached) -> dict[str, object]:
    return {"ended": "limit", "limit": msgspec.to_builtins(reached)}


def _find_system(settings: ChatSettings, skills_dir: str | None) -> str:
    system = load_system_prompt(settings) or SYSTEM_PROMPT
    return (
        f"{system}\n\nThere are notes on how to do things in {skills_dir}."
        if skills_dir
        else system
    )


def _without_endpoint(env: Mapping[str, str]) -> dict[str, str]:
    """What commands are given: the key is the loop's, and a model could read it aloud."""
    return {name: env[name] for name in env if name not in (KEY_VARIABLE, URL_VARIABLE)}
