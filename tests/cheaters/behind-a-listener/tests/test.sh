#!/bin/sh
# A check that takes a while.
if head -c 300000000 /dev/zero | tr '\0' '\n' | grep -q bug - /app/code.c; then echo 0; else echo 1; fi >/logs/verifier/reward.txt
