"""The way from a trial on a node to the model gateway on the driver.

    program in an environment -> port on the node's loopback -> link -> driver -> gateway

The gateway with its keys, its limits and its recordings stays on the driver, one for the whole job.
A node gets the token of its trial, and relays bytes; nothing listens but on loopback addresses.
When a phase ends, what the gateway recorded of it is copied to the trial's files on the node, as if
the gateway had been there.

    RemoteModels    the worker's end; see Models
    ModelRouter       the driver's end, for one attempt at a trial
"""

import asyncio
import contextlib
import os
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import msgspec
import ray

from proctor.cluster.link import Line, Stream, decode, encode
from proctor.errors import ModelReplayError, TrialError
from proctor.files import write_all
from proctor.gateway.account import Account
from proctor.gateway.gateway import Gateway
from proctor.gateway.options import point_at_gateway
from proctor.gateway.recording import open_evidence
from proctor.harbor.configs import AgentConfig
from proctor.harbor.env import resolve_env
from proctor.traces.entry import MODEL_TRACE
from proctor.trial.models import MODEL_CALLS, VERIFIER_MODELS, ModelUse
from proctor.trial.spec import TrialSpec

LOOPBACK: Final = "127.0.0.1"
_ASK_SEC: Final = 60.0
_CHUNK: Final = 1 << 16
_READ: Final = 4 << 20
_MOST_STREAMS: Final = 256
_RECORDED: Final = (MODEL_CALLS, MODEL_TRACE)
_BASE = re.compile(r"http://127\.0\.0\.1:[0-9]{1,5}")


class Question(msgspec.Struct, frozen=True):
    """What a trial asks the driver."""

    deed: str
    """agent or verifier: open an account; enter, leave: a phase of it; read: what it recorded."""
    base: str = ""
    """URL by which programs on the node reach the gateway."""
    account: int = -1
    name: str = ""
    at: int = 0


class Answer(msgspec.Struct, frozen=True):
    """What the driver answers."""

    account: int | None = None
    """None: the trial has no such account."""
    env: dict[str, str] = {}
    url: str | None = None
    """Base URL with the token in it, for an agent on the node itself."""
    upstreams: dict[str, tuple[str, str]] = {}
    """Path and origin of each provider, by name."""
    use: ModelUse | None = None
    sizes: dict[str, int] = {}
    """Of what was recorded."""
    data: bytes = b""
    error: str | None = None


_encode = msgspec.msgpack.Encoder().encode
_decode_answer = msgspec.msgpack.Decoder(Answer).decode
_decode_question = msgspec.msgpack.Decoder(Question).decode


# The worker's end


@dataclass
class RemoteAccount:
    """An account of the gateway on the driver; see ModelAccount."""

    line: Line
    base: str
    directory: str
    answer: Answer
    config: AgentConfig | None = None
    use: ModelUse = field(default_factory=ModelUse)

    @property
    def env(self) -> Mapping[str, str]:
        """See ModelAccount."""
        return self.answer.env

    def describe(self, url: str) -> str:
        """See ModelAccount."""
        for name, (path, origin) in self.answer.upstreams.items():
            if url.startswith(f"{self.base}/{name}{path}"):
                return f"{origin}{url.removeprefix(f'{self.base}/{name}')}"
        return url

    @contextlib.asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        """See ModelAccount."""
        await self._ask("enter")
        try:
            yield
        finally:
            left = await self._ask("leave")
            self.use = left.use or ModelUse()
            for name, size in left.sizes.items():
                await self._copy(name, size)

    def summarize(self) -> ModelUse:
        """See ModelAccount."""
        return self.use

    async def _ask(self, deed: str, name: str = "", at: int = 0) -> Answer:
        question = Question(deed, self.base, self.answer.account or 0, name, at)
        answer = _decode_answer(await self.line.ask(_encode(question)))
        if answer.error is not None:
            raise ModelReplayError(answer.error)
        return answer

    async def _copy(self, name: str, size: int) -> None:
        """Append what the gateway recorded to the trial's own file."""
        Path(self.directory).mkdir(exist_ok=True)
        fd = open_evidence(f"{self.directory}/{name}")
        try:
            at = 0
            # A file has one header: an earlier account of the trial may have written it.
            is_headed = os.fstat(fd).st_size > 0
            while at < size:
                data = (await self._ask("read", name, at)).data
                if not data:
                    raise TrialError(f"{name}: the rest of what the gateway recorded is missing")
                at += len(data)
                if is_headed:
                    _, _, data = data.partition(b"\n")
                    is_headed = False
                write_all(fd, data)
        finally:
            os.close(fd)


class RemoteModels:
    """The gateway on the driver; see Models."""

    def __init__(self, line: Line, port: int, *, is_inside: bool) -> None:
        self._line = line
        self._base = f"http://{LOOPBACK}:{port}"
        self.port = port if is_inside else None

    def open_agent(
        self,
        trial: str,
        directory: str,
        config: AgentConfig,
        env: Mapping[str, str],
        replay: Sequence[str] = (),
    ) -> RemoteAccount | None:
        """See Models. The driver knows the trial, its variables and its recording."""
        account = self._open("agent", directory)
        if account is not None:
            account.config = point_at_gateway(config, account.answer.url)
        return account

    def open_verifier(
        self, trial: str, directory: str, env: Mapping[str, str]
    ) -> RemoteAccount | None:
        """See Models."""
        return self._open("verifier", directory)

    def _open(self, deed: str, directory: str) -> RemoteAccount | None:
        # It blocks the event loop, which has nothing else to do: a worker has one trial.
        question = _encode(Question(deed, self._base))
        reply = ray.get(self._line.actor.ask.remote(self._line.key, question), timeout=_ASK_SEC)
        answer = _decode_answer(reply)
        if answer.error is not None:
            raise TrialError(answer.error)
        if answer.account is None:
            return None
        return RemoteAccount(self._line, self._base, directory, answer)


@contextlib.asynccontextmanager
async def remote_models(
    line: Line, *, is_inside: bool | None
) -> AsyncIterator[RemoteModels | None]:
    """Relay connections to the gateway inside the context; yields None without a gateway.

    `is_inside`: whether programs in environments use it; None: the driver has none.
    """
    if is_inside is None:
        yield None
        return
    relay = _Relay(line)
    server = await asyncio.start_server(relay.accept, LOOPBACK, 0)
    pulling = asyncio.ensure_future(relay.pull())
    try:
        port = server.sockets[0].getsockname()[1]
        yield RemoteModels(line, port, is_inside=is_inside)
    finally:
        server.close()
        relay.close()
        # It waits for the driver, which will not answer any more.
        pulling.cancel()


class _Relay:
    """Connections of one trial, in the worker."""

    def __init__(self, line: Line) -> None:
        self._line = line
        self._writers: dict[int, asyncio.StreamWriter] = {}
        self._n_opened = 0

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Send what a client says to the driver."""
        self._n_opened += 1
        number = self._n_opened
        self._writers[number] = writer
        try:
            while data := await reader.read(_CHUNK):
                await self._line.deliver(Stream(number, data))
        except OSError:
            # The client reset the connection.
            pass
        finally:
            await self._line.deliver(Stream(number, None))

    async def pull(self) -> None:
        """Give clients what the driver sends."""
        while True:
            for data in await self._line.pull():
                message = decode(data)
                if isinstance(message, Stream):
                    await self._write(message)

    async def _write(self, message: Stream) -> None:
        writer = self._writers.get(message.number)
        if writer is None:
            return
        with contextlib.suppress(OSError):
            if message.data is not None:
                writer.write(message.data)
                await writer.drain()
                return
        del self._writers[message.number]
        writer.close()

    def close(self) -> None:
        """End all connections."""
        for writer in self._writers.values():
            writer.close()


# The driver's end

type Push = Callable[[bytes], Awaitable[None]]


class ModelRouter:
    """Answers one attempt at a trial, and connects it to the gateway.

    It knows the trial: a worker cannot ask for another one, or for other variables.
    """

    def __init__(
        self,
        gateway: Gateway,
        spec: TrialSpec,
        host: Mapping[str, str],
        directory: Path,
        push: Push,
    ) -> None:
        """`directory`: where the gateway records; `push`: sends a message to the trial."""
        self._gateway, self._spec, self._host = gateway, spec, host
        self._directory, self._push = directory, push
        self._accounts: list[Account] = []
        self._opened: dict[int, contextlib.AbstractAsyncContextManager[None]] = {}
        self._streams: dict[int, asyncio.StreamWriter] = {}
        self._pumps: set[asyncio.Task[None]] = set()
        self._waiting: asyncio.Queue[Stream] = asyncio.Queue()
        self._relaying: asyncio.Task[None] | None = None

    async def answer(self, data: bytes) -> bytes:
        """Answer a question."""
        question = _decode_question(data)
        try:
            return _encode(await self._answer(question))
        except (ModelReplayError, TrialError, OSError, ValueError) as error:
            return _encode(Answer(error=str(error)))

    async def _answer(self, question: Question) -> Answer:
        if question.deed in ("agent", "verifier"):
            return self._open(question)
        if not 0 <= question.account < len(self._accounts):
            raise TrialError("no such account")
        account = self._accounts[question.account]
        if question.deed == "enter":
            for name in _RECORDED:
                # The trial has a copy of what an earlier phase left.
                Path(account.directory, name).unlink(missing_ok=True)
            opened = account.opened()
            await opened.__aenter__()
            self._opened[question.account] = opened
            return Answer()
        if question.deed == "leave":
            await self._leave(question.account)
            return Answer(use=account.summarize(), sizes=_find_sizes(account.directory))
        if question.deed == "read" and question.name in _RECORDED:
            with Path(account.directory, question.name).open("rb") as file:
                file.seek(question.at)
                return Answer(data=file.read(_READ))
        raise TrialError(f"unknown question {question.deed!r}")

    async def _leave(self, number: int) -> None:
        opened = self._opened.pop(number, None)
        if opened is not None:
            await opened.__aexit__(None, None, None)

    def _open(self, question: Question) -> Answer:
        if not _BASE.fullmatch(question.base):
            raise TrialError(f"{question.base}: not an address on a node's loopback")
        gateway, spec = self._gateway.reached_at(question.base), self._spec
        account = None
        if question.deed == "agent":
            env = resolve_env(spec.config.agent.env, self._host)
            place = f"{self._directory}/agent"
            account = gateway.open_agent(spec.name, place, spec.config.agent, env, spec.replay)
        else:
            account = gateway.open_verifier(
                spec.name, f"{self._directory}/{VERIFIER_MODELS}", self._find_verifier_env()
            )
        if not isinstance(account, Account):
            return Answer()
        self._accounts.append(account)
        return Answer(
            account=len(self._accounts) - 1,
            env=dict(account.env),
            url=account.find_url(spec.config.agent.model_name),
            upstreams={name: (each.path, each.origin) for name, each in account.upstreams.items()},
        )

    def _find_verifier_env(self) -> dict[str, str]:
        config, task = self._spec.config, self._spec.task.config
        merged = {**task.environment.env, **config.environment.env}
        merged |= task.verifier.env
        for step in task.steps or ():
            merged |= step.verifier.env
        return resolve_env({**merged, **config.verifier.env}, self._host)

    def take(self, stream: Stream) -> None:
        """Pass bytes of a connection on to the gateway, in order."""
        self._waiting.put_nowait(stream)
        if self._relaying is None:
            self._relaying = asyncio.ensure_future(self._relay())

    async def _relay(self) -> None:
        while True:
            await self._send(await self._waiting.get())

    async def _send(self, stream: Stream) -> None:
        writer = self._streams.get(stream.number)
        if writer is None and stream.data is not None and len(self._streams) < _MOST_STREAMS:
            writer = await self._connect(stream.number)
        if writer is None:
            return
        with contextlib.suppress(OSError):
            if stream.data is None:
                writer.write_eof()
            else:
                writer.write(stream.data)
                await writer.drain()

    async def _connect(self, number: int) -> asyncio.StreamWriter | None:
        port = int(self._gateway.base.rpartition(":")[2])
        try:
            reader, writer = await asyncio.open_connection(LOOPBACK, port)
        except OSError:
            await self._push(_encode_stream(number, None))
            return None
        self._streams[number] = writer
        pump = asyncio.ensure_future(self._pump(number, reader))
        self._pumps.add(pump)
        pump.add_done_callback(self._pumps.discard)
        return writer

    async def _pump(self, number: int, reader: asyncio.StreamReader) -> None:
        try:
            while data := await reader.read(_CHUNK):
                await self._push(_encode_stream(number, data))
        except OSError:
            # The gateway reset it; the client sees that it has ended.
            pass
        finally:
            self._streams.pop(number).close()
        await self._push(_encode_stream(number, None))

    async def close(self) -> None:
        """End what a trial that has ended, or was lost, left open."""
        for task in (*self._pumps, *([self._relaying] if self._relaying else [])):
            task.cancel()
        for number in list(self._opened):
            await self._leave(number)


def _find_sizes(directory: str) -> dict[str, int]:
    paths = [Path(directory, name) for name in _RECORDED]
    return {path.name: path.stat().st_size for path in paths if path.exists()}


def _encode_stream(number: int, data: bytes | None) -> bytes:
    return encode(Stream(number, data))
