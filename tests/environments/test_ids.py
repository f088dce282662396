"""Ids of its own for each sandbox of root, and devices of its own."""

import asyncio
import fcntl
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from proctor.environments.sandbox import ranges
from proctor.environments.sandbox.environment import SandboxEnvironment
from proctor.environments.sandbox.ranges import take_range
from proctor.errors import SandboxError
from proctor.trial.finding import FindingCode
from tests.environments.orders import PUBLIC, order_of
from tests.environments.sandboxes import found_in, running, said

pytestmark = [
    pytest.mark.usefixtures("cache"),
    pytest.mark.skipif(os.geteuid() != 0, reason="only root has ids to give"),
]
REPOSITORY = Path(__file__).resolve().parents[2]


def with_two[Made](
    tmp_path: Path, act: Callable[[SandboxEnvironment, SandboxEnvironment], Awaitable[Made]]
) -> Made:
    """Do something with two sandboxes that live at once."""

    async def go() -> Made:
        async with (
            running(order_of(tmp_path, session="one")) as one,
            running(order_of(tmp_path, session="two")) as two,
        ):
            assert (found_in(one), found_in(two)) == ([], [])
            return await act(one, two)

    return asyncio.run(go())


def ids_on_host(mark: str) -> set[tuple[int, ...]]:
    """User and group of processes whose command line has this word, as the host sees them."""
    found = set()
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes().split(b"\0")
            lines = (process / "status").read_text().splitlines()
        except OSError:
            continue
        if mark.encode() in words:
            ids = [line.split() for line in lines if line.startswith(("Uid:", "Gid:"))]
            found.add(tuple(int(number) for words in ids for number in words[1:]))
    return found


# Who they are


def test_users_of_two_sandboxes_are_four_users_of_the_host_and_none_that_it_has(
    tmp_path: Path,
) -> None:
    async def act(one: SandboxEnvironment, two: SandboxEnvironment) -> list[set[tuple[int, ...]]]:
        found = []
        for number, (sandbox, user) in enumerate(((one, 0), (one, 1000), (two, 0), (two, 1000))):
            mark = f"{os.getpid()}{number}"
            await sandbox.exec(f"sleep {mark} >/dev/null 2>&1 &", user=user)
            while not (ids := ids_on_host(mark)):
                await asyncio.sleep(0.01)
            found.append(ids)
            assert await said(sandbox, "id -u", user=user) == str(user)
        return found

    firsts = []
    for ids, user in zip(with_two(tmp_path, act), (0, 1000, 0, 1000), strict=True):
        (all_ids,) = ids
        first = all_ids[0] - user
        assert set(all_ids[:4]) == {first + user}
        assert first >= 1 << 31
        firsts.append(first)
    assert firsts[0] == firsts[1] != firsts[2] == firsts[3]


async def test_owners_are_the_same_inside_and_on_the_disk(tmp_path: Path) -> None:
    script = (
        "stat -c %u:%g / /usr /etc/passwd /usr/bin/env /dev /dev/null /dev/shm /tmp | uniq; "
        "mkdir /made; touch /made/root /made/guest /made/large; chown 1000:1001 /made/guest; "
        "chown 197609012:5 /made/large; chmod 700 /usr/lib; touch /usr/made; chown 5 /usr/made; "
        "rm /etc/passwd; stat -c %u:%g /made/* /usr/made"
    )
    async with running(order_of(tmp_path)) as sandbox:
        assert await said(sandbox, script) == "0:0\n1000:1001\n197609012:5\n0:0\n5:0"
        await sandbox.exec("touch /made/by-guest", user=1000)
        assert sandbox._held.slot is not None
        uppers = sandbox._held.slot.uppers
        made = {path.name: path.stat() for path in Path(uppers["/"], "made").iterdir()}
        owners = {name: (found.st_uid, found.st_gid) for name, found in made.items()}
        assert owners == {"root": (0, 0), "guest": (1000, 1001), "large": (197609012, 5)}
        assert Path(uppers["/usr"], "made").stat().st_uid == 5
        assert Path(uppers["/usr"], "lib").stat().st_uid == 0
        await sandbox.exec("mkdir /logs/agent/d; touch /logs/agent/d/f; chown 7 /logs/agent/d")
        await sandbox.download_dir("/logs/agent", tmp_path / "fetched")
        assert (tmp_path / "fetched/d/f").stat().st_uid == 0
        assert await said(sandbox, "echo well > /dev/stdout; echo ill > /dev/stderr") == (
            "well\nill"
        )


async def test_what_a_verifier_writes_in_its_room_is_roots_on_the_disk(tmp_path: Path) -> None:
    async with running(order_of(tmp_path)) as sandbox:
        room = await sandbox.open_room(["/tests", "/logs/verifier"])
        await room.exec("echo 1 > /logs/verifier/reward.txt; chown 1000 /logs/verifier/*")
        await room.download_dir("/logs/verifier", tmp_path / "fetched")
        assert sandbox._held.slot is not None
        rooms = Path(sandbox._held.slot.session.rooms)
        (reward,) = rooms.glob("*/reward.txt")
        assert (reward.parent.stat().st_uid, reward.stat().st_uid) == (0, 1000)
    assert (tmp_path / "fetched/reward.txt").read_text() == "1\n"


# What the kernel counts


WATCHES = """
import ctypes, time
make = ctypes.CDLL(None).inotify_init1
n = 0
while n < 100000 and make(0) >= 0:
    n += 1
print(n, flush=True)
time.sleep({0})
"""


@pytest.mark.parametrize("user", [0, 1000])
def test_one_sandbox_that_has_all_it_may_leaves_another_as_much(tmp_path: Path, user: int) -> None:
    async def act(one: SandboxEnvironment, two: SandboxEnvironment) -> tuple[int, int]:
        hold = f"python3 -c '{WATCHES.format(1000)}' > /tmp/n & while ! test -s /tmp/n; do :; done"
        await one.exec(f"ulimit -n $(ulimit -Hn); {hold}", user=user)
        look = f"ulimit -n $(ulimit -Hn); python3 -c '{WATCHES.format(0)}'"
        return int(await said(one, "cat /tmp/n")), int(await said(two, look, user=user))

    limit = int(Path("/proc/sys/fs/inotify/max_user_instances").read_text())
    # The first ones take as many as there are, and the others find as many.
    assert with_two(tmp_path, act) == (limit, limit)


# Devices


def test_a_lock_on_a_device_is_not_seen_in_another_sandbox_or_on_the_host(tmp_path: Path) -> None:
    async def act(one: SandboxEnvironment, two: SandboxEnvironment) -> list[str]:
        await one.exec("flock -x /dev/null sleep 1000 >/dev/null 2>&1 &")
        look = "flock -n /dev/null true && echo free || echo locked"
        while await said(one, look) != "locked":
            await asyncio.sleep(0.01)
        with Path("/dev/null").open("rb") as null:
            fcntl.flock(null, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return [await said(two, look), await said(two, "cat /dev/null; echo x > /dev/full || echo")]

    assert with_two(tmp_path, act)[0] == "free"


def test_devices_are_not_the_hosts_and_stay_what_they_are(tmp_path: Path) -> None:
    names = ("null", "zero", "full", "random", "urandom", "tty")
    script = (
        f"cd /dev; stat -c '%n %d %t:%T %a %u' {' '.join(names)}; for name in {' '.join(names)}; "
        "do chmod 600 $name; rm -f $name; touch $name; mv /etc/hostname $name; done 2>/dev/null; "
        f"stat -c '%t:%T %a' {' '.join(names)} | uniq -c | wc -l; ls -l /dev/null | cut -c1-10"
    )

    async def go() -> str:
        async with running(order_of(tmp_path)) as sandbox:
            return await said(sandbox, script)

    *lines, n_kinds, mode = asyncio.run(go()).split("\n")
    for line, name in zip(lines, names, strict=True):
        _, device, kind, rights, owner = line.split()
        hosts = Path("/dev", name).stat()
        assert kind == f"{os.major(hosts.st_rdev):x}:{os.minor(hosts.st_rdev):x}"
        assert (int(device) != hosts.st_dev, rights, owner) == (True, "666", "0")
    assert (n_kinds, mode) == (str(len(names)), "crw-rw-rw-")


# Where it cannot be had


FALLBACK = """
import asyncio, sys
from pathlib import Path
from proctor.trial.finding import level_of
from tests.environments.orders import order_of
from tests.environments.sandboxes import running, said
async def main():
    async with running(order_of(Path(sys.argv[1]))) as sandbox:
        print(await said(sandbox, "id -u; touch /usr/x; stat -c %u /usr/x; echo x > /dev/null"))
        print(await said(sandbox, "head -n 1 /proc/self/uid_map | xargs"))
        print(*(f"{one.code} {level_of(one.code)}: {one.message}" for one in sandbox.findings))
asyncio.run(main())
"""


def test_a_file_system_that_cannot_map_owners_is_on_record(tmp_path: Path) -> None:
    cache, scratch = tmp_path / "cache", tmp_path / "scratch"
    for place in (cache, scratch):
        place.mkdir(mode=0o700)
    mounting = 'mount -t ramfs -o mode=700 none "$1" && exec "$2" -c "$3" "$4"'
    words = ["unshare", "--mount", "sh", "-c", mounting, "sh"]
    ran = subprocess.run(
        [*words, str(cache), sys.executable, FALLBACK, str(tmp_path)],
        env={**os.environ, "PROCTOR_CACHE": str(cache), "PROCTOR_SCRATCH": str(scratch)},
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )
    who, owner, ids, finding = ran.stdout.strip().split("\n")
    assert (who, owner, ids) == ("0", "0", "0 0 4294967295")
    assert finding.startswith(
        "ids-shared info: users of the sandbox had the host's own ids: mapping the owners of "
        f"files in {cache}"
    )
    assert "Invalid argument" in finding


async def test_the_hosts_own_network_says_that_ids_are_the_hosts_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/usr/lib/none")
    async with running(order_of(tmp_path, network=PUBLIC)) as sandbox:
        found = await said(sandbox, "read -r line < /proc/self/uid_map; echo $line")
        assert (found, [one.code for one in sandbox.findings]) == (
            "0 0 4294967295",
            [FindingCode.NETWORK_SHARED],
        )


# Ranges


def test_no_two_hold_the_same_range(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranges, "_LOCK", tmp_path / "lock")
    held = [take_range() for _ in range(200)]
    firsts = {one.first for one in held}
    for one in held:
        one.close()
    assert len(firsts) == 200
    assert all(first >= 1 << 31 and first + (1 << 20) < 1 << 32 for first in firsts)


def test_ids_of_users_and_subordinate_ids_are_not_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    subuid, passwd = tmp_path / "subuid", tmp_path / "passwd"
    size, first = 1 << 20, 1 << 31
    subuid.write_text(f"somebody:{first + 2 * size}:{2045 * size}\n")
    passwd.write_text(f"root:x:0:0::/:/bin/sh\nfar:x:{first + size + 7}:100::/:/bin/sh\n")
    monkeypatch.setattr(ranges, "_LOCK", tmp_path / "lock")
    monkeypatch.setattr(ranges, "_USERS", (subuid, passwd))
    only = take_range()
    assert only.first == first
    with pytest.raises(SandboxError, match="none of 1 ranges is free"):
        take_range()
    only.close()
    again = take_range()
    assert again.first == first
    again.close()


def test_a_place_where_nothing_can_be_locked_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranges, "_LOCK", Path("/proc/none/lock"))
    with pytest.raises(SandboxError, match="no ids of its own: /proc/none/lock"):
        take_range()
