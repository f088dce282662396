"""Sandboxes for tests: the host's /usr below a small skeleton."""

import asyncio
import functools
import os
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

from proctor.environments.sandbox.blueprint import Blueprint, Command, Network, Part
from proctor.environments.sandbox.box import Box, Zygote, start_zygote
from proctor.environments.sandbox.output import Finished
from proctor.environments.sandbox.ranges import take_range

USERS = """\
root:x:0:0:root:/root:/bin/bash
guest:x:1000:1000::/home/guest:/bin/sh
nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin
"""
GROUPS = "root:x:0:\ntty:x:5:\nstaff:x:50:guest\nguest:x:1000:\nnogroup:x:65534:\n"
MADE_FOR = "/etc/made-for"
"""File of a skeleton that says where it lies: of a process in it, the kernel does not."""


def make_skeleton(directory: Path) -> Path:
    """A root file system without programs: links into /usr, and users."""
    for name in ("usr", "etc", "tmp", "proc", "dev", "sys", "run", "mnt", "root", "home/guest"):
        (directory / name).mkdir(parents=True)
    (directory / "tmp").chmod(0o1777)
    for name in ("bin", "sbin", "lib", "lib64"):
        if Path("/", name).is_symlink():
            (directory / name).symlink_to(f"usr/{name}")
    (directory / "etc/passwd").write_text(USERS)
    (directory / "etc/group").write_text(GROUPS)
    Path(f"{directory}{MADE_FOR}").write_text(str(directory))
    (directory / "etc/alternatives").mkdir()
    for name in ("awk", "which"):
        if (link := Path("/etc/alternatives", name)).is_symlink():
            (directory / "etc/alternatives" / name).symlink_to(link.readlink())
    return directory


@functools.cache
def own_ids() -> int:
    """The first of the ids that sandboxes of this process have, as trials have them of root."""
    return take_range().first if os.geteuid() == 0 else 0


def make_blueprint(tmp_path: Path, **changes: object) -> Blueprint:
    """A sandbox without network, whose files are below tmp_path; called once per path."""
    tmp_path.mkdir(parents=True, exist_ok=True)
    root = tmp_path / "root"
    root.mkdir()
    lowers = {"/": str(make_skeleton(tmp_path / "skeleton")), "/usr": "/usr"}
    parts = []
    for number, (target, lower) in enumerate(lowers.items()):
        upper, work = tmp_path / f"upper{number}", tmp_path / f"work{number}"
        upper.mkdir()
        work.mkdir()
        parts.append(Part(target, (lower,), str(upper), str(work)))
    given: dict[str, object] = {
        "session": tmp_path.name,
        "root": str(root),
        "parts": tuple(parts),
        "network": Network.NONE,
        "directories": ("/logs/agent", "/logs/artifacts", "/workspace"),
        "first_id": own_ids(),
    }
    return Blueprint(**given | changes)  # type: ignore[arg-type]


@asynccontextmanager
async def opened(blueprint: Blueprint) -> AsyncIterator[Box]:
    """A sandbox with a zygote of its own; both are gone afterwards."""
    zygote: Zygote = await start_zygote()
    try:
        yield await zygote.spawn(blueprint)
    finally:
        await zygote.close()


def made(tmp_path: Path, **changes: object) -> AbstractAsyncContextManager[Box]:
    """A new sandbox, with a zygote of its own."""
    return opened(make_blueprint(tmp_path / "box", **changes))


async def shell(box: Box, script: str, *, user: str = "root", room: int = 0) -> Finished:
    """Run a script."""
    return await box.run(Command(("/bin/bash", "-c", script), "/", {}, user, room))


async def said(box: Box, script: str, *, user: str = "root", room: int = 0) -> str:
    """What a script prints."""
    return (await shell(box, script, user=user, room=room)).output.decode().strip()


def look(tmp_path: Path, script: str, *, user: str = "root", **changes: object) -> str:
    """What a script prints in a new sandbox."""

    async def run() -> str:
        async with made(tmp_path, **changes) as box:
            return await said(box, script, user=user)

    return asyncio.run(run())


def use[Made](
    tmp_path: Path, work: Callable[[Box], Coroutine[None, None, Made]], **changes: object
) -> Made:
    """Do something with a new sandbox."""

    async def run() -> Made:
        async with made(tmp_path, **changes) as box:
            return await work(box)

    return asyncio.run(run())
