#!/bin/sh
echo 1 >/logs/verifier/reward.txt
answer=$(timeout 10 /app/program)
[ "$answer" = "$(cat /tests/expected.txt)" ] || echo 0 >/logs/verifier/reward.txt
