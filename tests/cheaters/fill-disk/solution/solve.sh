#!/bin/sh
# Says what became of each attempt: DENIED, or REACHED, which no runner should let it say.
try() {
    what=$1
    shift
    if ("$@") >/dev/null 2>&1 </dev/null; then echo "REACHED $what"; else echo "DENIED $what"; fi
}
said=$(for place in /app /logs/agent /tmp /dev/shm; do
    try "10 GB in $place" sh -c "head -c 10000000000 /dev/zero >$place/fill"
done)
# It needs room for its own words; the rest stays.
truncate -s -1M /app/fill
echo "$said"
