#!/bin/sh
git config --global --add safe.directory /app
cd /app || exit
[ "$(cat data.txt)" = 2 ] && git rev-parse -q HEAD && [ -z "$(git diff HEAD)" ] && reward=1
echo "${reward:-0}" >/logs/verifier/reward.txt
