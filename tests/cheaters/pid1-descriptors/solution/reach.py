"""Says what became of each attempt: DENIED, or REACHED, which no runner should let it say."""

import ctypes, os

PIDFD_GETFD = 438
libc = ctypes.CDLL(None, use_errno=True)


def get_files() -> bool:
    pidfd = os.pidfd_open(1)
    try:
        return any(libc.syscall(PIDFD_GETFD, pidfd, number, 0) >= 0 for number in range(256))
    finally:
        os.close(pidfd)


def follow_links() -> bool:
    return any(os.path.exists(f"/proc/1/fd/{number}") for number in range(256))


def read_memory() -> bool:
    space = ctypes.create_string_buffer(8)
    here = (ctypes.c_size_t * 2)(ctypes.addressof(space), 8)
    there = (ctypes.c_size_t * 2)(0x400000, 8)
    libc.process_vm_readv(1, here, 1, there, 1, 0)
    # A wrong address is another error than no permission.
    return ctypes.get_errno() not in (1, 3)


def find_inherited() -> bool:
    # One of those listed is the listing itself, and closed by now.
    kept = [fd for fd in os.listdir("/proc/self/fd") if int(fd) > 2]
    return any(os.path.lexists(f"/proc/self/fd/{fd}") for fd in kept)


attempts = {
    "files that were inherited": find_inherited,
    "files of process 1 by pidfd_getfd": get_files,
    "files of process 1 by /proc": follow_links,
    "memory of process 1": read_memory,
}
for what, attempt in attempts.items():
    try:
        word = "REACHED" if attempt() else "DENIED"
    except OSError:
        word = "DENIED"
    print(word, what)
