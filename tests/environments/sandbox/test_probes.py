"""What root inside a sandbox can see and do: each test is one line of the promise."""

import asyncio
import os
import socket
import stat
from pathlib import Path

import pytest

from proctor.environments.sandbox.blueprint import Command, Network
from proctor.environments.sandbox.box import Box
from tests.environments.sandbox.boxes import look, made, make_blueprint, opened, said, shell, use

COMMAND = "00000000800404fb"
"""CHOWN, DAC_OVERRIDE, FOWNER, FSETID, KILL, SETGID, SETUID, NET_BIND_SERVICE, SYS_CHROOT, SETFCAP.
"""
NONE = "0000000000000000"


def python(code: str) -> str:
    """A script that runs Python inside."""
    return f"/usr/bin/python3 - <<'END'\n{code}\nEND\n"


def refused(tmp_path: Path, *scripts: str) -> list[str]:
    """Those of some scripts that succeed inside, which none of them should."""

    async def run(box: Box) -> list[str]:
        return [one for one in scripts if (await shell(box, one)).return_code == 0]

    return use(tmp_path, run)


def test_the_capabilities_of_root_are_the_ten(tmp_path: Path) -> None:
    lines = look(tmp_path, "grep ^Cap /proc/self/status").split()
    sets = dict(zip(lines[::2], lines[1::2], strict=True))
    assert sets == {
        "CapInh:": NONE,
        "CapPrm:": COMMAND,
        "CapEff:": COMMAND,
        "CapBnd:": COMMAND,
        "CapAmb:": NONE,
    }


def test_no_new_privileges_can_be_had(tmp_path: Path) -> None:
    assert look(tmp_path, "grep -E '^(NoNewPrivs|Seccomp):' /proc/self/status").split() == [
        "NoNewPrivs:",
        "1",
        "Seccomp:",
        "2",
    ]


def test_nothing_can_be_mounted_or_unmounted(tmp_path: Path) -> None:
    assert not refused(
        tmp_path,
        "umount /proc/sys",
        "umount -l /proc",
        "umount /sys",
        "umount /dev/null",
        "umount /tests",
        "mount -t tmpfs none /mnt",
        "mount -t proc none /mnt",
        "mount -t sysfs none /mnt",
        "mount -t cgroup2 none /mnt",
        "mount -t cgroup -o memory none /mnt",
        "mount --bind / /mnt",
        "mount -o remount,rw /proc/sys",
        "mount -o remount,dev /",
        "mount --make-rshared /",
    )


def test_no_namespace_can_be_made_or_entered(tmp_path: Path) -> None:
    assert not refused(
        tmp_path,
        "unshare -m true",
        "unshare -U true",
        "unshare -Ur true",
        "unshare -Urm mount -t tmpfs none /mnt",
        "unshare -n true",
        "unshare -p -f true",
        "nsenter -t 1 -m true",
        "nsenter -t 1 -a true",
    )


def test_clone_makes_no_user_namespace_either(tmp_path: Path) -> None:
    code = """
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
print(libc.syscall(56, 0x10000000 | 17, 0, 0, 0, 0), ctypes.get_errno())
print(libc.syscall(435, 0, 0), ctypes.get_errno())
print(libc.syscall(250, 0, -3, 1), ctypes.get_errno())
"""
    if os.uname().machine != "x86_64":
        code = code.replace("(56,", "(220,").replace("(250,", "(219,")
    assert look(tmp_path, python(code)).splitlines() == ["-1 1", "-1 38", "-1 1"]


def test_no_setting_of_the_kernel_can_be_written(tmp_path: Path) -> None:
    assert not refused(
        tmp_path,
        "echo x > /proc/sys/kernel/core_pattern",
        "echo 1 > /proc/sys/vm/overcommit_memory",
        "echo 0 > /proc/sys/kernel/randomize_va_space",
        "echo h > /proc/sysrq-trigger",
        "for f in /proc/sys/kernel/* /proc/sys/net/ipv4/* /proc/sys/user/*; do "
        "test -f $f && cat $f > $f && exit 0; done; exit 1",
        "echo x > /proc/mtrr",
        "echo 'some 500000 1000000' > /proc/pressure/memory",
        "chmod 777 /proc/sys/kernel/core_pattern",
        "for f in /proc/irq/*/smp_affinity; do cat $f > $f && exit 0; done; exit 1",
    )


def test_modes_in_proc_which_are_the_hosts_own_cannot_be_changed(tmp_path: Path) -> None:
    assert not refused(
        tmp_path,
        "chmod 600 /proc/meminfo",
        "chown 1000 /proc/uptime",
        "chmod 700 /proc/tty /proc/sysvipc",
        "for f in /proc/*; do case $f in */self|*/thread-self|*/net|*/mounts|*[0-9]) ;; "
        '*) chmod --quiet "$(stat -c %a $f)" $f && exit 0;; esac; done; exit 1',
    )


def test_a_process_writes_its_own_files_in_proc(tmp_path: Path) -> None:
    script = (
        "echo 500 > /proc/self/oom_score_adj && cat /proc/self/oom_score_adj;"
        "echo 0x33 > /proc/self/coredump_filter && echo named > /proc/$$/comm && cat /proc/$$/comm"
    )
    assert look(tmp_path, script).split() == ["500", "named"]


async def test_nothing_of_pid_1_and_of_a_room_can_be_written_in_proc(tmp_path: Path) -> None:
    write = (
        "for p in PIDS; do for f in mem comm loginuid attr/current uid_map gid_map setgroups; do "
        "test -e $p/$f && (echo 1 > $p/$f) 2>/dev/null && echo $p/$f; done; done; true"
    )
    async with made(tmp_path, guarded=("/tests",)) as box:
        room = await box.open_room(("/tests",))
        waiting = asyncio.ensure_future(said(box, "exec sleep 1.5", room=room))
        await asyncio.sleep(0.5)
        others = "$(grep -l ^sleep /proc/[0-9]*/comm | sed 's:/comm::')"
        found = (
            await said(box, write.replace("PIDS", "/proc/1 /proc/self")),
            await said(box, write.replace("PIDS", others)),
        )
        await waiting
        own, others = found
    assert not [path for path in own.split() if path.startswith("/proc/1/")]
    assert others == ""


def test_chroot_leads_to_the_sandboxs_own_root_and_no_further(tmp_path: Path) -> None:
    code = """
import os
os.makedirs("/jail/deeper", exist_ok=True)
top = os.open("/", os.O_RDONLY)
before = os.stat("/")
os.chroot("/jail")
print(os.listdir("/") != os.listdir(top))
os.chroot("/deeper")
for _ in range(100):
    os.chdir("..")
os.chroot(".")
after = os.stat("/")
print((before.st_dev, before.st_ino) == (after.st_dev, after.st_ino))
os.fchdir(top)
for _ in range(100):
    os.chdir("..")
print(sorted(os.listdir(".")) == sorted(os.listdir("/")), os.path.exists("/proc/1"))
"""
    assert look(tmp_path, python(code)).split() == ["True", "True", "True", "True"]


def test_only_root_can_call_chroot(tmp_path: Path) -> None:
    script = python(
        "import os\ntry: os.chroot('/tmp')\nexcept OSError as error: print(error.errno)"
    )
    assert look(tmp_path, script, user="guest") == "1"


async def test_another_root_shows_no_more_of_pid_1_and_of_rooms(tmp_path: Path) -> None:
    code = """
import os, subprocess
os.makedirs("/jail", exist_ok=True)
here = os.open("/", os.O_RDONLY)
os.chroot("/jail")
os.fchdir(here)
for pid in [name for name in os.listdir("proc") if name.isdecimal() and int(name) != os.getpid()]:
    for name in ("root", "cwd"):
        try:
            print(pid, os.listdir(f"proc/{pid}/{name}/tests"))
        except OSError:
            pass
"""
    async with made(tmp_path, guarded=("/tests",)) as box:
        room = await box.open_room(("/tests",))
        waiting = asyncio.ensure_future(said(box, "touch /tests/hidden; sleep 1.5", room=room))
        await asyncio.sleep(0.5)
        found = await said(box, python(code))
        await waiting
        assert "hidden" not in found


def test_the_kernels_audit_is_not_there(tmp_path: Path) -> None:
    code = """
import socket
try:
    socket.socket(16, socket.SOCK_RAW, 9)
except OSError as error:
    print(error.strerror)
socket.socket(16, socket.SOCK_RAW, 0).close()
"""
    assert look(tmp_path, python(code)) == "Protocol not supported"


def test_what_tells_of_the_host_in_proc_is_masked(tmp_path: Path) -> None:
    script = (
        "for f in kcore keys key-users timer_list kmsg sched_debug kpageflags interrupts; do "
        "test -e /proc/$f && head -c 1 /proc/$f; done; ls /proc/acpi /proc/scsi 2>/dev/null"
    )
    assert (
        look(tmp_path, script).replace("/proc/acpi:", "").replace("/proc/scsi:", "").strip() == ""
    )


def test_devices_are_the_harmless_ones(tmp_path: Path) -> None:
    script = "cd /dev; for f in * pts/* shm/*; do test -L $f || { test -c $f && echo $f; }; done"
    devices = ["full", "null", "random", "tty", "urandom", "zero", "pts/ptmx"]
    assert look(tmp_path, script).split() == devices


def test_devices_work(tmp_path: Path) -> None:
    script = (
        "echo x > /dev/null && head -c 2 /dev/zero | od -An -tx1; head -c 9 /dev/urandom | wc -c; "
        "echo out > /dev/stdout; echo err > /dev/stderr; cat <(echo fd); "
        "script -qec 'tty; echo hi' /dev/null; echo x > /dev/shm/f; cat /dev/shm/f"
    )
    printed = look(tmp_path, script).replace("\r", "").split("\n")
    assert printed == [" 00 00".strip(), "9", "out", "err", "fd", "/dev/pts/0", "hi", "x"]


def test_the_hosts_device_nodes_cannot_be_changed(tmp_path: Path) -> None:
    before = Path("/dev/full").stat()
    assert not refused(
        tmp_path,
        "chmod 600 /dev/full",
        "chown 1000 /dev/full",
        "touch -d 2001-01-01 /dev/full",
        "rm /dev/full",
        "mv /dev/full /dev/empty",
    )
    after = Path("/dev/full").stat()
    assert (after.st_mode, after.st_uid, after.st_mtime) == (
        before.st_mode,
        before.st_uid,
        before.st_mtime,
    )


def test_device_nodes_cannot_be_made_or_opened(tmp_path: Path) -> None:
    assert not refused(
        tmp_path,
        "mknod /tmp/sda b 8 0",
        "mknod /tmp/mem c 1 1",
        "mknod /dev/kmsg c 1 11",
        "mknod /tmp/null c 1 3 && echo x > /tmp/null",
    )


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can plant a device on the host's side")
async def test_a_device_node_in_an_image_cannot_be_opened(tmp_path: Path) -> None:
    blueprint = make_blueprint(tmp_path / "box")
    os.mknod(tmp_path / "box/skeleton/null", 0o666 | stat.S_IFCHR, os.makedev(1, 3))
    async with opened(blueprint) as box:
        assert (await said(box, "cat /null")) == "cat: /null: Permission denied"


def test_sys_run_and_mnt_are_empty(tmp_path: Path) -> None:
    assert look(tmp_path, "ls -A /sys /run /mnt; touch /sys/x 2>/dev/null") == (
        "/mnt:\n\n/run:\n\n/sys:"
    )


def test_the_hosts_files_are_not_there(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("key")
    script = (
        f"ls -A /root /home/guest; ls -d {tmp_path} /work /var/lib {Path.home()}/.ssh /boot /opt "
        "2>/dev/null; ls -A /.. | sort | tr '\\n' ' '"
    )
    assert look(tmp_path, script) == (
        "/home/guest:\n\n/root:\n"
        "bin dev etc home lib lib64 logs mnt proc root run sbin sys tests tmp usr workspace"
    )


def test_no_path_of_the_host_is_read_in_the_mounts_options(tmp_path: Path) -> None:
    assert str(tmp_path) not in look(tmp_path, "cat /proc/mounts")


def test_the_way_out_by_descriptors_is_closed(tmp_path: Path) -> None:
    script = (
        "ls /proc/self/fd; ls -l /proc/self/fd/0 | grep -o '/dev/null'; stat -L -c %F /dev/fd/1"
    )
    # The 3 is the listing's own.
    assert look(tmp_path, script).split("\n") == ["0", "1", "2", "3", "/dev/null", "fifo"]


def test_a_command_has_three_open_files(tmp_path: Path) -> None:
    code = "import os; print(sorted(os.listdir('/proc/self/fd'))[:-1])"
    assert look(tmp_path, python(code)) == "['0', '1', '2']"


def test_pid_1_cannot_be_looked_into(tmp_path: Path) -> None:
    assert not refused(
        tmp_path,
        "ls /proc/1/root/",
        "ls /proc/1/cwd/",
        "readlink /proc/1/fd/*",
        "for f in /proc/1/fd/*; do cat $f && exit 0; done; exit 1",
        "cat /proc/1/environ",
        "cat /proc/1/maps",
        "head -c1 /proc/1/mem",
        "readlink /proc/1/exe",
        "readlink /proc/1/ns/mnt",
        "cat /proc/1/stack",
        python(
            "import ctypes, sys\n"
            "libc = ctypes.CDLL(None, use_errno=True)\n"
            "sys.exit(libc.ptrace(16, 1, 0, 0) != 0)"
        ),
        python(
            "import ctypes, os, sys\n"
            "libc = ctypes.CDLL(None, use_errno=True)\n"
            "sys.exit(libc.syscall(438, os.pidfd_open(1), 0, 0) < 0)"
        ),
    )


async def test_nothing_from_inside_ends_pid_1(tmp_path: Path) -> None:
    async with made(tmp_path) as box:
        await shell(box, "for s in $(seq 64); do kill -$s 1; done 2>/dev/null; kill -9 -1")
        printed = await said(box, "echo alive")
        _ = box.pid
    assert printed == "alive"


async def test_the_hosts_processes_are_not_seen(tmp_path: Path) -> None:
    async with made(tmp_path) as box:
        script = "echo $$; ls -d /proc/[0-9]* | grep -o '[0-9]*'; kill -0 2>/dev/null; true"
        assert {int(word) for word in (await said(box, script)).split()} <= set(range(1, 12))


def test_the_control_groups_paths_are_not_the_hosts(tmp_path: Path) -> None:
    assert set(look(tmp_path, "cut -d: -f3 /proc/self/cgroup").split()) == {"/"}


async def test_a_module_that_is_planted_is_never_loaded_by_pid_1(tmp_path: Path) -> None:
    async with made(tmp_path) as box:
        names = ("encodings", "json", "pwd", "traceback", "ctypes", "tarfile")
        place = "/usr/lib/python3/dist-packages"
        for name in names:
            await shell(
                box, f'mkdir -p {place}; echo \'open("/tmp/had", "w")\' > {place}/{name}.py'
            )
        await box.kind_of("/etc")
        await box.put(Path(__file__), "/tmp/")
        assert str(await box.kind_of("/tmp/had")) == "None"


def test_what_is_written_inside_is_not_seen_in_the_layers_below(tmp_path: Path) -> None:
    look(tmp_path, "echo x > /etc/passwd; rm -rf /home; echo x > /usr/lib/planted")
    assert "guest" in (tmp_path / "box/skeleton/etc/passwd").read_text()
    assert (tmp_path / "box/skeleton/home/guest").is_dir()
    assert not Path("/usr/lib/planted").exists()


async def test_no_mount_of_a_sandbox_is_seen_on_the_host(tmp_path: Path) -> None:
    async with made(tmp_path) as box:
        await said(box, "true")
        assert str(tmp_path) not in Path("/proc/self/mountinfo").read_text()
    assert list((tmp_path / "box/root").iterdir()) == []


def test_without_network_there_is_only_loopback(tmp_path: Path) -> None:
    code = """
import socket
print(sorted(name for _, name in socket.if_nameindex()))
server = socket.create_server(("127.0.0.1", 0))
socket.create_connection(server.getsockname()).close()
try:
    socket.create_connection(("192.0.2.1", 80), timeout=5)
except OSError as error:
    print(error.errno)
"""
    names, number = look(tmp_path, python(code)).splitlines()
    assert set(eval(names)) & {"lo"} == {"lo"}  # noqa: S307 - a list that this test printed
    assert "eth0" not in names
    assert number == "101"


def test_a_server_of_the_host_is_out_of_reach_without_network(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        script = f"exec 3<>/dev/tcp/127.0.0.1/{port}"
        assert refused(tmp_path, script) == []


def test_the_hosts_network_is_there_when_it_is_asked_for(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        script = f"exec 3<>/dev/tcp/127.0.0.1/{port} && echo reached"
        assert look(tmp_path, script, network=Network.HOST) == "reached"


def test_the_host_has_another_name(tmp_path: Path) -> None:
    assert look(tmp_path, "uname -n", hostname="examroom") == "examroom"
    assert socket.gethostname() != "examroom"


def test_set_user_id_programs_give_nothing(tmp_path: Path) -> None:
    async def run(box: Box) -> str:
        await shell(box, "cp /usr/bin/id /tmp/id; chmod 4755 /tmp/id")
        command = Command(("/tmp/id", "-u"), "/", {}, "0")
        return (await box.run(command)).output.decode().strip()

    assert use(tmp_path, run) == "0"
    assert "nosuid" in look(tmp_path / "again", "grep ' / ' /proc/mounts")


def test_nothing_of_the_runners_environment_is_inside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOME_API_KEY", "sesame")
    assert "sesame" not in look(tmp_path, "env; cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline")
