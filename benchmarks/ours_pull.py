"""Pulls an image and prints the most memory that this process and its child held together, in MB.

Pages that both have, of Python and of our modules, count once (PSS).
"""

import json
import os
import sys
import threading
from datetime import UTC, datetime
from pathlib import Path

from proctor.environments.sandbox.roots.images import ImageStore
from proctor.environments.sandbox.roots.pull import PullOptions, pull_image

_LOOK_SEC = 0.01


def main() -> None:
    """Pull REFERENCE into the cache CACHE."""
    reference, cache = sys.argv[1:]
    done, peak = threading.Event(), [0]

    def watch() -> None:
        while not done.wait(_LOOK_SEC):
            peak[0] = max(peak[0], _find_kilobytes())

    watching = threading.Thread(target=watch)
    watching.start()
    try:
        pull_image(ImageStore(Path(cache)), reference, PullOptions(env={}, now=datetime.now(UTC)))
    finally:
        done.set()
        watching.join()
    print(json.dumps({"megabytes": peak[0] * 1024 / 1e6}))


def _find_kilobytes() -> int:
    """Memory of this process and its children now."""
    own = Path("/proc/self/task").glob("*/children")
    pids = [os.getpid(), *(int(pid) for each in own for pid in _read(each).split())]
    lines = (_read(Path(f"/proc/{pid}/smaps_rollup")).splitlines() for pid in pids)
    return sum(int(line.split()[1]) for each in lines for line in each if line.startswith("Pss:"))


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii")
    except OSError:
        return ""  # it has ended


if __name__ == "__main__":
    main()
