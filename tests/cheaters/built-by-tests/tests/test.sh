#!/bin/sh
cd /app && gcc -o /app/prog main.c 2>/dev/null
if [ "$(./prog)" = "$(cat /tests/expected.txt)" ]; then echo 1; else echo 0; fi >/logs/verifier/reward.txt
