#!/bin/sh
# Each waits for ever at a pipe that nobody writes to. The shell ends when it is refused one more.
mkfifo /tmp/pipe
sh -c 'n=0; while [ $n -lt 10000 ]; do (: </tmp/pipe) & n=$((n + 1)); done; echo "REACHED 10000 processes"' \
    2>/dev/null || echo "DENIED 10000 processes"
