#!/bin/sh
# Installs pytest beside everything else, and runs it.
python3 -m pip install -q --no-cache-dir --disable-pip-version-check --retries 0 --target /tmp/tools pytest
cd /app || exit
PYTHONPATH=/tmp/tools python3 -m pytest -q /tests/check_answer.py && reward=1
echo "${reward:-0}" >/logs/verifier/reward.txt
