"""One command in a container, and its end: nothing that it started in its own group outlives it.

The docker program that runs a command can be killed and the command goes on. So the command's shell
first says which process it is; whoever gives up waiting has that group killed. What it deliberately
put into another session, a service, lives on.
"""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from proctor.environments.docker.containers import pass_on
from proctor.environments.docker.program import end_call, explain, run_docker, start_docker
from proctor.environments.sandbox.output import Finished, Output
from proctor.errors import ContainerDiedError, DockerError, EngineError

# Both streams are one from here on: the docker program would mix them as they happen to come.
_SAY_WHO = 'echo "$$"; exec 2>&1; exec "$0" -c "$1"'
_MARK_AND_SAY_WHO = f'chmod +x "$2" 2>/dev/null; {_SAY_WHO}'
_PATIENCE_SEC = 10.0
_POLL_SEC = 0.01
_NOT_BEGUN = (126, 127, 128)
"""Exit codes of `docker exec` for what is wrong with the command itself."""


@dataclass(frozen=True, slots=True)
class Order:
    """A command for a container."""

    container: str
    shell: str
    text: str
    workdir: str
    env: Mapping[str, str]
    user: str
    """Name or number, `:group` may follow; empty: the container's own."""
    script: str = ""
    """A file that everybody may execute from then on; whoever runs the command must own it."""


def words_of(order: Order) -> list[str]:
    """The program in the container: a shell that says who it is and becomes the command."""
    start = _MARK_AND_SAY_WHO if order.script else _SAY_WHO
    words = [order.shell, "-c", start, order.shell, order.text]
    return [*words, order.script] if order.script else words


async def run_command(order: Order, timeout_sec: float | None) -> Finished:
    """Run a command in a container that runs.

    Raises:
        TimeoutError: it took too long; it is dead.
        DockerError: it could not be begun, or the container or the engine is gone.
    """
    variables = pass_on(order.env)
    words = ["exec", *variables.words, "--workdir", order.workdir]
    words += ["--user", order.user] if order.user else []
    call = Call([*words, order.container, *words_of(order)], variables.env)
    try:
        finished = await call.run(timeout_sec)
    except (TimeoutError, asyncio.CancelledError):
        ending = asyncio.ensure_future(_end(call, order))
        with suppress(asyncio.CancelledError):
            await asyncio.shield(ending)
        await asyncio.wait([ending])
        ending.result()
        raise
    finally:
        await call.close()
    if finished.return_code != 0:
        await _check_running(order.container)
    return finished


class Call:
    """A call of the docker program whose output is a command's."""

    def __init__(self, words: Sequence[str], env: Mapping[str, str]) -> None:
        self._words = words
        self._env = env
        self._output = Output()
        self._process: asyncio.subprocess.Process | None = None

    async def run(self, timeout_sec: float | None) -> Finished:
        """Run it to its end; what Docker takes to begin it is of its time.

        Raises:
            TimeoutError: it took too long, and goes on.
            DockerError: the command was not begun.
        """
        async with asyncio.timeout(timeout_sec):
            await self.begin()
            code = await self.wait()
        return self.finish(code)

    async def begin(self) -> None:
        """Start the docker program.

        Raises:
            DockerError: it cannot be started.
        """
        self._process = await start_docker(
            self._words, stdout=self._output.write_end, stderr=self._output.write_end, env=self._env
        )
        self._output.close_write_end()

    async def wait(self) -> int:
        """The exit code of the docker program, which is the command's."""
        return await self._process.wait() if self._process else 0

    async def wait_until_begun(self) -> int | None:
        """The command's process as seen inside; None when the call ended before there was one."""
        while (line := self._output.first_line) is None:
            if self._process is None or self._process.returncode is not None:
                return None
            await asyncio.sleep(_POLL_SEC)
        return int(line) if line.strip().isdigit() else None

    def finish(self, code: int) -> Finished:
        """What the command printed and how it ended, also where it could not be begun.

        Raises:
            DockerError: there was nothing to begin it in: the docker program said why.
        """
        output, n_cut = self._output.finish()
        who, _, rest = output.partition(b"\n")
        if not who.strip().isdigit():
            error = explain(self._words[0], output.decode(errors="replace"))
            if code in _NOT_BEGUN and not isinstance(error, EngineError):
                # As a shell says it of a program: no such directory, no such user.
                return Finished(output, n_cut, code)
            raise error
        return Finished(rest, n_cut, code)

    def check_begun(self) -> None:
        """See that the command was begun.

        Raises:
            DockerError: it was not: the docker program said why.
        """
        line = self._output.first_line
        if line is None or not line.strip().isdigit():
            output, _ = self._output.finish()
            raise explain(self._words[0], output.decode(errors="replace"))

    async def close(self) -> None:
        """Stop listening, and end the docker program if it has not ended."""
        self._output.close()
        if self._output.write_end >= 0:
            self._output.close_write_end()
        if self._process is not None:
            await end_call(self._process)


async def _end(call: Call, order: Order) -> None:
    """Kill a command's group; where that does not help, the whole container.

    Raises:
        DockerError: not even that helped.
    """
    try:
        async with asyncio.timeout(_PATIENCE_SEC):
            pid = await call.wait_until_begun()
            if pid is not None:
                kill = ("--user", "0", order.container, order.shell, "-c", f"kill -9 -- -{pid}")
                await run_docker("exec", *kill, is_checked=False)
            await call.wait()
    except TimeoutError:
        # Whoever replaced the shell, or stopped what kills, does not keep the trial.
        await run_docker("kill", order.container, is_checked=False)


async def _check_running(container: str) -> None:
    """See that a command failed by itself, and not because there is nothing left to run it in."""
    told = await run_docker("inspect", "--format", "{{json .State}}", container, is_checked=False)
    if told.code != 0 or '"Running":true' not in told.out:
        # One that is not there at all was removed from outside.
        kind = ContainerDiedError if told.code == 0 else DockerError
        raise kind(
            f"{container}: the container ended while a command ran in it: "
            f"{(told.out or told.err).strip()[:300]}"
        )
