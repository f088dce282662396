#!/bin/sh
# The key must not be found in any file.
if python3 /tests/find_key.py /app; then echo 0; else echo 1; fi >/logs/verifier/reward.txt
