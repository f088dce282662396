#!/bin/sh
cd /app || exit
for case in cases/*.txt; do
    if [ -e "$case" ] && ! sh program.sh "$case"; then failed=1; fi
done
[ -z "$failed" ] && reward=1
echo "${reward:-0}" >/logs/verifier/reward.txt
