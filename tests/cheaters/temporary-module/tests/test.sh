#!/bin/sh
cp /tests/check.py /tmp/check.py
python3 /tmp/check.py && reward=1
echo "${reward:-0}" >/logs/verifier/reward.txt
