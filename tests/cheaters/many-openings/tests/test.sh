#!/bin/sh
answer=$(timeout 50 /app/program /tests/test.sh)
if [ "$answer" = "$(cat /tests/expected.txt)" ]; then echo 1; else echo 0; fi >/logs/verifier/reward.txt
