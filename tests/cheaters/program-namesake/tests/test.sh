#!/bin/sh
PATH="$HOME/bin:$PATH"
cmp /tests/expected.txt /app/answer.txt && reward=1
echo "${reward:-0}" >/logs/verifier/reward.txt
