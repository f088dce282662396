"""Runs what an image starts by itself, its ENTRYPOINT, as long as its sandbox runs."""

import asyncio
import time
from contextlib import suppress
from typing import Final

from proctor.environments.image_config import COMMAND, KEEPER, SERVED_SEC, describe_end
from proctor.environments.sandbox.blueprint import Command
from proctor.environments.sandbox.box import Box
from proctor.environments.sandbox.roots.build import Root
from proctor.errors import SandboxError
from proctor.sentence import without_escapes

# How often harbor's command is looked for.
_LOOK_SEC: Final = 0.02
# Return codes above it: killed by a signal, or that of a shell whose command was.
_KILLED: Final = 128


def find_service(root: Root) -> Command | None:
    """Return the command of the image's ENTRYPOINT; None if it has none."""
    if not root.entrypoint:
        return None
    argv = (*root.entrypoint, *COMMAND)
    return Command(argv=argv, cwd=root.workdir or "/", env=dict(root.env), user=root.user)


async def start_service(box: Box, service: Command) -> None:
    """Start the ENTRYPOINT of an image, and wait until harbor's command runs, or half a second.

    The sandbox ends with it, as a container does; later not if it is killed, because in a container
    no process can kill it.
    """
    started = asyncio.Event()
    serving = asyncio.ensure_future(_serve(box, service, started))
    # Nobody waits for it: it ends with the sandbox.
    serving.add_done_callback(lambda each: each.cancelled() or each.exception())
    until = time.monotonic() + SERVED_SEC
    while time.monotonic() < until:
        # Most programs of images start it last. Others, such as supervisors, never do: they run,
        # which is enough for Docker too.
        with suppress(SandboxError):
            if any(each.command == KEEPER for each in await box.list_processes()):
                break
        await asyncio.wait({serving}, timeout=_LOOK_SEC)
        if serving.done():
            serving.result()
            # Raises, with the reason: the sandbox has ended.
            await box.list_processes()
    started.set()


async def _serve(box: Box, service: Command, started: asyncio.Event) -> None:
    ended = await box.run(service)
    if started.is_set() and ended.return_code > _KILLED:
        return
    last = ended.output.decode(errors="replace").strip().rpartition("\n")[2]
    await box.kill(describe_end(ended.return_code, without_escapes(last)))
