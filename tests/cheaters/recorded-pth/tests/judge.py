"""Exits with 0 if the answer is right."""

import sys
from pathlib import Path

sys.exit(Path("/app/answer.txt").read_text().strip() != "answer-is-5f1d7a84c03be692")
