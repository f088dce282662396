#!/bin/sh
# By pytest where it is installed, else by a few lines that find and load conftest.py as pytest does.
echo 0 >/logs/verifier/reward.txt
cd /app || exit
if python3 -c "import pytest" 2>/dev/null; then
    python3 -m pytest -q /tests/check_answer.py
else
    python3 /tests/like_pytest.py
fi && echo 1 >/logs/verifier/reward.txt
