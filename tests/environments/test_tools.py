"""The image's own tools: what of them an agent changed is seen, and given back to the tests."""

import asyncio
import os
from pathlib import Path

import pytest

from proctor.environments.sandbox.environment import SandboxEnvironment
from proctor.errors import SandboxError
from proctor.task.environment import EnvironmentConfig as TaskEnvironment
from tests.environments.orders import order_of
from tests.environments.sandboxes import running, said

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="an ordinary user's agent cannot change /usr"),
    pytest.mark.usefixtures("cache"),
]

SCRIPT = r"printf '#!/bin/sh\nexit 0\n'"
HOME = "/root"
USERS = f"{HOME}/.local/lib/python3.9/site-packages"
"""Where a Python looks in the home of its user."""
CHEATS = {
    f"{SCRIPT} > /usr/bin/cat": [("/usr/bin/cat", "changed")],
    f"rm /bin/cat; {SCRIPT} > /bin/cat": [("/usr/bin/cat", "changed")],
    "ln -sf true /usr/bin/cat": [("/usr/bin/cat", "changed")],
    "cp /bin/true /opt/cat; ln -sf /opt/cat /usr/bin/cat": [("/usr/bin/cat", "changed")],
    "ln -sf /usr/bin/true /usr/bin/python3": [("/usr/bin/python3", "changed")],
    "cp /bin/true /usr/local/bin/python3": [("/usr/local/bin/python3", "built")],
    "ln -sf /usr/bin/true /etc/alternatives/awk": [("/etc/alternatives/awk", "changed")],
    "rm /usr/bin/cat; mkfifo /usr/bin/cat": [("/usr/bin/cat", "changed")],
    f"{SCRIPT} > /usr/local/bin/cat": [("/usr/local/bin/cat", "added")],
    f"{SCRIPT} > /usr/local/sbin/python3": [("/usr/local/sbin/python3", "added")],
    "rm /bin; mkdir /bin": [("/bin", "moved")],
    "mv /usr/local/bin /usr/local/other; ln -s /etc /usr/local/bin": [("/usr/local/bin", "moved")],
    "echo /tmp/evil.so > /etc/ld.so.preload": [("/etc/ld.so.preload", "added")],
    "mkdir -p /usr/local/lib; cp /bin/true /usr/local/lib/libc.so.6": [
        ("/usr/local/lib/libc.so.6", "added")
    ],
    "echo home=/tmp > /usr/pyvenv.cfg": [("/usr/pyvenv.cfg", "added")],
    "echo > /usr/lib/python311.zip": [("/usr/lib/python311.zip", "added")],
    f"mkdir -p {USERS}; cd {USERS}; "
    "echo import os > a.pth; echo > usercustomize.py; echo /some/place > b.pth": [
        (f"{USERS}/a.pth", "added"),
        (f"{USERS}/usercustomize.py", "added"),
    ],
    "touch /conftest.py /pyproject.toml": [("/conftest.py", "added"), ("/pyproject.toml", "added")],
}
PACKAGE = r"""
top=/tmp/package; mkdir -p $top/DEBIAN $top/etc/python3.9 $top/usr/lib/python3.9 $top/bin
cd $top
echo '# empty' > etc/python3.9/sitecustomize.py
ln -s /etc/python3.9/sitecustomize.py usr/lib/python3.9/sitecustomize.py
cp /bin/true bin/reader.tiny; cp /bin/true bin/sort
md5sum bin/* > DEBIAN/md5sums
echo /etc/python3.9/sitecustomize.py > DEBIAN/conffiles
printf 'Package: tiny\nVersion: 1\nArchitecture: all\nMaintainer: a <a@b.c>\nDescription: d\n' \
    > DEBIAN/control
printf '#!/bin/sh\nupdate-alternatives --install /usr/bin/pager pager /bin/reader.tiny 99\n' \
    > DEBIAN/postinst
chmod 755 DEBIAN/postinst
dpkg-deb --build --root-owner-group $top /tmp/package.deb && dpkg --force-all -i /tmp/package.deb
rm -r $top /tmp/package.deb
"""
"""A package with a setting that Python loads, a shared link, and files below what is now /usr."""
AFTER_A_PACKAGE = {
    "echo 'import evil' >> /etc/python3.9/sitecustomize.py": [
        ("/etc/python3.9/sitecustomize.py", "added"),
        ("/usr/lib/python3.9/sitecustomize.py", "added"),
    ],
    "ln -sf /usr/bin/true /etc/alternatives/awk": [("/etc/alternatives/awk", "changed")],
    f"{SCRIPT} > /usr/bin/sort": [("/usr/bin/sort", "changed")],
    "echo /tmp/evil.so > /etc/ld.so.preload": [("/etc/ld.so.preload", "added")],
}
HONEST = {
    "nothing": "true",
    "work": "mkdir -p /app/bin ~/.ssh; touch /app/conftest.py ~/.bashrc /etc/motd",
    "programs that were built": "cp /bin/true /usr/local/bin/mine; cp /bin/true /usr/bin/other; "
    "cp /bin/true /usr/local/bin/gcc",
    "another default": "ln -sf bash /bin/sh; ln -sf /usr/bin/python3.99 /usr/bin/python3; "
    "ln -sf mawk /usr/bin/awk; ln -sf python3 /usr/bin/python",
    "the same bytes": "cp /bin/cat /tmp/cat; cp /tmp/cat /usr/bin/cat; chmod 700 /usr/bin/ls",
    "what was removed": "rm /usr/bin/cat /usr/bin/sort",
    "an upgraded package": f"{SCRIPT} > /tmp/cat; mv /tmp/cat /usr/bin/cat; cd /; "
    "md5sum usr/bin/cat >> /var/lib/dpkg/info/coreutils.md5sums",
    "a package": PACKAGE,
    "what pip installed": "cd /usr/local/lib/python3.*/dist-packages; mkdir a-1.dist-info; "
    "echo import a > a.pth; printf 'a.pth,sha256=x,9\\n' > a-1.dist-info/RECORD",
}


async def find(sandbox: SandboxEnvironment) -> list[tuple[str, str]]:
    return [(file.path, file.how) for file in await sandbox.find_changed_tools()]


def in_app(place: Path) -> TaskEnvironment:
    """A task whose working directory is not the root."""
    return TaskEnvironment(workdir="/app")


@pytest.mark.parametrize("cheat", CHEATS)
async def test_a_tool_that_is_not_the_images_own_is_found(tmp_path: Path, cheat: str) -> None:
    async with running(order_of(tmp_path, task=in_app(tmp_path))) as sandbox:
        assert await find(sandbox) == []
        await sandbox.exec(cheat)
        assert (await find(sandbox)) == CHEATS[cheat]


@pytest.mark.parametrize("deed", HONEST)
async def test_honest_work_is_not(tmp_path: Path, deed: str) -> None:
    async with running(order_of(tmp_path, task=in_app(tmp_path))) as sandbox:
        done = await sandbox.exec(HONEST[deed])
        assert done.return_code == 0, done.stdout
        assert (await find(sandbox)) == []


@pytest.mark.parametrize("cheat", AFTER_A_PACKAGE)
async def test_a_package_excuses_nothing_else(tmp_path: Path, cheat: str) -> None:
    async with running(order_of(tmp_path, task=in_app(tmp_path))) as sandbox:
        done = await sandbox.exec(PACKAGE)
        assert done.return_code == 0, done.stdout
        await sandbox.exec(cheat)
        assert (await find(sandbox)) == AFTER_A_PACKAGE[cheat]


async def test_what_a_package_installed_is_known_in_the_list_of_changes(tmp_path: Path) -> None:
    async with running(order_of(tmp_path, task=in_app(tmp_path))) as sandbox:
        before, _ = await sandbox.list_written({}, is_hashing=False)
        done = await sandbox.exec(f"{PACKAGE}\necho x > /etc/profile.d/x.sh; echo > /etc/motd")
        assert done.return_code == 0, done.stdout
        marks = {each.path: each.mark for each in before}
        written, _ = await sandbox.list_written(marks)
        new = [each for each in written if each.path not in marks and each.how != "deleted"]
        found = {each.path: each.is_installed for each in new}
    strange = {path for path, is_installed in found.items() if not is_installed}
    own = {path for path in strange if not path.startswith(("/tmp", "/var/log", "/var/cache"))}
    # A file of the image that a package replaces is still reported.
    assert own == {"/etc/profile.d/x.sh", "/etc/motd", "/usr/bin/sort"}
    assert found["/usr/lib/python3.9/sitecustomize.py"]
    assert found["/usr/bin/reader.tiny"]


def test_the_images_own_are_given_back(tmp_path: Path) -> None:
    cheat = (
        f"{SCRIPT} > /tmp/tool; chmod 755 /tmp/tool; cp /tmp/tool /usr/local/bin/cat; "
        "stat -c '%n %N %a %u %s' /usr/bin/sort /bin/sh > /tmp/before; mv /tmp/tool /usr/bin/sort; "
        "ln -sf true /bin/sh; echo /tmp/evil.so > /etc/ld.so.preload"
    )

    async def go() -> str:
        async with running(order_of(tmp_path)) as sandbox:
            await sandbox.exec(cheat)
            found = await sandbox.find_changed_tools()
            assert len(found) == 4
            await sandbox.restore_tools(found)
            assert await find(sandbox) == []
            return await said(
                sandbox,
                "stat -c '%n %N %a %u %s' /usr/bin/sort /bin/sh | cmp - /tmp/before; echo 2 | sort;"
                " sh -c 'echo 3'; type -p cat; ls /etc/ld.so.preload",
            )

    printed = asyncio.run(go()).splitlines()
    assert printed[:3] == ["2", "3", "/usr/bin/cat"]
    assert "No such file" in printed[3]


def test_a_directory_that_was_moved_cannot_be(tmp_path: Path) -> None:
    async def go() -> None:
        async with running(order_of(tmp_path)) as sandbox:
            await sandbox.exec("rm /bin; mkdir /bin")
            await sandbox.restore_tools(await sandbox.find_changed_tools())

    with pytest.raises(SandboxError, match="/bin is no longer the image's directory"):
        asyncio.run(go())


async def test_a_tool_that_was_changed_and_changed_back_is_told_by_its_mark(tmp_path: Path) -> None:
    async with running(order_of(tmp_path)) as sandbox:
        await sandbox.exec("touch /usr/bin/cat")
        before = await sandbox.mark_tools()
        assert await sandbox.mark_tools() == before
        await sandbox.exec(
            f"cp -p /usr/bin/cat /tmp; {SCRIPT} > /usr/bin/cat; mv /tmp/cat /usr/bin/cat; "
            "cp -p /usr/bin/sort /tmp; mv /tmp/sort /usr/bin/sort"
        )
        assert await find(sandbox) == []
        after = await sandbox.mark_tools()
        assert [path for path in sorted(after) if after[path] != before.get(path)] == [
            "/usr/bin/cat",
            "/usr/bin/sort",
        ]


async def test_no_file_of_the_host_is_read_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "cat").write_text("of the host")
    async with running(order_of(tmp_path)) as sandbox:
        await sandbox.exec(
            f"rm -rf /usr/local/bin; ln -s {tmp_path} /usr/local/bin; "
            f"rm /usr/bin/cat; ln -s {tmp_path}/cat /usr/bin/cat"
        )
        found = await sandbox.find_changed_tools()
        assert [file.sha256 for file in found] == [None] * len(found)
        assert [(file.path, file.how) for file in found] == [("/usr/local/bin", "moved")]


async def test_an_interpreter_that_was_built_is_left(tmp_path: Path) -> None:
    async with running(order_of(tmp_path)) as sandbox:
        await sandbox.exec("cp /bin/echo /usr/local/bin/python3")
        await sandbox.restore_tools(await sandbox.find_changed_tools())
        assert (await said(sandbox, "python3 built")) == "built"
