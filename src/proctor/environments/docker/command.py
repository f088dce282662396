"""Runs one command in a container, and kills its process group on timeout.

If the docker program is killed, its command goes on. So the command's shell first prints its pid,
by which its group can be killed. A service that the command started in another session lives on.
"""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from proctor.environments.docker.containers import pass_on
from proctor.environments.docker.program import end_call, explain, run_docker, start_docker
from proctor.environments.sandbox.output import Finished, Hearing, Output
from proctor.errors import ContainerDiedError, DockerError, EngineError

# Merges both streams in the container, because the docker program would not keep their order.
_SAY_WHO = 'echo "$$"; exec 2>&1; exec "$0" -c "$1"'
_MARK_AND_SAY_WHO = f'chmod +x "$2" 2>/dev/null; {_SAY_WHO}'
# Waits for a line before it runs the command, and enters its directory by the root of that time.
_SAY_WHO_AND_WAIT = (
    'echo "$$"; exec 2>&1; read -r go < "$2"; cd "$3" || exit 126; exec "$0" -c "$1"'
)
_PATIENCE_SEC = 10.0
_POLL_SEC = 0.01
# Exit codes of `docker exec` if the command itself could not be started.
_NOT_BEGUN = (126, 127, 128)


@dataclass(frozen=True, slots=True)
class Order:
    """A command for a container."""

    container: str
    shell: str
    text: str
    workdir: str
    env: Mapping[str, str]
    user: str
    """Name or number, optionally with `:group`; empty: the container's user."""
    script: str = ""
    """File to make executable first; the user must own it."""


def words_of(order: Order) -> list[str]:
    """Return the program for the container: a shell that prints its pid and runs the command."""
    start = _MARK_AND_SAY_WHO if order.script else _SAY_WHO
    words = [order.shell, "-c", start, order.shell, order.text]
    return [*words, order.script] if order.script else words


def words_of_waiting(order: Order, gate: str) -> list[str]:
    """Return the program for the container, which waits until it can read a line from `gate`."""
    shell = order.shell
    return [shell, "-c", _SAY_WHO_AND_WAIT, shell, order.text, gate, order.workdir]


async def run_command(
    order: Order, timeout_sec: float | None, hearing: Hearing | None = None
) -> Finished:
    """Run a command in a running container; `hearing` receives what it prints, as it comes.

    Raises:
        TimeoutError: it took too long, and was killed.
        DockerError: it could not be started, or the container or the engine no longer runs.
    """
    variables = pass_on(order.env)
    words = ["exec", *variables.words, "--workdir", order.workdir]
    words += ["--user", order.user] if order.user else []
    call = Call([*words, order.container, *words_of(order)], variables.env, hearing)
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
        # Check that the container still runs, so that a failure is the command's own.
        state = await run_docker(
            "inspect", "--format", "{{json .State}}", order.container, is_checked=False
        )
        if state.code != 0 or '"Running":true' not in state.out:
            # A container that no longer exists was removed from outside.
            kind = ContainerDiedError if state.code == 0 else DockerError
            raise kind(
                f"{order.container}: the container ended while a command ran in it: "
                f"{(state.out or state.err).strip()[:300]}"
            )
    return finished


async def attach(order: Order, *, is_terminal: bool) -> int:
    """Run the shell of a container on our standard input and output; return its exit code."""
    variables = pass_on(order.env)
    words = ["exec", "--interactive", *(["--tty"] if is_terminal else []), *variables.words]
    words += ["--workdir", order.workdir, *(["--user", order.user] if order.user else [])]
    call = await start_docker(
        [*words, order.container, order.shell],
        stdin=None,
        stdout=None,
        stderr=None,
        env=variables.env,
        is_foreground=is_terminal,
    )
    try:
        return await call.wait()
    finally:
        await end_call(call)


class Call:
    """A call of the docker program that runs a command."""

    def __init__(
        self, words: Sequence[str], env: Mapping[str, str], hearing: Hearing | None = None
    ) -> None:
        self._words = words
        self._env = env
        self._output = Output(hearing=_without_pid(hearing) if hearing else None)
        self._process: asyncio.subprocess.Process | None = None

    async def run(self, timeout_sec: float | None) -> Finished:
        """Run it to its end; the timeout includes the time that Docker takes to start it."""
        async with asyncio.timeout(timeout_sec):
            await self.begin()
            code = await self.wait()
        return self.finish(code)

    async def begin(self) -> None:
        """Start the docker program."""
        self._process = await start_docker(
            self._words, stdout=self._output.write_end, stderr=self._output.write_end, env=self._env
        )
        self._output.close_write_end()

    async def wait(self) -> int:
        """Wait for the docker program; return its exit code, which is the command's."""
        return await self._process.wait() if self._process else 0

    async def wait_until_begun(self) -> int | None:
        """Wait until the command has started; return its pid inside, or None if it never did."""
        while (line := self._output.first_line) is None:
            if self._process is None or self._process.returncode is not None:
                return None
            await asyncio.sleep(_POLL_SEC)
        return int(line) if line.strip().isdigit() else None

    def finish(self, code: int) -> Finished:
        """Return the output and exit code, even if the command could not be started.

        Raises:
            DockerError: the container or the engine failed.
        """
        output, n_cut = self._output.finish()
        who, _, rest = output.partition(b"\n")
        if not who.strip().isdigit():
            error = explain(self._words[0], output.decode(errors="replace"))
            if code in _NOT_BEGUN and not isinstance(error, EngineError):
                # An error of the command, such as a missing directory or user, as from a shell.
                return Finished(output, n_cut, code)
            raise error
        return Finished(rest, n_cut, code)

    def check_begun(self) -> None:
        """Check that the command was started.

        Raises:
            DockerError: it was not, with the docker program's message.
        """
        line = self._output.first_line
        if line is None or not line.strip().isdigit():
            output, _ = self._output.finish()
            raise explain(self._words[0], output.decode(errors="replace"))

    async def close(self) -> None:
        """Stop reading, and end the docker program if it still runs."""
        self._output.close()
        if self._output.write_end >= 0:
            self._output.close_write_end()
        if self._process is not None:
            await end_call(self._process)


def _without_pid(hearing: Hearing) -> Hearing:
    """Pass on the output after its first line, which is the shell's."""
    has_begun = False

    def pass_rest(data: bytes) -> None:
        nonlocal has_begun
        if not has_begun:
            _, end, data = data.partition(b"\n")
            has_begun = bool(end)
        if has_begun and data:
            hearing.hear(data)

    return replace(hearing, hear=pass_rest)


async def _end(call: Call, order: Order) -> None:
    """Kill a command's process group; if that fails, the whole container."""
    try:
        async with asyncio.timeout(_PATIENCE_SEC):
            pid = await call.wait_until_begun()
            if pid is not None:
                kill = ("--user", "0", order.container, order.shell, "-c", f"kill -9 -- -{pid}")
                await run_docker("exec", *kill, is_checked=False)
            await call.wait()
    except TimeoutError:
        # The agent may have replaced the shell, or stopped the process that kills.
        await run_docker("kill", order.container, is_checked=False)
