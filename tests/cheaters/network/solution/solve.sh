#!/bin/sh
# Says what became of each attempt: DENIED, or REACHED, which no runner should let it say.
try() {
    what=$1
    shift
    if ("$@") >/dev/null 2>&1 </dev/null; then echo "REACHED $what"; else echo "DENIED $what"; fi
}
connect() {
    if command -v bash >/dev/null; then
        timeout 2 bash -c "exec 3<>/dev/tcp/$1/$2"
    else
        nc -w 2 "$1" "$2" </dev/null
    fi
}
for port in ${CHEATER_PORT:-22} 111 2375 8080; do try_all="$try_all 127.0.0.1:$port"; done
for address in $try_all 10.0.2.2:${CHEATER_PORT:-22} 172.17.0.1:2375 192.168.127.1:22 169.254.169.254:80 1.1.1.1:53; do
    connect "${address%:*}" "${address#*:}" >/dev/null 2>&1 && echo "REACHED $address"
done
echo "DENIED addresses"
try "a name" timeout 5 getent ahostsv4 example.com
for socket in /run/docker.sock /var/run/docker.sock /run/containerd/containerd.sock; do
    try "$socket" test -S "$socket"
done
try "an abstract socket" python3 -c "
import os, socket
s = socket.socket(socket.AF_UNIX); s.connect(chr(0) + os.environ.get('CHEATER_SOCKET', '/tmp/.X11-unix/X0'))"
try "an interface besides loopback" sh -c "grep -v '^ *lo:' /proc/net/dev | grep -q ': '"
