"""A directory as a value: whatever changes in it is seen."""

import os
from pathlib import Path


def load_tree(directory: Path) -> dict[str, bytes]:
    """Every file below with its bytes, every directory with a slash at the end of its name."""
    found: dict[str, bytes] = {}
    for place, names, files in os.walk(directory):
        below = Path(place).relative_to(directory)
        found |= {f"{below / name}/": b"" for name in names}
        found |= {str(below / name): (Path(place) / name).read_bytes() for name in files}
    return found
