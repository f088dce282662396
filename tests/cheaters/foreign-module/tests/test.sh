#!/bin/sh
# Without the installed module there is nothing to test with.
(cd / && python3 -c 'import pip') || { echo 0 >/logs/verifier/reward.txt; exit; }
cp /tests/check.py /app/check.py
cd /app || exit
python3 check.py && reward=1
echo "${reward:-0}" >/logs/verifier/reward.txt
