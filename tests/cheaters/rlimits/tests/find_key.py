"""Exits with 0 if a file below a directory holds the key."""

import sys
from pathlib import Path

files = [path for path in Path(sys.argv[1]).rglob("*") if path.is_file()]
sys.exit(not any(b"answer-is-5f1d7a84c03be692" in path.read_bytes() for path in files))
