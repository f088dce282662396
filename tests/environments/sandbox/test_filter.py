"""The seccomp filter: every call by its name in the headers, and the answers inside a sandbox."""

import asyncio
import errno
import itertools
import json
import os
import re
import struct
from pathlib import Path

import pytest

from proctor.environments.sandbox.box import Box
from proctor.environments.sandbox.filter import make_program
from tests.environments.sandbox.boxes import look, made, said, shell, use

ALLOWED = """
accept accept4 access adjtimex alarm arch_prctl arm_fadvise64_64 arm_sync_file_range bind breakpoint
brk cacheflush cachestat capget capset chdir chmod chown chown32 chroot clock_adjtime
clock_adjtime64 clock_getres clock_getres_time64 clock_gettime clock_gettime64 clock_nanosleep
clock_nanosleep_time64 close close_range connect copy_file_range creat dup dup2 dup3 epoll_create
epoll_create1 epoll_ctl epoll_ctl_old epoll_pwait epoll_pwait2 epoll_wait epoll_wait_old eventfd
eventfd2 execve execveat exit exit_group faccessat faccessat2 fadvise64 fadvise64_64 fallocate
fanotify_mark fchdir fchmod fchmodat fchmodat2 fchown fchown32 fchownat fcntl fcntl64 fdatasync
fgetxattr flistxattr flock fork fremovexattr fsetxattr fstat fstat64 fstatat64 fstatfs fstatfs64
fsync ftruncate ftruncate64 futex futex_requeue futex_time64 futex_wait futex_waitv futex_wake
futimesat get_robust_list get_thread_area getcpu getcwd getdents getdents64 getegid getegid32
geteuid geteuid32 getgid getgid32 getgroups getgroups32 getitimer getpeername getpgid getpgrp getpid
getppid getpriority getrandom getresgid getresgid32 getresuid getresuid32 getrlimit getrusage getsid
getsockname getsockopt gettid gettimeofday getuid getuid32 getxattr getxattrat inotify_add_watch
inotify_init inotify_init1 inotify_rm_watch io_cancel io_destroy io_getevents io_pgetevents
io_pgetevents_time64 io_setup io_submit ioctl ioprio_get ioprio_set ipc kill landlock_add_rule
landlock_create_ruleset landlock_restrict_self lchown lchown32 lgetxattr link linkat listen
listxattr listxattrat llistxattr _llseek lremovexattr lseek lsetxattr lstat lstat64 madvise
map_shadow_stack membarrier memfd_create memfd_secret mincore mkdir mkdirat mknod mknodat mlock
mlock2 mlockall mmap mmap2 mprotect mq_getsetattr mq_notify mq_open mq_timedreceive
mq_timedreceive_time64 mq_timedsend mq_timedsend_time64 mq_unlink mremap mseal msgctl msgget msgrcv
msgsnd msync munlock munlockall munmap name_to_handle_at nanosleep newfstatat _newselect open openat
openat2 pause pidfd_getfd pidfd_open pidfd_send_signal pipe pipe2 pkey_alloc pkey_free pkey_mprotect
poll ppoll ppoll_time64 prctl pread64 preadv preadv2 process_mrelease process_vm_readv
process_vm_writev pselect6 pselect6_time64 ptrace pwrite64 pwritev pwritev2 read readahead readlink
readlinkat readv recv recvfrom recvmmsg recvmmsg_time64 recvmsg remap_file_pages removexattr
removexattrat rename renameat renameat2 restart_syscall rmdir rseq rt_sigaction rt_sigpending
rt_sigprocmask rt_sigqueueinfo rt_sigreturn rt_sigsuspend rt_sigtimedwait rt_sigtimedwait_time64
rt_tgsigqueueinfo sched_get_priority_max sched_get_priority_min sched_getaffinity sched_getattr
sched_getparam sched_getscheduler sched_rr_get_interval sched_rr_get_interval_time64
sched_setaffinity sched_setattr sched_setparam sched_setscheduler sched_yield seccomp select semctl
semget semop semtimedop semtimedop_time64 send sendfile sendfile64 sendmmsg sendmsg sendto
set_robust_list set_thread_area set_tid_address set_tls setfsgid setfsgid32 setfsuid setfsuid32
setgid setgid32 setgroups setgroups32 setitimer setpgid setpriority setregid setregid32 setresgid
setresgid32 setresuid setresuid32 setreuid setreuid32 setrlimit setsid setsockopt setuid setuid32
setxattr setxattrat shmat shmctl shmdt shmget shutdown sigaltstack signalfd signalfd4 sigprocmask
sigreturn socketcall splice stat stat64 statfs statfs64 statx symlink symlinkat sync sync_file_range
sync_file_range2 syncfs sysinfo tee tgkill time timer_create timer_delete timer_getoverrun
timer_gettime timer_gettime64 timer_settime timer_settime64 timerfd_create timerfd_gettime
timerfd_gettime64 timerfd_settime timerfd_settime64 times tkill truncate truncate64 ugetrlimit umask
uname unlink unlinkat utime utimensat utimensat_time64 utimes vfork vmsplice wait4 waitid waitpid
write writev
"""
CHECKED = "clone personality prlimit64 socket socketpair unshare"
REFUSED = """
acct add_key bpf clock_settime clock_settime64 delete_module fanotify_init finit_module fsconfig
fsmount fsopen fspick get_mempolicy init_module io_uring_enter io_uring_register io_uring_setup
ioperm iopl kcmp kexec_file_load kexec_load keyctl lookup_dcookie mbind migrate_pages modify_ldt
mount mount_setattr move_mount move_pages open_by_handle_at open_tree perf_event_open pivot_root
process_madvise quotactl quotactl_fd reboot request_key set_mempolicy set_mempolicy_home_node
setdomainname sethostname setns settimeofday stime swapoff swapon syslog umount umount2 uselib
userfaultfd vhangup vm86 vm86old
"""

X86_64, I386, AARCH64, ARM = 0xC000003E, 0x40000003, 0xC00000B7, 0x40000028
HEADERS = {
    X86_64: Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h"),
    I386: Path("/usr/include/x86_64-linux-gnu/asm/unistd_32.h"),
    AARCH64: Path("/usr/include/asm-generic/unistd.h"),
}
ALLOW, PERMISSION, MISSING, FAMILY = 0, errno.EPERM, errno.ENOSYS, errno.EAFNOSUPPORT
MOST_STEPS = 20


def answer(program: bytes, architecture: int, number: int, *arguments: int) -> tuple[int, int]:
    """What a filter says to a call, 0 or an errno, and after how many steps."""
    padded = (*arguments, *(0,) * (6 - len(arguments)))
    data = struct.pack("=IIQ6Q", number, architecture, 0, *padded)
    loaded, at = 0, 0
    for step in itertools.count(1):
        code, if_true, if_false, value = struct.unpack_from("=HBBI", program, at * 8)
        at += 1
        match code:
            case 0x20:
                loaded = struct.unpack_from("=I", data, value)[0]
            case 0x05:
                at += value
            case 0x15:
                at += if_true if loaded == value else if_false
            case 0x35:
                at += if_true if loaded >= value else if_false
            case 0x45:
                at += if_true if loaded & value else if_false
            case _:
                assert code == 0x06
                return (ALLOW if value == 0x7FFF0000 else value & 0xFFFF), step
    raise AssertionError


def program_of(architecture: int) -> bytes:
    return make_program("x86_64" if architecture in (X86_64, I386) else "aarch64")


def says(architecture: int, number: int, *arguments: int) -> int:
    return answer(program_of(architecture), architecture, number, *arguments)[0]


def numbers_of(architecture: int) -> dict[str, int]:
    header = HEADERS[architecture]
    if not header.exists():
        pytest.skip(f"{header} is not installed")
    pattern = r"^#define __NR(?:3264)?_(\w+)\s+(\d+)\b"
    found = re.findall(pattern, header.read_text(), re.MULTILINE)
    numbers = {name: int(number) for name, number in found}
    if architecture == AARCH64:
        # How many there are; a name of the kernel's own; and what only 32-bit machines have.
        del numbers["syscalls"]
        numbers["newfstatat"] = numbers.pop("fstatat")
        return {name: number for name, number in numbers.items() if not 403 <= number <= 423}
    return numbers


@pytest.mark.parametrize("architecture", HEADERS)
def test_every_call_of_the_headers_has_the_answer_that_its_name_has(architecture: int) -> None:
    numbers = numbers_of(architecture)
    found = {name: says(architecture, number) for name, number in numbers.items()}
    expected = dict.fromkeys(numbers, MISSING)
    expected |= {name: PERMISSION for name in REFUSED.split() if name in numbers}
    expected |= {name: ALLOW for name in ALLOWED.split() if name in numbers}
    for name in CHECKED.split():
        # With arguments of 0: no family, no flags, Linux, the own process.
        expected[name] = FAMILY if name.startswith("socket") else ALLOW
    assert found == expected


@pytest.mark.parametrize("architecture", HEADERS)
def test_numbers_that_no_call_has_are_unknown(architecture: int) -> None:
    known = {*numbers_of(architecture).values(), *range(451, 457), *range(462, 467)}
    unknown = {*range(1200), 1 << 16, 0x40000000, 0x40000001, 0xFFFFFFFF} - known
    allowed = {number for number in unknown if says(architecture, number) != MISSING}
    assert not allowed


@pytest.mark.parametrize(
    ("number", "expected"),
    [
        *((number, ALLOW) for number in (1, 3, 5, 11, 162, 192, 240, 270, 322, 384, 397, 0xF0005)),
        *((number, PERMISSION) for number in (21, 51, 88, 309, 311, 364, 375, 386, 388, 425)),
        *((number, MISSING) for number in (7, 17, 82, 102, 400 + 47, 435, 1000, 0xF0003)),
        *((281, FAMILY), (288, FAMILY), (120, ALLOW), (369, ALLOW)),
    ],
)
def test_arm_has_its_own_numbers(number: int, expected: int) -> None:
    assert says(ARM, number) == expected


CASES = [
    ("prlimit64", (0, 3, 1 << 40), ALLOW),
    ("prlimit64", (1, 3, 0, 5), ALLOW),
    ("prlimit64", (1, 3, 8), PERMISSION),
    ("prlimit64", (1, 3, 1 << 40), PERMISSION),
    *(("socket", (family, 1), ALLOW) for family in (1, 2, 10, 16)),
    *(("socket", (family, 1, 9), ALLOW) for family in (1, 2, 10)),
    ("socket", (16, 3, 9), errno.EPROTONOSUPPORT),
    ("socket", (16, 3, 15), ALLOW),
    *(("socketpair", (family, 1), FAMILY) for family in (0, 3, 17, 38, 40)),
    *(("personality", (value,), ALLOW) for value in (0, 8, 0x20000, 0x20008, 0xFFFFFFFF)),
    *(("personality", (value,), PERMISSION) for value in (4, 0x40000, 0x0400000)),
    *(("clone", (1 << bit | 17,), PERMISSION) for bit in (17, *range(25, 31))),
    ("clone", (0x003D0F00,), ALLOW),
    ("clone", (0x01200011,), ALLOW),
    ("clone", (0x80 | 17,), ALLOW),
    *(("unshare", (1 << bit,), PERMISSION) for bit in (7, 17, *range(25, 31))),
    ("unshare", (0x600,), ALLOW),
]


@pytest.mark.parametrize("architecture", HEADERS)
@pytest.mark.parametrize(("name", "arguments", "expected"), CASES)
def test_some_calls_depend_on_their_arguments(
    architecture: int, name: str, arguments: tuple[int, ...], expected: int
) -> None:
    assert says(architecture, numbers_of(architecture)[name], *arguments) == expected


@pytest.mark.parametrize("architecture", [X86_64, I386, AARCH64, ARM])
def test_the_filter_is_short_and_every_answer_near(architecture: int) -> None:
    program = program_of(architecture)
    assert len(program) // 8 < 1024
    assert max(answer(program, architecture, n)[1] for n in range(500)) < MOST_STEPS


def test_other_architectures_and_machines_have_no_calls() -> None:
    assert says(0xC00000F3, 64) == MISSING
    assert answer(make_program("x86_64"), ARM, 4)[0] == MISSING
    assert answer(make_program("riscv64"), 0xC00000F3, 64)[0] == MISSING


CALLER = """
import ctypes, json, sys
call, found = ctypes.CDLL(None, use_errno=True).syscall, {}
for name, words in json.loads(sys.argv[1]).items():
    ctypes.set_errno(0)
    found[name] = ctypes.get_errno() if call(*map(ctypes.c_long, words)) == -1 else 0
print(json.dumps(found))
"""


def called(box_path: Path, calls: dict[str, tuple[int, ...]], *, user: str = "root") -> object:
    """The errno of calls that are made inside, by number and arguments."""
    script = f"/usr/bin/python3 -c '{CALLER}' '{json.dumps(calls)}'"
    return json.loads(look(box_path, script, user=user))


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="calls by their numbers on x86_64")
def test_refused_calls_fail_inside_as_they_should(tmp_path: Path) -> None:
    numbers = numbers_of(X86_64)
    refused = {name: (numbers[name], 0, 0, 0) for name in REFUSED.split() if name in numbers}
    unknown = {"clone3": (435, 0, 0), "1000": (1000,), "x32": (0x40000000 + 39,)}
    others = {
        "prlimit of 1": (302, 1, 3, 1 << 20),
        "vsock": (41, 40, 1, 0),
        "user namespace": (272, 1 << 28),
        "time namespace": (272, 1 << 7),
        "no randomness": (135, 0x40000),
    }
    assert called(tmp_path, refused | unknown | others) == {
        **dict.fromkeys(refused, errno.EPERM),
        **dict.fromkeys(unknown, errno.ENOSYS),
        **dict.fromkeys(others, errno.EPERM),
        "vsock": errno.EAFNOSUPPORT,
    }


async def test_commands_are_filtered_whoever_starts_them(tmp_path: Path) -> None:
    # Several at once: a worker starts the first of a room, PID 1 itself the others.
    script = "sleep 0.2; grep ^Seccomp: /proc/self/status"
    users = ("root", "guest") if os.geteuid() == 0 else ("root",)
    async with made(tmp_path) as box:
        rooms = (0, await box.open_room(("/tests",)))
        places = [(user, room) for user in users for room in (*rooms, *rooms)]
        assert {
            " ".join(found.split())
            for found in (
                await asyncio.gather(*(said(box, script, user=u, room=r) for u, r in places))
            )
        } == {"Seccomp: 2"}


def test_workers_are_filtered_and_pid_1_alone_is_not(tmp_path: Path) -> None:
    script = "grep -H ^Seccomp: $(grep -l ^proctor- /proc/[0-9]*/comm | sed s/comm/status/)"

    async def run(box: Box) -> list[str]:
        room = await box.open_room(("/tests",))
        await box.kind_of("/tests", room=room)
        return (await said(box, script)).splitlines()

    first, *workers = sorted(use(tmp_path, run))
    assert first.split() == ["/proc/1/status:Seccomp:", "0"]
    assert [line.split()[-1] for line in workers] == ["2", "2"]


async def test_nobody_inside_changes_the_limits_of_others(tmp_path: Path) -> None:
    lower = "for p in /proc/[0-9]*; do prlimit --pid ${p#/proc/} --stack=65536:65536; done"
    async with made(tmp_path) as box:
        before = await said(box, "ulimit -s")
        await shell(box, lower)
        room = await box.open_room(("/tests",))
        assert (
            len({before, await said(box, "ulimit -s"), await said(box, "ulimit -s", room=room)})
            == 1
        )


def test_everybody_changes_his_own_limits_and_reads_those_of_others(tmp_path: Path) -> None:
    own = "prlimit --stack=1048576 bash -c 'ulimit -s'"
    others = "prlimit --pid 1 --core --noheadings -o RESOURCE"
    assert look(tmp_path, f"{own}; {others}").split() == ["1024", "CORE"]
