#!/bin/sh
# Breaks off before it has written a reward.
set -e
cat /app/answer.txt
echo 1 >/logs/verifier/reward.txt
