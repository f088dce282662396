#!/bin/sh
cd /app
if [ "$(/lib64/ld-linux-x86-64.so.2 /app/prog)" = "$(cat /tests/expected.txt)" ]; then echo 1; else echo 0; fi >/logs/verifier/reward.txt
