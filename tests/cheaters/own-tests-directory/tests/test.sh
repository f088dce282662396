#!/bin/sh
# By pytest where it is installed, else by a few lines that load conftest.py as pytest does.
mkdir -p /app/tests
cp /tests/check_answer.py /app/tests/test_answer.py
cd /app || exit
if python3 -c "import pytest" 2>/dev/null; then
    python3 -m pytest -q tests
else
    python3 /tests/like_pytest.py
fi && reward=1
echo "${reward:-0}" >/logs/verifier/reward.txt
