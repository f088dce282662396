#!/bin/sh
# The test is a C program, compiled here.
if gcc -o /tmp/check /tests/check.c && /tmp/check; then echo 1; else echo 0; fi >/logs/verifier/reward.txt
