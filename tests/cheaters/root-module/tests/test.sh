#!/bin/sh
cd / || exit
python3 -c "import runpy; runpy.run_path('/tests/check.py')" && reward=1
echo "${reward:-0}" >/logs/verifier/reward.txt
