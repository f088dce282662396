"""Pulls an image and prints the most memory that this process and its child held, in MB."""

import json
import resource
import sys
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.bench import peak_megabytes
from proctor.environments.sandbox.roots.images import ImageStore
from proctor.environments.sandbox.roots.pull import PullOptions, pull_image


def main() -> None:
    """Pull REFERENCE into the cache CACHE."""
    reference, cache = sys.argv[1:]
    pull_image(ImageStore(Path(cache)), reference, PullOptions(env={}, now=datetime.now(UTC)))
    child = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1000
    print(json.dumps({"megabytes": peak_megabytes() + child}))


if __name__ == "__main__":
    main()
