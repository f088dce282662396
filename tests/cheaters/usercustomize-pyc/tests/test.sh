#!/bin/sh
# Python judges, and its exit code decides.
if python3 /tests/judge.py; then echo 1; else echo 0; fi >/logs/verifier/reward.txt
