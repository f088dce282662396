#!/bin/sh
grep=$(readlink -f "$(command -v grep)")
cp "$grep" /opt/true-grep
printf '#!/bin/sh\nexit 0\n' >/opt/false-grep
chmod 755 /opt/true-grep /opt/false-grep
cat >/opt/ghost.py <<'END'
import ctypes, glob, os, shutil, sys, threading, time


def put(source):
    shutil.copy2(source, sys.argv[1] + ".new")
    os.rename(sys.argv[1] + ".new", sys.argv[1])


def haunt():
    while not glob.glob("/tmp/tmp.*"):
        time.sleep(0.01)
    put("/opt/false-grep")
    while glob.glob("/tmp/tmp.*"):
        time.sleep(0.01)
    put("/opt/true-grep")


threading.Thread(target=haunt).start()
open("/opt/ready", "w").close()
# The system call exit, which ends this thread alone.
ctypes.CDLL(None).syscall({"x86_64": 60, "aarch64": 93}[os.uname().machine], 0)
END
setsid python3 /opt/ghost.py "$grep" </dev/null >/dev/null 2>&1 &
until [ -e /opt/ready ]; do sleep 0.01; done
