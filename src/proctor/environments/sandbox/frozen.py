"""A sandbox's files as they were at one moment, for other sandboxes to begin with.

The directories that take what is written in a sandbox are copied, by copying.py in a process of its
own. The copies lie in the sandbox's own scratch and go with it, whether it is stopped or reaped.
"""

import asyncio
import os
import sys
from pathlib import Path

from proctor.environments.sandbox.copying import AS_ROOT, MAP_SELF, MAPPED
from proctor.environments.sandbox.privileges import is_all_powerful
from proctor.environments.sandbox.reap import delete_session
from proctor.environments.sandbox.roots.layers import Parts
from proctor.environments.sandbox.slots import Slot
from proctor.environments.sandbox.subordinate import IdMap, find_subordinate_ids, write_id_maps
from proctor.errors import SandboxError

_FROZEN = "frozen"
_LONGEST_SEC = 600
_START = (
    "import sys; sys.path.append(sys.argv[1]);"
    "from proctor.environments.sandbox.copying import main; main()"
)
_PACKAGES = Path(__file__).resolve().parents[3]


async def freeze_slot(slot: Slot) -> Parts:
    """Copy what was written in a sandbox; the root file system with the copies on top.

    An earlier copy is deleted before.

    Raises:
        SandboxError: there is no room for it, or something of it cannot be copied.
        OSError: it cannot be deleted, or no process can be started.
    """
    place = slot.session.directory / _FROZEN
    await asyncio.to_thread(delete_session, place)
    place.mkdir(mode=0o700)
    copies = [str(place / str(number)) for number in range(len(slot.parts))]
    words = [
        word for part, copy in zip(slot.parts, copies, strict=True) for word in (part.upper, copy)
    ]
    try:
        await _copy(words)
    except BaseException:
        await asyncio.shield(asyncio.to_thread(delete_session, place))
        raise
    return tuple(
        (target, (copy, *lowers)) for (target, lowers), copy in zip(slot.root, copies, strict=True)
    )


async def _copy(places: list[str]) -> None:
    ids = () if is_all_powerful() else find_subordinate_ids()
    how = AS_ROOT if is_all_powerful() else MAPPED if ids else MAP_SELF
    pipe = asyncio.subprocess.PIPE
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, "-I", "-S", "-c", _START),
        *(str(_PACKAGES), str(os.getpid()), how, *places),
        stdin=pipe,
        stdout=pipe,
        stderr=pipe,
        cwd="/",
        env={},
        # Ctrl-C is for the runner, which ends this when it likes.
        start_new_session=True,
    )
    try:
        async with asyncio.timeout(_LONGEST_SEC):
            said = await _attend(child, ids)
    except TimeoutError as error:
        raise SandboxError(f"copying it took more than {_LONGEST_SEC} seconds") from error
    finally:
        if child.returncode is None:
            child.kill()
            await child.wait()
    if child.returncode != 0:
        raise SandboxError(said or f"what copies it ended with {child.returncode}")


async def _attend(child: asyncio.subprocess.Process, ids: IdMap) -> str:
    """Map its ids where it asks for that, and wait for its end; what it says of a failure."""
    if ids and child.stdout is not None and await child.stdout.readline():
        await asyncio.to_thread(write_id_maps, child.pid, ids)
    _, said = await child.communicate(b"\n")
    return said.decode(errors="replace").strip().rpartition("\n")[2]
