"""The `chat` agent: a loop around a model behind an endpoint, with one tool, bash.

It asks the model and runs its calls until the model answers without one or a limit is reached. An
empty or truncated answer, or a call that cannot be run, gets an explanation in reply, so that the
model can correct it; after `max_malformed` such answers in a row the run ends.

Limits are checked before each request. Reaching one is not an error: the trial is verified as
usual. A limit that cannot be checked, because the endpoint reports no usage, is an error.

trajectory.jsonl is written line by line, so that a kill loses nothing. What the format has no field
for (model, reasoning, tokens and cost of an answer, ids of calls) is written to metadata, where
`proctor trace convert` finds it. Imported on use, because httpx is slow to import.
"""

import asyncio
import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NoReturn

import msgspec

from proctor.agents.chat.accounting import Account
from proctor.agents.chat.answers import Answer, Call, Object
from proctor.agents.chat.endpoint import Endpoint, Pace
from proctor.agents.chat.settings import (
    KEY_VARIABLE,
    URL_VARIABLE,
    ChatSettings,
    find_address,
    load_system_prompt,
)
from proctor.agents.settings import open_trace, parse_settings, redact_env
from proctor.errors import AgentError, ModelError
from proctor.harbor.agents import SHORTEST_CHAT_KEY
from proctor.traces.atif.carry import ATIF_KEY
from proctor.traces.commands import CUT, MALFORMED, TIMED_OUT, render_cut
from proctor.traces.writer import Redactor, TrajectoryWriter
from proctor.trial.agent import AgentContext, AgentOrder
from proctor.trial.environment import Environment
from proctor.trial.trial_run import host_variables

VERSION: Final = "1.0.0"
"""Version of the loop: its prompts, and how it runs commands."""
SYSTEM_PROMPT: Final = (
    "You are working on a computer through one tool, bash. Do the task that the user gives you: "
    "run commands, look at what they print, and check your work. Nobody can answer questions. "
    "When the task is done, answer without calling the tool; that ends your work."
)
_CUT_OFF: Final = "Your answer was cut off because it was too long. Go on in smaller steps."
_EMPTY: Final = "Your answer was empty. Call bash to go on, or say in words that you are done."
_TOOL: Final = "bash"
_ABOUT_TOOL: Final = (
    "Run a command with bash -c and get its exit code and output. Each command runs in a new "
    "shell: directory and variables do not last, files and background processes do. Nothing can be "
    "typed into it."
)
# Bytes. The kernel limits one argument to 128 KiB (MAX_ARG_STRLEN); some margin is left.
_LONGEST_COMMAND: Final = 120_000
# Characters kept of arguments that cannot be parsed.
_LONGEST_MALFORMED: Final = 2000
# Names of functions that OpenAI's API accepts.
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


class ChatAgent:
    """A loop around a model behind an endpoint, with one tool."""

    writes_trace = True

    def __init__(self, order: AgentOrder, pace: Pace | None = None) -> None:
        self._order = order
        self._settings = parse_settings(ChatSettings, order.config)
        self._model = order.config.model_name or ""
        self._address = find_address(self._settings, order.extra_env, host_variables())
        self._system = load_system_prompt(self._settings) or SYSTEM_PROMPT
        if order.skills_dir:
            self._system += f"\n\nThere are notes on how to do things in {order.skills_dir}."
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
        """Do the task; fill in tokens, cost and metadata however it ends."""
        settings, order = self._settings, self._order
        env, key = dict(order.extra_env), self._address.key or ""
        # Local endpoints take dummy keys such as "x": redacting these would garble every text.
        redactor = redact_env({**env, KEY_VARIABLE: key if len(key) >= SHORTEST_CHAT_KEY else ""})
        # Commands do not get the key, which the model could print.
        for name in (KEY_VARIABLE, URL_VARIABLE):
            env.pop(name, None)
        account = Account(self._model)
        async with Endpoint(
            self._address,
            account,
            redactor,
            self._pace,
            order.logger,
            retries=settings.retries,
            timeout_sec=settings.request_timeout_sec,
        ) as endpoint:
            with open_trace(order.logs_dir, redactor) as trace:
                loop = _Loop(settings, self._model, endpoint, environment, env, trace, redactor)
                ended: dict[str, object] = {"ended": "stopped"}
                try:
                    reached = await loop.run(self._system, instruction)
                    ended = {"ended": "answer"}
                    if reached is not None:
                        limit = msgspec.to_builtins(reached)
                        ended = {"ended": "limit", "limit": limit}
                        loop.trace_end(reached.sentence, limit=limit)
                except (ModelError, AgentError) as error:
                    ended = {"ended": "error"}
                    loop.trace_end(str(error), exception=type(error).__name__)
                    raise
                finally:
                    account.fill(context)
                    metadata = {**ended, "endpoint": self._address.shown, **account.describe()}
                    # The model's name comes from the endpoint, which might echo the key in it.
                    context.metadata = redactor.redact(metadata)


class _Reached(msgspec.Struct, frozen=True):
    """A limit that was reached: the kwarg, its value, and what had been used."""

    name: str
    limit: float
    reached: float

    @property
    def sentence(self) -> str:
        return f"{self.name} reached: {self.reached:g} of {self.limit:g}"


class _MalformedError(Exception):
    """A call that cannot be run; its text is the reply to the model."""


@dataclass(slots=True)
class _Loop:
    """One run of the agent."""

    settings: ChatSettings
    model: str
    endpoint: Endpoint
    environment: Environment
    env: Mapping[str, str]
    """Environment variables of its commands."""
    trace: TrajectoryWriter
    redactor: Redactor
    account: Account = field(init=False)
    start: float = field(init=False)
    n_malformed_in_a_row: int = 0

    def __post_init__(self) -> None:
        self.account = self.endpoint.account
        self.start = self.now

    @property
    def now(self) -> float:
        return self.endpoint.pace.clock.monotonic()

    @property
    def seconds_left(self) -> float:
        most = self.settings.max_seconds
        return math.inf if most is None else most - (self.now - self.start)

    async def run(self, system: str, instruction: str) -> _Reached | None:
        """Do the task. Return the limit that ended it, or None if the model did."""
        messages = [_message("system", system), _message("user", instruction)]
        self._trace_begin(system, instruction)
        while True:
            if reached := self._find_reached():
                return reached
            answer = await self._ask(messages)
            if answer is None:
                used = self.now - self.start
                return _Reached("max_seconds", self.settings.max_seconds or 0, used)
            messages.append(_repeat(answer, with_reasoning=self.settings.send_reasoning))
            is_cut = answer.finish_reason == "length"
            if answer.calls:
                messages += await self._run_calls(answer.calls)
            elif answer.text.strip() and not is_cut:
                return None
            else:
                reply = _CUT_OFF if is_cut else _EMPTY
                self.account.n_malformed += 1
                self.n_malformed_in_a_row += 1
                self.trace.user(reply)
                messages.append(_message("user", reply))
            n_row, most = self.n_malformed_in_a_row, self.settings.max_malformed
            if n_row >= most:
                return _Reached("max_malformed", most, n_row)

    def _find_reached(self) -> _Reached | None:
        """Return the first limit that is reached; an error if one cannot be checked."""
        account, settings = self.account, self.settings
        used: dict[str, float | None] = {"max_turns": len(account.charges)}
        if account.charges:
            used |= {"max_tokens": account.tokens, "max_cost_usd": account.basis.amount_usd}
        used["max_seconds"] = self.now - self.start
        for name, reached in used.items():
            limit: float | None = getattr(settings, name)
            if limit is None:
                continue
            if reached is None:
                why = "the endpoint does not report the tokens of its answers"
                if name == "max_cost_usd":
                    why = f"the model's cost is unknown: {account.basis.why_unknown}"
                raise AgentError(f"{name} is {limit:g} but cannot be checked: {why}; leave it out")
            if reached >= limit:
                return _Reached(name, limit, reached)
        return None

    async def _ask(self, messages: list[Object]) -> Answer | None:
        """Return the next answer; None if max_seconds passed first."""
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
            "messages": messages,
            "tools": [_describe_tool(settings)],
            **{name: value for name, value in options.items() if value is not None},
            # Last, but without the keys above: ChatSettings refuses these.
            **(settings.extra_body or {}),
        }
        if settings.stream:
            # Without include_usage, streamed answers report no tokens.
            request |= {"stream": True, "stream_options": {"include_usage": True}}
        n_before, start, left = self.account.n_retries, self.now, self.seconds_left
        limit = asyncio.timeout(left if math.isfinite(left) else None)
        try:
            async with limit:
                answer = await self.endpoint.ask(request)
        except TimeoutError:
            # Only our own limit means "out of time"; any other timeout is an error of the request.
            if not limit.expired():
                raise
            return None
        finally:
            seconds = self.now - start
            self.account.model_seconds += seconds
        self._trace_answer(answer, seconds, 1 + self.account.n_retries - n_before)
        return answer

    async def _run_calls(self, calls: tuple[Call, ...]) -> list[Object]:
        """Run the calls of an answer, and return the messages with their results."""
        messages, n_bad = [], 0
        for call in calls:
            # Calls that were not run for lack of time do not count as malformed.
            if self.seconds_left > 0:
                try:
                    said = await self._run_call(call)
                except _MalformedError as error:
                    said, n_bad = str(error), n_bad + 1
                    self.trace.tool_result(call.name, stdout=said)
                messages.append({"role": "tool", "tool_call_id": call.id, "content": said})
        self.account.n_malformed += n_bad
        self.n_malformed_in_a_row = self.n_malformed_in_a_row + 1 if n_bad == len(calls) else 0
        return messages

    async def _run_call(self, call: Call) -> str:
        """Run a call, and return its result as the model sees it."""
        try:
            arguments, command, seconds = _parse_call(call, self.settings)
        except _MalformedError:
            kept = self.redactor.redact_text(call.arguments)[:_LONGEST_MALFORMED]
            self._trace_call(call, extra={MALFORMED: kept})
            raise
        self._trace_call(call, str(arguments["command"]), arguments)
        self.account.n_commands += 1
        # Environments take timeouts in whole seconds, as harbor's do.
        seconds = math.ceil(min(seconds, max(self.seconds_left, 1)))
        start, limit, n_cut = self.now, self.settings.output_limit, 0
        try:
            done = await self.environment.exec(command=command, env=self.env, timeout_sec=seconds)
            printed = (done.stdout or "") + (done.stderr or "")
            shown, n_cut = _cut_middle(printed, limit)
            # Redacted before its middle is cut, so that no half secret remains.
            kept, _ = _cut_middle(self.redactor.redact_text(printed), limit)
            code, shown = done.return_code, f"[exit code: {done.return_code}]\n{shown}"
        except RuntimeError as error:
            # Environments raise a plain RuntimeError for a timeout, as harbor's do.
            if not str(error).startswith("Command timed out after"):
                raise
            code = TIMED_OUT
            kept = shown = (
                f"The command was ended after {seconds} seconds; what it printed is not known. "
                "Give it more time with timeout, or run it in the background with its output in a "
                "file."
            )
        finally:
            passed = self.now - start
            self.account.command_seconds += passed
        cut = {ATIF_KEY: {"extra": {CUT: n_cut}}} if n_cut else None
        self.trace.tool_result(
            _TOOL, stdout=kept, exit_code=code, duration_ms=passed * 1000, metadata=cut
        )
        return shown

    # The trajectory

    def _trace_begin(self, system: str, instruction: str) -> None:
        agent = {
            "name": ChatAgent.name(),
            "version": VERSION,
            "model_name": self.model,
            "tool_definitions": [_describe_tool(self.settings)],
        }
        document = {ATIF_KEY: {"document": {"agent": agent}}}
        self.trace.entry(role="system", content=system, metadata=document)
        self.trace.user(instruction)

    def _trace_answer(self, answer: Answer, seconds: float, n_tries: int) -> None:
        charge = self.account.add(answer, self.endpoint.pace.clock.now())
        spent, usage = charge.spent, charge.spent.usage
        metrics = {
            "prompt_tokens": usage.input,
            "completion_tokens": usage.output,
            "cached_tokens": usage.cache_read,
            "cost_usd": charge.basis.amount_usd,
            "extra": _known(
                reasoning_tokens=spent.reasoning,
                cost_basis=charge.basis.kind,
                refused=spent.problem,
            ),
        }
        carried = _known(
            model_name=answer.model,
            reasoning_content=answer.reasoning,
            metrics=_known(**metrics),
            llm_call_count=n_tries,
            extra=_known(finish_reason=answer.finish_reason),
        )
        self.trace.new_step()
        self.trace.entry(
            role="assistant",
            content=answer.text,
            duration_ms=round(seconds * 1000),
            metadata={ATIF_KEY: carried},
        )

    def _trace_call(
        self, call: Call, command: str = "", arguments: Object | None = None, **carried: Any
    ) -> None:
        self.trace.entry(
            role="tool_call",
            tool_name=call.name,
            command=command,
            arguments=arguments,
            metadata={ATIF_KEY: {"tool_call_id": call.id, **carried}},
        )

    def trace_end(self, sentence: str, **facts: Any) -> None:
        """Write why proctor ended the run."""
        said = f"proctor ended the run: {sentence}"
        self.trace.entry(role="system", content=said, metadata={ATIF_KEY: {"extra": facts}})


def _known(**fields: Any) -> Object:
    return {name: value for name, value in fields.items() if value is not None and value != {}}


def _message(role: str, text: str) -> Object:
    return {"role": role, "content": text}


def _repeat(answer: Answer, *, with_reasoning: bool) -> Object:
    """Make the message that repeats an answer of the model in the conversation."""
    if not answer.calls:
        return _message("assistant", answer.text)
    message: Object = {"role": "assistant", "content": answer.text or None, "tool_calls": []}
    for call in answer.calls:
        # Endpoints validate the names and arguments of earlier calls too, so a bad one would make
        # every later request fail.
        name = call.name if _NAME.fullmatch(call.name) else "unknown"
        arguments = "{}" if _parse_object(call.arguments) is None else call.arguments
        function = {"name": name, "arguments": arguments}
        sent: Object = {"id": call.id, "type": "function", "function": function}
        if call.extra_content is not None:
            sent["extra_content"] = call.extra_content
        message["tool_calls"].append(sent)
    if with_reasoning and answer.reasoning:
        # Some endpoints require what led to a call, under the key that it came with.
        message[answer.reasoning_key] = answer.reasoning
    return message


# The tool


def _describe_tool(settings: ChatSettings) -> Object:
    timeout = (
        f"Seconds after which the command is ended: {settings.command_timeout_sec} if left out, "
        f"{settings.max_command_timeout_sec} at most."
    )
    properties = {
        "command": {"type": "string", "description": "The command."},
        "timeout": {"type": "integer", "description": timeout},
    }
    parameters = {"type": "object", "properties": properties, "required": ["command"]}
    function = {"name": _TOOL, "description": _ABOUT_TOOL, "parameters": parameters}
    return {"type": "function", "function": function}


def _parse_call(call: Call, settings: ChatSettings) -> tuple[Object, str, int]:
    """Return the arguments of a call, its command, and its timeout in seconds."""
    if call.name != _TOOL:
        raise _MalformedError(
            f"error: there is no tool {call.name[:60]!r}; the only tool is {_TOOL}"
        )
    arguments = _parse_object(call.arguments)
    if arguments is None:
        raise _MalformedError(
            f"error: the {len(call.arguments):,} characters of arguments are no JSON object; "
            'expected such as {"command": "ls"}'
        )
    if unknown := ", ".join(sorted(arguments.keys() - {"command", "timeout"})):
        raise _MalformedError(f"error: {_TOOL} takes command and timeout, not {unknown[:200]}")
    command, timeout = arguments.get("command"), arguments.get("timeout")
    if not isinstance(command, str) or not command.strip():
        raise _MalformedError(
            "error: command is missing or empty; expected a shell command as text"
        )
    if "\0" in command:
        raise _MalformedError("error: command holds a zero byte; no shell takes that")
    # JSON can contain lone surrogates, which no command line can.
    data = command.encode(errors="replace")
    if len(data) > _LONGEST_COMMAND:
        raise _MalformedError(
            f"error: command has {len(data):,} bytes; at most {_LONGEST_COMMAND:,} can be run at "
            "once. Write long files in parts"
        )
    if timeout is None:
        timeout = settings.command_timeout_sec
    is_number = isinstance(timeout, int | float) and not isinstance(timeout, bool)
    if not is_number or not 0 < timeout < math.inf:
        raise _MalformedError(
            f"error: timeout is {str(timeout)[:60]}; expected a number of seconds above 0"
        )
    return arguments, data.decode(), min(math.ceil(timeout), settings.max_command_timeout_sec)


def _parse_object(text: str) -> Object | None:
    """Parse a JSON object; None if the text is not one."""
    try:
        found = json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _cut_middle(text: str, limit: int) -> tuple[str, int]:
    """Cut a text to `limit` characters plus a note in its middle; return also the number cut."""
    n_cut = len(text) - limit
    if n_cut <= 0:
        return text, 0
    half = limit // 2
    return text[: limit - half] + render_cut(n_cut) + text[len(text) - half :], n_cut
