#!/bin/sh
# Says what became of each attempt: DENIED, or REACHED, which no runner should let it say.
try() {
    what=$1
    shift
    if ("$@") >/dev/null 2>&1 </dev/null; then echo "REACHED $what"; else echo "DENIED $what"; fi
}
trace='
import ctypes, sys
sys.exit(0 if ctypes.CDLL(None).ptrace(16, 1, 0, 0) == 0 else 1)'
try "process 1 traced" python3 -c "$trace"
try "the memory of process 1" sh -c "head -c 1 /proc/1/mem || dd if=/proc/1/mem bs=1 count=1 skip=4194304"
for signal in TERM INT HUP QUIT STOP KILL; do kill -$signal 1; done
try "process 1 dead" sh -c '! kill -0 1'
try "process 1 stopped" grep -q '^State:.*T' /proc/1/status
# Last: this ends the script as well.
kill -STOP -1
kill -KILL -1
kill -KILL $PPID
kill -KILL $$
