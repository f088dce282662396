"""Attacks from inside on whoever fetches, lists and deletes: the runner, which may be root."""

import os
from pathlib import Path

import pytest

from proctor.environments.sandbox.delete import delete_tree
from proctor.errors import SandboxError
from tests.environments.orders import order_of
from tests.environments.sandbox.boxes import made, said, shell
from tests.environments.sandboxes import running

# Writes an archive whose last entry leads out of wherever Python's tarfile unpacks it: links that
# are longer, resolved, than a path may be.
ARCHIVER = """\
#!/usr/bin/python3
import io, sys, tarfile
long, steps, path = "d" * 247, "abcdefghijklmnop", ""
where = next(word for word in sys.argv if word.startswith("/tmp/"))
with tarfile.open(where, "w:gz" if where.endswith("gz") else "w") as archive:
    def add(name, kind, to="", data=b""):
        entry = tarfile.TarInfo(name)
        entry.type, entry.linkname, entry.size, entry.mode = kind, to, len(data), 0o755
        archive.addfile(entry, io.BytesIO(data))
    for step in steps:
        add(path + long, tarfile.DIRTYPE)
        add(path + step, tarfile.SYMTYPE, long)
        path += long + "/"
    far = "/".join(steps) + "/" + "l" * 254
    add(far, tarfile.SYMTYPE, "../" * len(steps))
    add("escape", tarfile.SYMTYPE, far + "/..")
    add("escape/outside", tarfile.REGTYPE, data=b"the agent's")
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root's agent can replace a tool of the host's")
@pytest.mark.usefixtures("cache")
async def test_an_archive_of_the_agents_is_not_unpacked_on_the_host(tmp_path: Path) -> None:
    got = tmp_path / "inner" / "got"
    async with running(order_of(tmp_path)) as sandbox:
        await sandbox.exec(
            f"cat > /usr/local/bin/tar <<'END'\n{ARCHIVER}END\n"
            "chmod +x /usr/local/bin/tar; mkdir /out; echo 1 > /out/a; tar cf /tmp/try"
        )
        assert await sandbox.is_file("/tmp/try")
        await sandbox.download_dir_with_exclusions(
            source_dir="/out", target_dir=got, exclude=["*.o"]
        )
    assert not list(tmp_path.rglob("outside"))


async def test_a_link_to_an_open_file_leads_an_errand_into_no_room(tmp_path: Path) -> None:
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests/test.sh").write_text("secret")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/reward.txt").write_text("1")
    async with made(tmp_path) as box:
        room = await box.open_room(("/tests", "/logs/verifier"))
        await box.put(tmp_path / "tests", "/tests", room=room)
        for number in range(3, 24):
            await shell(box, f"rm -rf /logs/agent; ln -s /proc/self/fd/{number} /logs/agent")
            for deed in (
                box.take("/logs/agent", tmp_path / f"taken-{number}", limit=1 << 20),
                box.put(tmp_path / "mine", "/logs/agent/1.1"),
            ):
                try:
                    await deed
                except (SandboxError, OSError):
                    continue
        assert (await said(box, "ls /logs/verifier", room=room)) == ""
    assert [path for path in tmp_path.rglob("test.sh") if "taken" in str(path)] == []


async def test_processes_with_long_command_lines_can_all_be_listed(tmp_path: Path) -> None:
    async with made(tmp_path) as box:
        # Each character takes six where the runner is told of it.
        await shell(
            box,
            "x=$(printf '\\1%.0s' $(seq 60000)); for n in $(seq 200); do "
            "setsid bash -c 'sleep 1000; :' \"$x\" >/dev/null 2>&1 & done",
        )
        found = await box.list_processes()
    assert len(found) >= 200
    assert max(len(each.command) for each in found) < 1000


async def test_a_deep_tree_and_many_files_are_cut_short(tmp_path: Path) -> None:
    script = (
        "cd /logs/agent; mkdir -p deep many; cd deep; for n in $(seq 300); do mkdir d; cd d; done; "
        "touch end; cd /logs/agent/many; seq 2000 | xargs mkfifo; touch /logs/agent/a"
    )
    async with made(tmp_path) as box:
        await shell(box, script)
        refused = await box.take("/logs/agent", tmp_path / "taken", limit=1000, most_entries=1000)
    assert len(refused) <= 1000
    assert refused[-1].endswith("entries; it and what comes after is left")
    assert (tmp_path / "taken/a").exists()
    assert not list((tmp_path / "taken").rglob("end"))


async def test_a_file_of_nothing_takes_no_room_on_the_host(tmp_path: Path) -> None:
    async with made(tmp_path) as box:
        await shell(box, "cd /logs/agent; truncate -s 64M a; printf x >> a; truncate -s 65M a")
        await box.take("/logs/agent", tmp_path / "taken", limit=1 << 30)
    taken = (tmp_path / "taken/a").stat()
    assert taken.st_size == 65 << 20
    assert taken.st_blocks * 512 < 2 << 20
    with (tmp_path / "taken/a").open("rb") as file:
        file.seek(64 << 20)
        assert file.read(2) == b"x\0"


def test_nothing_is_deleted_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept/file").write_text("")
    (tmp_path / "tree/in").mkdir(parents=True)
    (tmp_path / "tree/in/link").symlink_to(tmp_path / "kept")
    (tmp_path / "link").symlink_to(tmp_path / "kept")
    delete_tree(tmp_path / "tree")
    with pytest.raises(OSError, match=r"Not a directory|Too many levels"):
        delete_tree(tmp_path / "link")
    assert [path.name for path in (tmp_path / "kept").iterdir()] == ["file"]
