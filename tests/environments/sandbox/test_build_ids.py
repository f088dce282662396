"""Commands of a Dockerfile have ids of their own as root, and leave the same layer as without."""

import asyncio
import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from proctor.environments.sandbox import ranges
from proctor.environments.sandbox.roots import layers
from proctor.environments.sandbox.roots.build import Root
from proctor.trial.finding import FindingCode
from tests.environments.sandbox.sites import OnSite, Site, found_beside_the_network
from tests.environments.test_ids import REPOSITORY, ids_on_host
from tests.environments.test_network import with_slirp

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root has ids to give")

ATTRIBUTES = """
import os, struct
acl = [(1, 6, -1), (2, 6, 1000), (4, 4, -1), (8, 4, 77), (16, 6, -1), (32, 4, -1)]
entries = b"".join(struct.pack("<HHi", *entry) for entry in acl)
os.setxattr("/made/acl", "system.posix_acl_access", struct.pack("<I", 2) + entries)
os.setxattr("/made/acl", "user.note", b"kept")
os.setxattr("/made/able", "security.capability", struct.pack("<5I", 0x02000001, 1 << 13, 0, 0, 0))
for name in ("trusted.note", "security.note"):
    try:
        os.setxattr("/made/acl", name, b"refused")
    except PermissionError:
        open("/made/refused", "a").write(name + " ")
"""
DOCKERFILE = f"""\
FROM scratch
SHELL ["/bin/bash", "-c"]
WORKDIR /made
COPY --chown=7:8 given /made/given
RUN touch root guest large acl able && chown 1000:1001 guest && chown 197609012:5 large
RUN cp /usr/bin/env setuid && chown 1000:1001 setuid && chmod 6755 setuid && ln -s setuid link
RUN mkfifo pipe && (mknod node c 1 3 || echo refused > no-node) 2>/dev/null
RUN <<END
python3 - <<PYTHON
{ATTRIBUTES}PYTHON
END
RUN rm /etc/passwd && rm -r /etc/alternatives && mkdir /etc/alternatives && touch /usr/new
USER 1000
RUN id -u > /tmp/who && mkdir -m 700 /tmp/hers
"""


class Entry(NamedTuple):
    """A file of a layer as it is on the disk."""

    mode: str
    uid: int
    gid: int
    device: int
    data: bytes
    link: str
    attributes: dict[str, bytes]


def list_layers(root: Root, site: Site) -> dict[str, Entry]:
    """Everything that a build made, but for times and for where it lies."""
    found = {}
    for target, lowers in root.parts:
        built = [one for one in lowers if one.startswith(f"{site.root}/cache/layers/")]
        for number, layer in enumerate(reversed(built)):
            for path in sorted(Path(layer).rglob("*")):
                # Only the last layer with a file has it as it is in the end.
                found[f"{target}:{path.relative_to(layer)}"] = entry_of(path)
                found[f"{number}:{target}:{path.relative_to(layer)}"] = entry_of(path)
    return found


def entry_of(path: Path) -> Entry:
    status = path.lstat()
    names = os.listxattr(path, follow_symlinks=False)
    return Entry(
        stat.filemode(status.st_mode),
        status.st_uid,
        status.st_gid,
        status.st_rdev,
        path.read_bytes() if stat.S_ISREG(status.st_mode) else b"",
        str(path.readlink()) if path.is_symlink() else "",
        {
            name: os.getxattr(path, name, follow_symlinks=False)
            for name in names
            # Which file of the layer below was copied: a number of the file system.
            if name != "trusted.overlay.origin"
        },
    )


@with_slirp
def test_a_layer_is_the_same_with_ids_of_its_own_without_and_when_built_again(
    on_site: OnSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def act(site: Site) -> None:
        (site.task / "given").write_text("given")
        own = await site.build(DOCKERFILE, base="host")
        assert [one.code for one in own.findings] == [FindingCode.BASE_SUBSTITUTED]
        listed = list_layers(own, site)
        # A process forces each build once.
        monkeypatch.setattr(layers, "_MADE_BY_FORCE", set())
        again = await site.build(base="host", force=True)
        assert own.parts != again.parts
        assert own.pin == again.pin
        assert list_layers(again, site) == listed
        with monkeypatch.context() as patch:
            patch.setattr(ranges, "_LOCK", Path("/proc/none/lock"))
            patch.setattr(layers, "_MADE_BY_FORCE", set())
            shared = await site.build(base="host", force=True)
        assert list_layers(shared, site) == listed
        (found,) = (one for one in shared.findings if one.code is FindingCode.IDS_SHARED)
        assert found.message.startswith("the Dockerfile was built with the host's ids: no ids")
        assert found.detail["during"] == "build"
        check_layer(listed)

    on_site(act)


def check_layer(listed: dict[str, Entry]) -> None:
    """See that it is what the Dockerfile above makes."""
    names = ("root", "guest", "large", "given", "setuid", "pipe")
    assert [listed[f"/:made/{name}"][:3] for name in names] == [
        ("-rw-r--r--", 0, 0),
        ("-rw-r--r--", 1000, 1001),
        ("-rw-r--r--", 197609012, 5),
        ("-rw-r--r--", 7, 8),
        ("-rwsr-sr-x", 1000, 1001),
        ("prw-r--r--", 0, 0),
    ]
    assert "/:made/node" not in listed
    assert listed["/:made/refused"].data == b"trusted.note security.note "
    able = listed["/:made/able"].attributes["security.capability"]
    assert able.hex() == "0100000200200000" + "0" * 24
    acl = listed["/:made/acl"].attributes
    assert acl["user.note"] == b"kept"
    assert (1000).to_bytes(4, "little") in acl["system.posix_acl_access"]
    assert listed["/usr:new"][:3] == ("-rw-r--r--", 0, 0)
    assert listed["/:tmp/who"].data == b"1000\n"


@with_slirp
@pytest.mark.parametrize("user", [0, 1000])
def test_commands_run_as_users_that_the_host_does_not_have(on_site: OnSite, user: int) -> None:
    mark = f"1.{os.getpid()}{user}"

    async def act(site: Site) -> None:
        text = f"FROM small\nUSER {user}\nRUN cat /proc/self/uid_map > /tmp/map; sleep {mark}\n"
        building = asyncio.ensure_future(site.build(text))
        while not (seen := ids_on_host(mark)):
            assert not building.done(), building
            await asyncio.sleep(0.01)
        ((uid, *others),) = seen
        assert set(others) == {uid}
        root = await building
        assert found_beside_the_network(root) == []
        inside, outside, count = map(int, (await site.said(root, "cat /tmp/map")).split()[:3])
        assert (inside, count) == (0, 1 << 20)
        assert outside >= 1 << 31
        assert uid == outside + user

    on_site(act)


def test_a_build_that_fails_gives_its_ids_back_and_leaves_nothing(
    on_site: OnSite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ranges, "_LOCK", tmp_path / "ids.lock")
    monkeypatch.setattr(ranges, "_N_RANGES", 1)

    async def act(site: Site) -> None:
        for _ in range(3):
            with pytest.raises(RuntimeError, match="Build failed: RUN false"):
                await site.build("FROM small\nRUN false\n")
            assert site.layers == []
        root = await site.build("FROM small\nRUN touch /x\n")
        assert found_beside_the_network(root) == []

    on_site(act)


FALLBACK = """
import asyncio, sys
from pathlib import Path
from tests.environments.sandbox.sites import site_at
async def main(place):
    async with site_at(place) as site:
        root = await site.build("FROM scratch\\nRUN cat /proc/self/uid_map > /map\\n", base="host")
        print((await site.said(root, "cat /map")).split())
        print(*(one.message for one in root.findings if one.code == "ids-shared"))
        print(site.n_spawned)
asyncio.run(main(Path(sys.argv[1])))
"""


@with_slirp
def test_a_file_system_that_cannot_map_owners_is_on_record(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    cache.mkdir(mode=0o700)
    mounting = 'mount -t ramfs -o mode=700 none "$1" && exec "$2" -c "$3" "$4"'
    words = ["unshare", "--mount", "sh", "-c", mounting, "sh"]
    ran = subprocess.run(
        [*words, str(cache), sys.executable, FALLBACK, str(tmp_path)],
        env={**os.environ, "PROCTOR_CACHE": str(cache)},
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    ids, finding, n_spawned = ran.stdout.strip().split("\n")
    assert (ids, n_spawned) == ("['0', '0', '4294967295']", "2")
    assert finding.startswith(
        "the Dockerfile was built with the host's ids: mapping the owners of files in "
    )
