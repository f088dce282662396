#!/bin/sh
cd /app || exit
[ "$(sh program.sh)" = "$(cat tests/expected.txt)" ] && reward=1
echo "${reward:-0}" >/logs/verifier/reward.txt
