#!/bin/sh
cd /app
if [ "$(/usr/bin/python3 -m prog)" = "$(cat /tests/expected.txt)" ]; then echo 1; else echo 0; fi >/logs/verifier/reward.txt
