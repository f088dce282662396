"""What /proc shows inside: nothing of where things lie on the host, and all that programs need."""

import shutil
import sys
from pathlib import Path

import pytest

import proctor
from tests.environments.sandbox.boxes import look, made, said

# Everything below /proc that can be read, and where its links lead.
READ_ALL = r"""
import os
for place, names, files in os.walk("/proc"):
    names[:] = [name for name in names if name not in ("map_files", "thread-self")]
    for name in names + files:
        path = os.path.join(place, name)
        try:
            if os.path.islink(path):
                print(path, os.readlink(path))
            elif name not in ("pagemap", "mem", "clear_refs", "kallsyms", "trace_pipe"):
                fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
                print(path, os.read(fd, 1 << 20).decode(errors="replace").replace("\0", " "))
        except OSError:
            pass
"""


def secrets_of_host(tmp_path: Path) -> list[str]:
    """Paths of the host that nobody inside is to see, and its kernel's command line."""
    paths = [str(tmp_path), str(Path(proctor.__file__).parent), sys.prefix, sys.base_prefix]
    own = [path for path in paths if not path.startswith("/usr")]
    return [*own, Path("/proc/cmdline").read_text().strip() or "no command line"]


@pytest.mark.parametrize("user", ["root", "guest"])
async def test_proc_shows_no_path_of_the_host_and_not_its_command_line(
    tmp_path: Path, user: str
) -> None:
    async with made(tmp_path) as box:
        (tmp_path / "read_all.py").write_text(READ_ALL)
        await box.put(tmp_path / "read_all.py", "/tmp/read_all.py")
        shown = await said(box, "/usr/bin/env python3 -I /tmp/read_all.py", user=user)
    assert "/proc/1/mountinfo" in shown
    assert "/proc/1/cmdline proctor-sandbox" in shown
    for secret in secrets_of_host(tmp_path):
        lines = [line for line in shown.splitlines() if secret in line]
        assert lines == []


async def test_rooms_are_apart_and_the_agents_mounts_do_not_show_where_they_lie(
    tmp_path: Path,
) -> None:
    async with made(tmp_path, guarded=("/tests",)) as box:
        for number in (1, 2, 3):
            assert await box.open_room(("/tests",)) == number
        await said(box, "echo 2 > /tests/x", room=2)
        assert str(tmp_path) not in await said(box, "cat /proc/self/mountinfo /proc/1/mountinfo")
        inside = await said(box, "cat /tests/x; ls -A /sys /tests", room=2)
        one = inside
        other = await said(box, "ls -A /sys /tests", room=3)
    assert one.split() == ["2", "/sys:", "/tests:", "x"]
    assert other.split() == ["/sys:", "/tests:"]


@pytest.mark.parametrize(
    ("program", "command"),
    [
        ("ps", "ps aux | grep -c proctor-sandbox"),
        ("top", "top -b -n 1 | grep -c Tasks"),
        ("free", "free | grep -c Mem"),
        ("df", "df / | grep -c overlay"),
        ("mount", "mount | grep -c ' on /proc '"),
        ("uptime", "uptime | grep -c load"),
        ("vmstat", "vmstat | grep -c procs"),
        ("lsof", "lsof -p $$ | grep -c COMMAND"),
        ("java", f"{Path('/usr/bin/java').resolve()} -version 2>&1 | grep -c -i runtime"),
    ],
)
def test_programs_that_read_proc_work(tmp_path: Path, program: str, command: str) -> None:
    if not (shutil.which(program, path="/usr/bin") or shutil.which(program, path="/bin")):
        pytest.skip(f"{program} is not installed")
    assert int(look(tmp_path, command)) >= 1


def test_python_counts_the_processors(tmp_path: Path) -> None:
    script = (
        "/usr/bin/env python3 -c 'import os; print(os.cpu_count() > 0, os.getloadavg()[0] >= 0)'"
    )
    assert look(tmp_path, script) == "True True"
