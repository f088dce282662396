#!/bin/sh
cd /app
if [ "$(perl /app/prog.pl)" = "$(cat /tests/expected.txt)" ]; then echo 1; else echo 0; fi >/logs/verifier/reward.txt
