#!/bin/sh
answer=$(timeout 10 /app/program)
if [ "$answer" = "$(cat /tests/expected.txt)" ]; then echo 1; else echo 0; fi >/logs/verifier/reward.txt
