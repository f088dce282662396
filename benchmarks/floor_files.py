"""Keeping the files of a job, bare: read, hashed, written once for each content, synced.

A floor for `proctor import harbor`, to be run by a fresh interpreter: JOB TARGET. It syncs as the
ledger does, many files at once, and keeps no record of what was whose.
"""

import hashlib
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

_AT_ONCE = 16


def main() -> None:
    """Copy every file below the job's trials into the target, named by its SHA-256."""
    job, target = map(Path, sys.argv[1:])
    target.mkdir()
    kept: set[Path] = set()
    for source in job.glob("*/**/*"):
        if source.is_file():
            data = source.read_bytes()
            path = target / hashlib.sha256(data).hexdigest()
            if path not in kept:
                path.write_bytes(data)
                kept.add(path)
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        list(pool.map(_sync, [*kept, target]))


def _sync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    os.fsync(fd)
    os.close(fd)
