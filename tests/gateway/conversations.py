"""Scripted conversations of agents, in all four protocols, whose tool outputs vary from run to run.

An agent here is a real HTTP client: it asks, runs the tool that the answer calls, and asks again.
"""

import asyncio
import json
import random
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx

from proctor.gateway.exchange import Wire
from proctor.gateway.wire import read_answer
from proctor.traces.turn import Turn
from tests.gateway.providers import Reply

CHAT, RESPONSES, ANTHROPIC, GEMINI = Wire

type Messages = list[dict[str, Any]]


@dataclass(frozen=True)
class Conversation:
    """What one agent says."""

    wire: Wire
    is_stream: bool
    instruction: str = "Fix the build."
    n_tools: int = 3
    """How often the model calls a tool before it is done."""
    sub_agents: int = 0
    """Conversations that take turns with the first."""
    model: str = "gpt-4o"
    output: str = ""
    """A line of the tool's output."""
    n_extra: int = 0
    """Requests after the model was done."""

    @property
    def name(self) -> str:
        """For test ids."""
        kind = "sub-agents" if self.sub_agents else "tools" if self.n_tools else "plain"
        return f"{self.wire}-{'stream' if self.is_stream else 'whole'}-{kind}"

    @property
    def script(self) -> list[Reply]:
        """What the provider answers, whoever asks."""
        calls = [Reply(text=f"step {n}", command=f"make {n}") for n in range(self.n_tools)]
        return [each for each in (*calls, Reply(text="done")) for _ in range(1 + self.sub_agents)]


def all_conversations() -> list[Conversation]:
    """Twenty: each protocol, streamed and not, plain and with tools; and sub-agents in each."""
    pairs = [(wire, is_stream) for wire in Wire for is_stream in (False, True)]
    plain = [Conversation(wire, is_stream, n_tools=0) for wire, is_stream in pairs]
    tools = [Conversation(wire, is_stream) for wire, is_stream in pairs]
    subs = [Conversation(wire, wire in (CHAT, GEMINI), sub_agents=2) for wire in Wire]
    return [*plain, *tools, *subs]


def changed_conversations(was: Conversation) -> dict[str, tuple[Conversation, str]]:
    """Five changes of a conversation, each with how the first difference is described."""
    return {
        "instruction": (
            replace(was, instruction="Break the build."),
            "message 2 .user. is .*Break",
        ),
        "output": (replace(was, output="3 failed"), "message 4 .* is .*3 failed"),
        "model": (replace(was, model="gpt-5"), "it asks gpt-5, the recorded one gpt-4o"),
        "extra": (replace(was, n_extra=1), "request 5 differs .* none is left that answers it"),
        "missing": (replace(was, n_tools=2), "request 4 of .* was not repeated"),
    }


@dataclass
class Run:
    """One run of a conversation: what the clock, the ids and the names are in it."""

    seed: int

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)
        self.now = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC) + timedelta(days=self.seed * 3.3)

    def id(self) -> str:
        """An id that a client makes up."""
        return f"call_{self._random.randbytes(9).hex()}"

    def print(self, command: str, line: str) -> str:
        """What a tool prints, most of which differs from run to run."""
        self.now += timedelta(seconds=self._random.random() * 100)
        tmp = f"/tmp/tmp{self._random.randbytes(4).hex()}"  # noqa: S108 - a text
        return (
            f"$ {command}\n{self.now:%a %b %d %H:%M:%S UTC %Y}\n"
            f"-rw-r--r-- 1 root root 12 {self.now:%b %d %H:%M} {tmp}/out.log\n"
            f"session {uuid.UUID(int=self._random.getrandbits(128), version=4)}, pid 4711\n"
            f"[main {self._random.randbytes(4).hex()[:7]}] at {self.now.isoformat()}\n"
            f"object at 0x{self._random.getrandbits(44):012x}, {self.now.timestamp():.3f}\n"
            f"12 passed in {self._random.random() * 9:.2f}s\n{line}"
        )


async def converse(
    conversation: Conversation, env: Mapping[str, str], run: Run
) -> list[tuple[int, bytes]]:
    """Hold a conversation through the gateway; return the statuses and answers, as they came."""
    async with httpx.AsyncClient(timeout=20) as client:
        agents = [
            _Agent(conversation, env, run, client, number)
            for number in range(1 + conversation.sub_agents)
        ]
        while any(not agent.is_done for agent in agents):
            await asyncio.gather(*(agent.ask() for agent in agents if not agent.is_done))
        for _ in range(conversation.n_extra):
            await agents[0].ask()
        return [answer for agent in agents for answer in agent.answers]


class _Agent:
    def __init__(
        self,
        conversation: Conversation,
        env: Mapping[str, str],
        run: Run,
        client: httpx.AsyncClient,
        number: int,
    ) -> None:
        self._conversation, self._env, self._run, self._client = conversation, env, run, client
        who = f" (sub-agent {number})" if number else ""
        self._messages: Messages = [_user(conversation.wire, conversation.instruction + who)]
        self._system = f"You are an agent. Today is {run.now:%A, %B %d, %Y}.{who}"
        self.answers: list[tuple[int, bytes]] = []
        self.is_done = False

    async def ask(self) -> None:
        """Ask once, and run the tool that is called."""
        wire = self._conversation.wire
        url, headers, body = self._request()
        answer = await self._client.post(url, headers=headers, content=json.dumps(body))
        self.answers.append((answer.status_code, answer.content))
        if answer.status_code != 200:
            self.is_done = True
            return
        turn = read_answer(wire, answer.content, is_stream=self._conversation.is_stream).turn
        assert turn is not None
        if not turn.calls:
            self.is_done = True
            self._messages += [_said(wire, turn), _user(wire, "Are you sure?")]
            return
        command = str(turn.calls[0].arguments["command"])
        printed = self._run.print(command, self._conversation.output)
        self._messages += _used(wire, turn, self._run.id(), printed)
        # A model that is done sooner: the agent asks once less.
        n_calls = sum(1 for status, _ in self.answers if status == 200)
        self.is_done = n_calls > self._conversation.n_tools

    def _request(self) -> tuple[str, dict[str, str], dict[str, Any]]:
        wire, model, env = self._conversation.wire, self._conversation.model, self._env
        stream = {"stream": True} if self._conversation.is_stream else {}
        if wire is GEMINI:
            verb = "streamGenerateContent?alt=sse" if stream else "generateContent"
            url = f"{env['GOOGLE_GEMINI_BASE_URL']}/v1beta/models/{model}:{verb}"
            system = {"parts": [{"text": self._system}]}
            body: dict[str, Any] = {"contents": self._messages, "systemInstruction": system}
            return url, {"x-goog-api-key": env["GEMINI_API_KEY"]}, body
        if wire is ANTHROPIC:
            body = {"model": model, "max_tokens": 9, "system": self._system, **stream}
            body |= {"messages": self._messages, "metadata": {"user_id": self._run.id()}}
            url = f"{env['ANTHROPIC_BASE_URL']}/v1/messages?beta=true"
            return url, {"x-api-key": env["ANTHROPIC_API_KEY"]}, body
        headers = {"authorization": f"Bearer {env['OPENAI_API_KEY']}"}
        if wire is RESPONSES:
            body = {"model": model, "instructions": self._system, "input": self._messages, **stream}
            return f"{env['OPENAI_BASE_URL']}/responses", headers, body
        system_message = {"role": "system", "content": self._system}
        body = {"model": model, "messages": [system_message, *self._messages], **stream}
        return f"{env['OPENAI_BASE_URL']}/chat/completions", headers, body


def _user(wire: Wire, text: str) -> dict[str, Any]:
    if wire is GEMINI:
        return {"role": "user", "parts": [{"text": text}]}
    return {"role": "user", "content": text}


def _said(wire: Wire, turn: Turn) -> dict[str, Any]:
    if wire is GEMINI:
        return {"role": "model", "parts": [{"text": turn.text}]}
    return {"role": "assistant", "content": turn.text}


def _used(wire: Wire, turn: Turn, made_up: str, printed: str) -> Messages:
    """Return the messages of a tool that was called, with an id that the client made up."""
    call = turn.calls[0]
    name, arguments = call.name, dict(call.arguments)
    used: dict[str, Any]
    got: dict[str, Any]
    match wire:
        case Wire.GEMINI:
            used = {"functionCall": {"name": name, "args": arguments}}
            got = {"functionResponse": {"name": name, "response": {"output": printed}}}
            said = {"role": "model", "parts": [{"text": turn.text}, used]}
            return [said, {"role": "user", "parts": [got]}]
        case Wire.ANTHROPIC:
            used = {"type": "tool_use", "id": made_up, "name": name, "input": arguments}
            got = {"type": "tool_result", "tool_use_id": made_up, "content": printed}
            content = [{"type": "text", "text": turn.text}, used]
            return [{"role": "assistant", "content": content}, {"role": "user", "content": [got]}]
        case Wire.OPENAI_RESPONSES:
            text = json.dumps(arguments)
            used = {"type": "function_call", "call_id": made_up, "name": name, "arguments": text}
            got = {"type": "function_call_output", "call_id": made_up, "output": printed}
            return [{"role": "assistant", "content": turn.text}, used, got]
    function = {"name": name, "arguments": json.dumps(arguments)}
    used = {"id": made_up, "type": "function", "function": function}
    said = {"role": "assistant", "content": turn.text, "tool_calls": [used]}
    return [said, {"role": "tool", "tool_call_id": made_up, "content": printed}]
