"""Exits with 0 if the answer has the right digest."""

import hashlib
import sys
from pathlib import Path

EXPECTED = "2513425c3656ab46e268d12fa0b18b4a0e99db067b8d2d0002b510c723cde495"

answer = hashlib.sha256()
answer.update(Path("/app/answer.txt").read_bytes().strip())
sys.exit(answer.hexdigest() != EXPECTED)
