#!/bin/sh
# Says what became of each attempt: DENIED, or REACHED, which no runner should let it say.
try() {
    what=$1
    shift
    if ("$@") >/dev/null 2>&1 </dev/null; then echo "REACHED $what"; else echo "DENIED $what"; fi
}
same() { value=$(cat "$1") && echo "$value" >"$1"; }
for setting in kernel/core_pattern kernel/modprobe kernel/hostname vm/overcommit_memory fs/file-max; do
    try "/proc/sys/$setting" same "/proc/sys/$setting"
done
try "another root by process 1" sh -c '[ -e /proc/1/root/ ] && ! [ /proc/1/root/ -ef / ]'
try "a file of the host" sh -c 'for p in /proc/[0-9]*; do [ -e "$p/root${CHEATER_CANARY:-/no/such}" ] && exit 0; [ -e "$p/cwd${CHEATER_CANARY:-/no/such}" ] && exit 0; done; exit 1'
try "/proc/sysrq-trigger" sh -c 'echo h >/proc/sysrq-trigger'
try "/proc/kcore" sh -c '[ "$(head -c 4 /proc/kcore | wc -c)" = 4 ]'
try "/proc/kmsg" sh -c '[ "$(timeout 1 head -c 4 /proc/kmsg | wc -c)" = 4 ]'
try "the mode of /proc/meminfo" chmod 0444 /proc/meminfo
try "the host's processes" sh -c 'grep -lsa kthreadd /proc/[0-9]*/comm | grep -q .'
