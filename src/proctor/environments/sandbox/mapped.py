"""Reads and copies what sandboxes wrote, with access to all of it.

    await run_mapped("walk", parts, known, limits)

As root, the runner itself does it, in a thread. For an unprivileged user, files of a sandbox's
other users belong to subordinate ids, or have modes that exclude their owner: a child process in a
user namespace does the work. Large copies are always made by a child, because a
thread cannot be killed.
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
from proctor.environments.sandbox.subordinate import find_subordinate_ids, write_id_maps
from proctor.errors import SandboxError, StateTooLargeError

_LONGEST_SEC = 600
_START = (
    "import sys; sys.path.append(sys.argv[1]);"
    "from proctor.environments.sandbox.mapped_work import main; main()"
)
_PACKAGES = Path(__file__).resolve().parents[3]


async def run_mapped(work: str, *arguments: object, apart: bool = False) -> Any:
    """Run a function of mapped_work.WORK; `apart`: in a child process even as root.

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
        # Ctrl-C is for the runner, which then ends this process itself.
        start_new_session=True,
    )
    try:
        async with asyncio.timeout(_LONGEST_SEC):
            if ids and child.stdout is not None and await child.stdout.readline():
                await asyncio.to_thread(write_id_maps, child.pid, ids)
            done, said = await child.communicate(b"\n" + job)
    except TimeoutError as error:
        raise SandboxError(f"timed out after {_LONGEST_SEC} seconds") from error
    finally:
        if child.returncode is None:
            child.kill()
            await child.wait()
    if child.returncode != 0:
        last = said.decode(errors="replace").strip().rpartition("\n")[2]
        if child.returncode == TOO_LARGE:
            raise StateTooLargeError(last)
        raise SandboxError(last or f"the child process ended with {child.returncode}")
    return json.loads(done)
