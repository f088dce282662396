#!/bin/sh
cd /app
if [ "$(/usr/bin/python3 -u /app/prog.py)" = "$(cat /tests/expected.txt)" ]; then echo 1; else echo 0; fi >/logs/verifier/reward.txt
