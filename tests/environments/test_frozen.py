"""A sandbox's files as they were at one moment, and other sandboxes that begin with them."""

import asyncio
import os
from pathlib import Path

import pytest

from proctor.environments.sandbox import copying
from proctor.environments.sandbox.box import shared_zygote
from proctor.environments.sandbox.copying import copy_tree
from proctor.environments.sandbox.environment import SandboxEnvironment
from proctor.environments.sandbox.mapped import run_mapped
from proctor.environments.sandbox.pool import pool_of
from proctor.errors import SandboxError, StateTooLargeError
from proctor.task.environment import EnvironmentConfig as TaskEnvironment
from proctor.trial.environment import Freezing
from proctor.trial.paths import TrialPaths
from tests.environments.orders import order_of
from tests.environments.sandboxes import find_groups, found_in, running, said

pytestmark = pytest.mark.usefixtures("cache")


async def see(sandbox: SandboxEnvironment, command: str) -> str:
    """What a command prints in a copy of a sandbox, which is gone afterwards."""
    copy = await sandbox.open_frozen(TrialPaths(Path("/nowhere")))
    try:
        return await said(copy, command)
    finally:
        await copy.stop(delete=True)


async def test_a_copy_has_what_was_kept_and_not_what_came_after(tmp_path: Path) -> None:
    async with running(order_of(tmp_path)) as sandbox:
        assert isinstance(sandbox, Freezing)
        await said(sandbox, "echo one > /a; rm -r /etc/apt; mkdir /etc/apt")
        await sandbox.freeze()
        await said(sandbox, "echo two > /a; touch /b /etc/apt/c")
        look = "cat /a; ls /b /etc/apt; echo three > /a; touch /etc/apt/d"
        for _ in range(2):
            assert await see(sandbox, look) == (
                "one\nls: cannot access '/b': No such file or directory\n/etc/apt:"
            )
        assert await said(sandbox, "cat /a; ls /etc/apt") == "two\nc"
        await sandbox.freeze()
        assert await see(sandbox, "cat /a; ls /b /etc/apt") == "two\n/b\n\n/etc/apt:\nc"
        assert found_in(sandbox) == []


async def test_a_copy_has_the_limits_variables_and_working_directory_of_its_model(
    tmp_path: Path,
) -> None:
    task = TaskEnvironment(workdir="/work", memory_mb=200)
    order = order_of(tmp_path, task=task, env={"TOLD": "so"})
    async with running(order) as sandbox:
        look = 'pwd; echo "$TOLD"; id -u; hostname; ulimit -n'
        await sandbox.freeze()
        assert await see(sandbox, look) == await said(sandbox, look)
        copy = await sandbox.open_frozen(TrialPaths(tmp_path))
        model, own = sandbox._held.groups, copy._held.groups
        assert (len(own.directories), own.missing) == (len(model.directories), model.missing)
        assert not set(own.directories) & set(model.directories)
        room = await copy.open_room(["/tests", "/logs/verifier"])
        assert await said(room, "pwd; ls /tests /logs/verifier") == (
            "/work\n/logs/verifier:\n\n/tests:"
        )
        await copy.stop(delete=True)
    assert find_groups() == []


def test_the_copies_go_with_the_sandbox(tmp_path: Path) -> None:
    async def live() -> tuple[Path, Path]:
        async with running(order_of(tmp_path)) as sandbox:
            await sandbox.freeze()
            assert sandbox._held.slot is not None
            kept = sandbox._held.slot.session.directory / "frozen"
            assert len(list(kept.iterdir())) == len(sandbox._held.slot.parts)
            await see(sandbox, "true")
            return kept, pool_of(await shared_zygote()).run.directory

    kept, run = asyncio.run(live())
    assert not kept.exists()
    assert list(run.glob("trial-1*")) == []


async def test_where_nothing_was_kept_nothing_is_opened(tmp_path: Path) -> None:
    async with running(order_of(tmp_path)) as sandbox:
        with pytest.raises(SandboxError, match="no state of this sandbox was kept"):
            await sandbox.open_frozen(TrialPaths(tmp_path))
    with pytest.raises(SandboxError, match="does not run"):
        await sandbox.freeze()


def test_a_copied_tree_is_as_its_model(tmp_path: Path) -> None:
    model, copy = tmp_path / "model", tmp_path / "copy"
    deep = model / "deep"
    deep.mkdir(parents=True)
    (deep / "file").write_bytes(b"x" * 3_000_000)
    os.link(deep / "file", model / "second")
    os.mknod(model / "deleted", 0o020000)
    (model / "link").symlink_to("/etc/passwd")
    with (deep / "holes").open("wb") as file:
        file.truncate(1 << 30)
        file.seek(1 << 20)
        file.write(b"data")
    if os.geteuid() == 0:
        os.setxattr(deep, "trusted.overlay.opaque", b"y")
    os.setxattr(deep / "file", "user.note", b"kept")
    deep.chmod(0o500)
    os.utime(deep, ns=(1, 2))
    copy_tree(str(model), str(copy))
    for path in (model, *model.rglob("*")):
        one, other = path.lstat(), (copy / path.relative_to(model)).lstat()
        for name in ("st_mode", "st_uid", "st_gid", "st_nlink", "st_rdev", "st_mtime_ns"):
            assert getattr(one, name) == getattr(other, name), (path, name)
    assert (copy / "second").samefile(copy / "deep" / "file")
    assert (copy / "deep" / "file").read_bytes() == b"x" * 3_000_000
    assert os.listxattr(copy / "deep") == os.listxattr(deep)
    assert os.getxattr(copy / "second", "user.note") == b"kept"
    holes = (copy / "deep" / "holes").stat()
    assert (holes.st_size, holes.st_blocks < 100) == (1 << 30, True)
    assert (copy / "link").readlink() == Path("/etc/passwd")


@pytest.mark.skipif(os.geteuid() != 0, reason="for an ordinary user another process copies")
def test_a_state_for_which_there_is_no_room_is_told_from_other_failures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "state").mkdir()
    for name in "ab":
        (tmp_path / "state" / name).touch()
    monkeypatch.setattr(copying, "_MOST_ENTRIES", 1)
    pairs = [[str(tmp_path / "state"), str(tmp_path / "copy")]]
    with pytest.raises(StateTooLargeError, match="it contains more than 1 files"):
        asyncio.run(run_mapped("copy", pairs))
    assert not (tmp_path / "copy").exists()
