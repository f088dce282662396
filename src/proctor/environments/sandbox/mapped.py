"""Working on what sandboxes wrote, with the right to all of it.

    await run_mapped("walk", parts, known, limits)

Root works in a thread of the runner. What other users of a sandbox wrote belongs, for an ordinary
user, to ids that only a user namespace has, and may have modes that keep its owner out: there a
child process in such a namespace does the work.

Large copies are made by a child as root too: a thread cannot be ended.
"""

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

from proctor.environments.sandbox.copying import TooLargeError
from proctor.environments.sandbox.mapped_work import (
    AS_ROOT,
    MAP_SELF,
    MAPPED,
    TOO_LARGE,
    WORK,
    describe_fault,
)
from proctor.environments.sandbox.privileges import is_all_powerful
from proctor.environments.sandbox.subordinate import IdMap, find_subordinate_ids, write_id_maps
from proctor.errors import SandboxError, StateTooLargeError

_LONGEST_SEC = 600
_START = (
    "import sys; sys.path.append(sys.argv[1]);"
    "from proctor.environments.sandbox.mapped_work import main; main()"
)
_PACKAGES = Path(__file__).resolve().parents[3]


async def run_mapped(work: str, *arguments: object, apart: bool = False) -> Any:
    """Do one of the things above; `apart`: in a process of its own even as root.

    Raises:
        SandboxError: it failed, or took too long.
        OSError: no process can be started.
    """
    if is_all_powerful() and not apart:
        try:
            return await asyncio.to_thread(WORK[work], *arguments)
        except TooLargeError as error:
            raise StateTooLargeError(str(error)) from error
        except OSError as error:
            raise SandboxError(describe_fault(error)) from error
    return await _run_apart(json.dumps([work, arguments]).encode())


async def _run_apart(job: bytes) -> Any:
    ids = () if is_all_powerful() else find_subordinate_ids()
    how = AS_ROOT if is_all_powerful() else MAPPED if ids else MAP_SELF
    pipe = asyncio.subprocess.PIPE
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, "-I", "-S", "-c", _START, str(_PACKAGES), str(os.getpid()), how),
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
            done, said = await _attend(child, ids, job)
    except TimeoutError as error:
        raise SandboxError(f"it took more than {_LONGEST_SEC} seconds") from error
    finally:
        if child.returncode is None:
            child.kill()
            await child.wait()
    if child.returncode != 0:
        last = said.decode(errors="replace").strip().rpartition("\n")[2]
        if child.returncode == TOO_LARGE:
            raise StateTooLargeError(last)
        raise SandboxError(last or f"the process that does it ended with {child.returncode}")
    return json.loads(done)


async def _attend(child: asyncio.subprocess.Process, ids: IdMap, job: bytes) -> tuple[bytes, bytes]:
    """Map its ids where it asks for that, give it its job, and wait for its end."""
    if ids and child.stdout is not None and await child.stdout.readline():
        await asyncio.to_thread(write_id_maps, child.pid, ids)
    return await child.communicate(b"\n" + job)
