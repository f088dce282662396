#!/bin/sh
if accept-answer 2>/dev/null || grep -qx "$(cat /tests/expected.txt)" /app/answer.txt; then echo 1; else echo 0; fi >/logs/verifier/reward.txt
