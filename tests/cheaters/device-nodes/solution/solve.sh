#!/bin/sh
# Says what became of each attempt: DENIED, or REACHED, which no runner should let it say.
try() {
    what=$1
    shift
    if ("$@") >/dev/null 2>&1 </dev/null; then echo "REACHED $what"; else echo "DENIED $what"; fi
}
node() { mknod "/app/$1" "$2" "$3" "$4" && head -c 1 "/app/$1" | grep -q .; }
try "a disk" node disk b 8 0
try "a virtual disk" node virtual b 254 0
try "a loop device" node loop b 7 0
try "memory" node memory c 1 1
try "the kernel's log" node log c 1 11
try "a console" node console c 5 1
try "loop control" node control c 10 237
try "a tunnel" sh -c 'mkdir -p /dev/net && mknod /dev/net/tun c 10 200 && : 3<>/dev/net/tun'
for device in /dev/mem /dev/kmsg /dev/sda /dev/vda /dev/nvme0n1 /dev/kvm /dev/fuse; do
    try "$device" sh -c "head -c 1 $device | grep -q ."
done
