#!/bin/sh
cd /app
if [ "$(awk -f /app/prog.awk)" = "$(cat /tests/expected.txt)" ]; then echo 1; else echo 0; fi >/logs/verifier/reward.txt
