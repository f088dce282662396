"""The `chat` agent and its loop. Imported on use, because httpx is slow to import."""

import asyncio
import math
from collections.abc import Awaitable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Final

import msgspec

from proctor.agents.chat.accounting import Account
from proctor.agents.chat.endpoint import Endpoint, open_endpoint
from proctor.agents.chat.limits import Reached, find_reached
from proctor.agents.chat.retries import Asker, Pace
from proctor.agents.chat.settings import (
    KEY_VARIABLE,
    URL_VARIABLE,
    ChatSettings,
    find_address,
    load_system_prompt,
)
from proctor.agents.chat.tool import (
    Command,
    Malformed,
    Result,
    describe_tool,
    parse_call,
    render_result,
    run_command,
)
from proctor.agents.chat.trajectory import ChatTrajectory
from proctor.agents.chat.wire import (
    Answer,
    Call,
    Object,
    assistant_message,
    render_request,
    system_message,
    tool_message,
    user_message,
)
from proctor.agents.live import open_trace
from proctor.agents.secrets import redact_env
from proctor.agents.settings import parse_settings
from proctor.errors import AgentError, ModelError
from proctor.harbor.agents import SHORTEST_CHAT_KEY
from proctor.traces.writer import Redactor
from proctor.trial.agent import AgentContext, AgentOrder
from proctor.trial.environment import Environment
from proctor.trial.trial_run import host_variables

# The loop: ask the model, run its calls, until it answers without one or a limit is reached
#
# An empty or truncated answer, or a call that cannot be run, gets an explanation in reply. After
# `max_malformed` such answers in a row the run ends.


SYSTEM_PROMPT: Final = (
    "You are working on a computer through one tool, bash. Do the task that the user gives you: "
    "run commands, look at what they print, and check your work. Nobody can answer questions. "
    "When the task is done, answer without calling the tool; that ends your work."
)
_CUT_OFF: Final = "Your answer was cut off because it was too long. Go on in smaller steps."
_EMPTY: Final = "Your answer was empty. Call bash to go on, or say in words that you are done."


@dataclass(slots=True)
class Loop:
    """One run of the agent."""

    settings: ChatSettings
    model: str
    asker: Asker
    environment: Environment
    env: Mapping[str, str]
    """Environment variables of its commands."""
    trajectory: ChatTrajectory
    account: Account
    pace: Pace
    redactor: Redactor
    _messages: list[Object] = field(default_factory=list)
    _n_malformed_in_a_row: int = 0
    _start: float = 0.0

    async def run(self, system: str, instruction: str) -> Reached | None:
        """Do the task. Return the limit that ended it, or None if the model did."""
        self._start = self.pace.clock.monotonic()
        self._messages = [system_message(system), user_message(instruction)]
        while True:
            if reached := find_reached(self.settings, self.account, self._seconds):
                return reached
            if isinstance(answer := await self._ask(), Reached):
                return answer
            with_reasoning = self.settings.send_reasoning
            self._messages.append(assistant_message(answer, with_reasoning=with_reasoning))
            if not await self._act_on(answer):
                return None
            if self._n_malformed_in_a_row >= self.settings.max_malformed:
                n_row = self._n_malformed_in_a_row
                return Reached("max_malformed", self.settings.max_malformed, n_row)

    @property
    def _seconds(self) -> float:
        return self.pace.clock.monotonic() - self._start

    @property
    def _seconds_left(self) -> float:
        most = self.settings.max_seconds
        return math.inf if most is None else most - self._seconds

    async def _ask(self) -> Answer | Reached:
        """Return the next answer, or the time limit if it was reached first."""
        n_before, start = self.account.n_retries, self.pace.clock.monotonic()
        asked = self.asker.ask(self._request(), self._count_retry)
        try:
            answer = await self._within_time(asked)
        finally:
            seconds = self.pace.clock.monotonic() - start
            self.account.model_seconds += seconds
        if answer is None:
            return Reached("max_seconds", self.settings.max_seconds or 0, self._seconds)
        charge = self.account.add(answer, self.pace.clock.now())
        n_tries = 1 + self.account.n_retries - n_before
        self.trajectory.answer(answer, charge, seconds, n_tries)
        return answer

    async def _within_time(self, asked: Awaitable[Answer]) -> Answer | None:
        """Await the answer; None if max_seconds passed first."""
        left = self._seconds_left
        limit = asyncio.timeout(left if math.isfinite(left) else None)
        try:
            async with limit:
                return await asked
        except TimeoutError:
            # Only our own limit means "out of time"; any other timeout is an error of the request.
            if not limit.expired():
                raise
            return None

    def _count_retry(self) -> None:
        self.account.n_retries += 1

    def _request(self) -> bytes:
        settings = self.settings
        options = {
            "max_tokens": settings.max_output_tokens,
            "temperature": settings.temperature,
            "top_p": settings.top_p,
            "seed": settings.seed,
            "reasoning_effort": settings.reasoning_effort,
        }
        request: Object = {
            "model": self.model,
            "messages": self._messages,
            "tools": [describe_tool(settings)],
            **{name: value for name, value in options.items() if value is not None},
            # Last, but without the keys above: ChatSettings refuses these.
            **(settings.extra_body or {}),
        }
        if settings.stream:
            # Without include_usage, streamed answers report no tokens.
            request |= {"stream": True, "stream_options": {"include_usage": True}}
        return render_request(request)

    async def _act_on(self, answer: Answer) -> bool:
        """Run the calls of an answer; return whether to go on asking."""
        if answer.calls:
            could_run: list[bool] = []
            for call in answer.calls:
                if self._seconds_left > 0:
                    could_run.append(await self._run_call(call))
            # Calls that were not run for lack of time do not count as malformed.
            is_useless = len(could_run) == len(answer.calls) and not any(could_run)
            self._count_malformed(could_run.count(False), is_useless=is_useless)
            return True
        is_cut = answer.finish_reason == "length"
        if answer.text.strip() and not is_cut:
            return False
        self._count_malformed(1, is_useless=True)
        reply = _CUT_OFF if is_cut else _EMPTY
        self.trajectory.user(reply)
        self._messages.append(user_message(reply))
        return True

    def _count_malformed(self, number: int, *, is_useless: bool) -> None:
        self.account.n_malformed += number
        self._n_malformed_in_a_row = self._n_malformed_in_a_row + 1 if is_useless else 0

    async def _run_call(self, call: Call) -> bool:
        """Run one call and add its result to the conversation; return whether it could be run."""
        parsed = parse_call(call, self.settings)
        self.trajectory.call(call, parsed)
        if isinstance(parsed, Malformed):
            self.trajectory.refusal(call, parsed)
            self._messages.append(tool_message(call, parsed.sentence))
            return False
        result = await self._run_command(parsed)
        self.trajectory.result(result)
        self._messages.append(tool_message(call, render_result(result)))
        return True

    async def _run_command(self, command: Command) -> Result:
        start = self.pace.clock.monotonic()
        self.account.n_commands += 1
        # Environments take timeouts in whole seconds, as harbor's do.
        seconds = math.ceil(min(command.timeout_sec, max(self._seconds_left, 1)))
        command = msgspec.structs.replace(command, timeout_sec=seconds)
        try:
            limit = self.settings.output_limit
            return await run_command(command, self.environment, self.env, limit, self.redactor)
        finally:
            self.account.command_seconds += self.pace.clock.monotonic() - start


VERSION: Final = "1.0.0"
"""Version of the loop: its prompts, and how it runs commands."""


class ChatAgent:
    """A loop around a model behind an endpoint, with one tool."""

    writes_trace = True

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
        """Return the name used in results."""
        return "chat"

    def version(self) -> str | None:
        """Return the version of the loop."""
        return VERSION

    async def setup(self, environment: Environment) -> None:
        """Do nothing: nothing is installed in the environment."""

    async def run(self, instruction: str, environment: Environment, context: AgentContext) -> None:
        """Do the task; each answer of the model is a step of <trial>/agent/trajectory.jsonl."""
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
                    trajectory=ChatTrajectory(trace, redactor),
                    account=Account(self._model),
                    pace=self._pace,
                    redactor=redactor,
                )
                loop.trajectory.begin(self._system, instruction, self._describe())
                await self._run(loop, instruction, context)

    async def _run(self, loop: Loop, instruction: str, context: AgentContext) -> None:
        """Run the loop; fill in tokens, cost and metadata however it ends."""
        ended: dict[str, object] = {"ended": "stopped"}
        try:
            reached = await loop.run(self._system, instruction)
            ended = {"ended": "answer"} if reached is None else _describe_limit(reached)
            if reached is not None:
                loop.trajectory.end(reached.sentence, limit=msgspec.to_builtins(reached))
        except (ModelError, AgentError) as error:
            ended = {"ended": "error"}
            loop.trajectory.end(str(error), exception=type(error).__name__)
            raise
        finally:
            loop.account.fill(context)
            metadata = {**ended, "endpoint": self._address.shown, **loop.account.describe()}
            # The model's name comes from the endpoint, which might echo the key in it.
            context.metadata = loop.redactor.redact(metadata)

    def _find_redactor(self) -> Redactor:
        key = self._address.key or ""
        env = {**self._order.extra_env, KEY_VARIABLE: key}
        # Local endpoints take dummy keys such as "x": redacting these would garble every text.
        if len(key) < SHORTEST_CHAT_KEY:
            del env[KEY_VARIABLE]
        return redact_env(env)

    def _open_endpoint(self, redactor: Redactor) -> AbstractAsyncContextManager[Endpoint]:
        seconds = self._settings.request_timeout_sec
        return open_endpoint(self._address, seconds, redactor, self._pace.clock)

    def _describe(self) -> Object:
        """Return the description of the agent in the trajectory."""
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
    """Return the variables of commands: without the key, which the model could print."""
    return {name: env[name] for name in env if name not in (KEY_VARIABLE, URL_VARIABLE)}
