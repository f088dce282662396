"""Working on what sandboxes wrote, with the right to all of it.

    await run_mapped("walk", parts, known, limits)

Root works in a thread of the runner. What other users of a sandbox wrote belongs, for an ordinary
user, to ids that only a user namespace has, and may have modes that keep its owner out: there a
child process in such a namespace does the work.

    python -I -S -c … LOCATION PARENT HOW       its job is JSON on standard input, the result JSON

Large copies are made by a child as root too: a thread cannot be ended. Only the standard library
is imported by the child.
"""

import asyncio
import json
import os
import resource
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from proctor.environments.sandbox.copying import Selection, TooLargeError, copy_tree, copy_trees
from proctor.environments.sandbox.identity import map_self
from proctor.environments.sandbox.privileges import is_all_powerful
from proctor.environments.sandbox.subordinate import IdMap, find_subordinate_ids, write_id_maps
from proctor.environments.sandbox.syscalls import PR_SET_PDEATHSIG, prctl
from proctor.environments.sandbox.walk import Layers, Limits, list_written
from proctor.errors import SandboxError, StateTooLargeError

_AS_ROOT, _MAP_SELF, _MAPPED = "root", "self", "mapped"
"""How to be allowed to read all of it: as root, or in a user namespace of which this process is
root, by its own map or by one that the runner writes once it was told a line."""
_LONGEST_SEC = 600
_TOO_LARGE = 3
"""Exit code of a child that was asked for a copy for which there is no room."""
_START = (
    "import sys; sys.path.append(sys.argv[1]);"
    "from proctor.environments.sandbox.mapped import main; main()"
)
_PACKAGES = Path(__file__).resolve().parents[3]


def _walk(parts: list[list[Any]], known: dict[str, str], limits: list[Any]) -> Any:
    layers = [Layers(target, upper, tuple(lowers)) for target, upper, lowers in parts]
    return list_written(layers, known, Limits(*limits))


def _copy(pairs: list[list[str]], left_out: Sequence[str] = (), plain: Sequence[str] = ()) -> None:
    """Copy trees without some paths, which are the same in each."""
    selection = Selection(frozenset(left_out), frozenset(plain))
    copy_trees([(source, target) for source, target in pairs], selection)


def _clone(trees: list[list[Any]], is_linking: bool) -> None:  # noqa: FBT001 - it comes as JSON
    """Copy trees, each without some paths of its own, or link their files."""
    for source, target, left_out, plain in trees:
        copy_tree(source, target, Selection(frozenset(left_out), frozenset(plain), is_linking))


_WORK: dict[str, Callable[..., Any]] = {"walk": _walk, "copy": _copy, "clone": _clone}


async def run_mapped(work: str, *arguments: object, apart: bool = False) -> Any:
    """Do one of the things above; `apart`: in a process of its own even as root.

    Raises:
        SandboxError: it failed, or took too long.
        OSError: no process can be started.
    """
    if is_all_powerful() and not apart:
        try:
            return await asyncio.to_thread(_WORK[work], *arguments)
        except TooLargeError as error:
            raise StateTooLargeError(str(error)) from error
        except OSError as error:
            raise SandboxError(_say(error)) from error
    return await _run_apart(json.dumps([work, arguments]).encode())


async def _run_apart(job: bytes) -> Any:
    ids = () if is_all_powerful() else find_subordinate_ids()
    how = _AS_ROOT if is_all_powerful() else _MAPPED if ids else _MAP_SELF
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
        if child.returncode == _TOO_LARGE:
            raise StateTooLargeError(last)
        raise SandboxError(last or f"the process that does it ended with {child.returncode}")
    return json.loads(done)


async def _attend(child: asyncio.subprocess.Process, ids: IdMap, job: bytes) -> tuple[bytes, bytes]:
    """Map its ids where it asks for that, give it its job, and wait for its end."""
    if ids and child.stdout is not None and await child.stdout.readline():
        await asyncio.to_thread(write_id_maps, child.pid, ids)
    return await child.communicate(b"\n" + job)


def main() -> None:
    """Do what standard input says; what goes wrong is said on standard error, in one line."""
    parent, how = sys.argv[2:]
    try:
        _be_allowed(how)
        # After the change of rights, which would clear it.
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != int(parent):
            return
        _, most_files = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most_files, most_files))
        os.umask(0)
        work, arguments = json.loads(sys.stdin.buffer.read())
        sys.stdout.write(json.dumps(_WORK[work](*arguments)))
    except OSError as error:
        sys.exit(_say(error))
    except TooLargeError as error:
        sys.stderr.write(str(error))
        sys.exit(_TOO_LARGE)


def _say(error: OSError) -> str:
    place = f"{error.filename}: " if error.filename else ""
    return f"{place}{error.strerror}"


def _be_allowed(how: str) -> None:
    if how == _AS_ROOT:
        return
    uid, gid = os.geteuid(), os.getegid()
    os.unshare(os.CLONE_NEWUSER)
    if how == _MAP_SELF:
        map_self(uid, gid)
    else:
        os.write(1, b"\n")
        os.read(0, 1)
    os.setgid(0)
    os.setuid(0)
