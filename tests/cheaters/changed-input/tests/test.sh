#!/bin/sh
cd /app || exit
[ "$(wc -l <input.csv)" = "$(cat count.txt)" ] && reward=1
echo "${reward:-0}" >/logs/verifier/reward.txt
