#!/bin/sh
cd /app || exit
gcc -Iinclude /tests/check.c answer.c -o /tmp/check && /tmp/check && reward=1
echo "${reward:-0}" >/logs/verifier/reward.txt
