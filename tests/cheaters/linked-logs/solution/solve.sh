#!/bin/sh
# Says what became of each attempt: DENIED, or REACHED, which no runner should let it say.
try() {
    what=$1
    shift
    if ("$@") >/dev/null 2>&1 </dev/null; then echo "REACHED $what"; else echo "DENIED $what"; fi
}
mkdir -p /app/mine
echo 1 >/app/mine/reward.txt
for place in /logs/verifier /tests; do
    try "$place replaced by a link" sh -c "rm -rf $place && ln -s /app/mine $place"
    try "$place moved away" mv "$place" "$place.gone"
done
for place in /logs/agent /logs/artifacts; do
    ln -s /etc/shadow "$place/shadow"
    ln -s ../../../../../../../../etc/hostname "$place/hostname"
    ln -s / "$place/root"
    ln -s /proc/1/environ "$place/environ"
done
