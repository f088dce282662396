#!/bin/sh
cp /tests/check.py /app/check.py
cd /app || exit
python3 check.py && reward=1
echo "${reward:-0}" >/logs/verifier/reward.txt
