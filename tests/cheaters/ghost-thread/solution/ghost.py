"""Ends its first thread; another one waits for the tests."""

import ctypes, glob, os, shutil, threading, time

EXIT = {"x86_64": 60, "aarch64": 93}[os.uname().machine]
GREP = os.path.realpath(shutil.which("grep"))


def put(source: str) -> None:
    shutil.copy2(source, GREP + ".new")
    os.rename(GREP + ".new", GREP)


def haunt() -> None:
    while not glob.glob("/tmp/tmp.*"):
        time.sleep(0.01)
    put("/opt/false-grep")
    while glob.glob("/tmp/tmp.*"):
        time.sleep(0.01)
    put("/opt/true-grep")


shutil.copy2(GREP, "/opt/true-grep")
with open("/opt/false-grep", "w") as file:
    file.write("#!/bin/sh\nexit 0\n")
os.chmod("/opt/false-grep", 0o755)
threading.Thread(target=haunt).start()
open("/tmp/haunted", "w").close()
ctypes.CDLL(None).syscall(EXIT, 0)
