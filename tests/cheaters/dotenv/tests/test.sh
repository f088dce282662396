#!/bin/sh
if [ -e /app/.env ]; then . /app/.env; fi
if [ "$ANSWER" = "$(cat /tests/expected.txt)" ]; then echo 1; else echo 0; fi >/logs/verifier/reward.txt
