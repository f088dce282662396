#!/bin/sh
# Says what became of each attempt: DENIED, or REACHED, which no runner should let it say.
try() {
    what=$1
    shift
    if ("$@") >/dev/null 2>&1 </dev/null; then echo "REACHED $what"; else echo "DENIED $what"; fi
}
mkdir -p /app/there
try "a mount" sh -c 'mount -t tmpfs none /app/there && umount /app/there'
try "a bind mount" sh -c 'mount --bind /proc /app/there && umount /app/there'
try "a fresh /proc" sh -c 'mount -t proc none /app/there && umount /app/there'
try "the host's devices" sh -c 'mount -t devtmpfs none /app/there && umount /app/there'
try "a file system of the kernel" sh -c 'mount -t sysfs none /app/there && umount /app/there'
try "a release agent" sh -c 'mount -t cgroup -o memory none /app/there && ls /app/there/release_agent; r=$?; umount /app/there; exit $r'
try "version 2 control groups" sh -c 'mount -t cgroup2 none /app/there && mkdir /app/there/cheat && rmdir /app/there/cheat; r=$?; umount /app/there; exit $r'
try "what /proc masks" umount /proc/kcore
try "a new mount namespace" unshare -m true
try "a new user namespace" unshare -U true
try "both, with a mount" unshare -Urm mount -t tmpfs none /app/there
try "the namespaces of process 1" nsenter -t 1 -m -p true
try "another root" sh -c 'chroot /proc/1/root true'
try "a read-only place written" sh -c 'touch /sys/cheat'
