"""A sandbox's files as they were at one moment, for other sandboxes to begin with.

The directories that take what is written in a sandbox are copied. The copies lie in the sandbox's
own scratch and go with it, whether it is stopped or reaped. A clean room begins with the image and
with those of the copied files that are kept.
"""

import asyncio
from collections.abc import Collection
from pathlib import Path

from proctor.environments.sandbox.mapped import run_mapped
from proctor.environments.sandbox.reap import delete_session
from proctor.environments.sandbox.roots.layers import Parts
from proctor.environments.sandbox.slots import KEPT_STATES, Slot

_FROZEN, _CLEAN = KEPT_STATES
_LITTLE = 64 << 20
"""Bytes that are copied in a thread; more take a process, which can be ended."""


async def freeze_slot(slot: Slot, n_bytes: int | None = None) -> Parts:
    """Copy what was written in a sandbox; the root file system with the copies on top.

    An earlier copy is deleted before. `n_bytes` is how much it is, where that is known.

    Raises:
        SandboxError: there is no room for it, or something of it cannot be copied.
        OSError: it cannot be deleted, or no process can be started.
    """
    place = await _empty_place(slot, _FROZEN)
    copies = [str(place / str(number)) for number in range(len(slot.parts))]
    pairs = [(part.upper, copy) for part, copy in zip(slot.parts, copies, strict=True)]
    try:
        await run_mapped("copy", pairs, apart=n_bytes is None or n_bytes > _LITTLE)
    except BaseException:
        await asyncio.shield(asyncio.to_thread(delete_session, place))
        raise
    return _lay(slot.root, copies)


async def clean_parts(
    slot: Slot,
    frozen: Parts,
    left_out: Collection[str],
    plain: Collection[str],
    n_bytes: int | None = None,
) -> Parts:
    """The root file system with those of the frozen files on top that are not left out.

    Where there is much of them they are hard links, which shows in the number of their links.

    Raises:
        SandboxError, OSError: that cannot be made.
    """
    place = await _empty_place(slot, _CLEAN)
    clones = [str(place / str(number)) for number in range(len(slot.parts))]
    trees = []
    for (target, layers), clone in zip(frozen, clones, strict=True):
        prefix = f"{target.rstrip('/')}/"
        below = [
            [path.removeprefix(prefix) for path in paths if path.startswith(prefix)]
            for paths in (left_out, plain)
        ]
        trees.append([layers[0], clone, *below])
    await run_mapped("clone", trees, n_bytes is None or n_bytes > _LITTLE)
    return _lay(slot.root, clones)


async def drop_clean(slot: Slot) -> None:
    """Delete what a clean room began with."""
    await asyncio.to_thread(delete_session, slot.session.directory / _CLEAN)


async def _empty_place(slot: Slot, name: str) -> Path:
    place = slot.session.directory / name
    await asyncio.to_thread(delete_session, place)
    place.mkdir(mode=0o700)
    return place


def _lay(root: Parts, tops: list[str]) -> Parts:
    return tuple((target, (top, *lowers)) for (target, lowers), top in zip(root, tops, strict=True))
