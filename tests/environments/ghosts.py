"""Processes whose first thread has ended while another one goes on: /proc calls them zombies."""

import struct

GHOST = """
import ctypes, os, signal, socket, sys, threading, time

signal.signal(signal.SIGTERM, signal.SIG_IGN)
if "apart" in sys.argv:
    os.setsid()
door = socket.socket(socket.AF_UNIX)
if "listening" in sys.argv:
    door.bind("\\0ghost" + str(os.getpid()))
    door.listen()


def tick():
    while True:
        with open(sys.argv[1], "a") as file:
            file.write("x")
        time.sleep(0.05)


threading.Thread(target=tick).start()
exit = {"x86_64": 60, "aarch64": 93}[os.uname().machine]
ctypes.CDLL(None).syscall(exit, 0)
"""
"""Ignores SIGTERM and writes to a file: `python3 ghost.py FILE [apart] [listening]`."""

_CODE = bytes.fromhex(
    "b838000000"  # clone
    "bf000f0500"  # VM, FS, FILES, SIGHAND, THREAD, SYSVSEM
    "31f6 31d2 4d31d2 4d31c0 0f05"
    "85c0 7409"
    "b83c000000 31ff 0f05"  # the first thread: exit
    "b822000000 0f05 ebf7"  # the other one: pause, for ever
)


def make_ghost_program() -> bytes:
    """A ghost that does nothing, as a program for x86-64 that needs no library."""
    base, size = 0x400000, 64 + 56
    header = b"\x7fELF\x02\x01\x01".ljust(16, b"\0")
    header += struct.pack("<HHIQQQIHHHHHH", 2, 62, 1, base + size, 64, 0, 0, 64, 56, 1, 64, 0, 0)
    length = size + len(_CODE)
    return header + struct.pack("<IIQQQQQQ", 1, 5, 0, base, base, length, length, 4096) + _CODE


def leave_ghost(path: str) -> str:
    """A script that makes such a program and leaves it running in a session of its own."""
    octal = "".join(f"\\{byte:03o}" for byte in make_ghost_program())
    return (
        f"printf '{octal}' > {path}; chmod +x {path}; setsid {path} >/dev/null 2>&1 &\n"
        f"until grep -q ' Z ' /proc/$!/stat; do :; done\n"
    )
