#!/bin/sh
/app/program; sleep 1
if [ "$(/app/program2)" = "$(cat /tests/expected.txt)" ]; then echo 1; else echo 0; fi >/logs/verifier/reward.txt
