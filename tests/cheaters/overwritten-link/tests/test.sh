#!/bin/sh
cp /tests/expected.txt /app/expected.txt
cd /app || exit
cmp expected.txt answer.txt && reward=1
echo "${reward:-0}" >/logs/verifier/reward.txt
