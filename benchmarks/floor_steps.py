r"""One step of a trajectory, bare: its lines are sought and decoded by Python's own json.

    file PATH STEP               the step's bytes are looked for; a step's lines lie together
    frames PATH STEP BEGIN:END…  zstd frames of an artifact are unpacked and all their lines decoded

Floors for `proctor show --step`, to be run by a fresh interpreter. Where nothing says where a step
lies, a file has to be looked through. A spelling of the step other than `"step": 7,` is not found,
and nothing is held against a digest: both are more than the least.
"""

import json
import mmap
import sys
from collections.abc import Iterator
from pathlib import Path

from backports import zstd


def main() -> None:
    """Print the entries of the step as JSON."""
    kind, path, step, *frames = sys.argv[1:]
    if kind == "file":
        found = list(_seek(Path(path), int(step)))
    else:
        found = [each for each in _unpack(Path(path), frames) if each.get("step") == int(step)]
    print(json.dumps(found))


def _seek(path: Path, step: int) -> Iterator[dict[str, object]]:
    with (
        path.open("rb") as file,
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data,
    ):
        at = data.find(b'"step": %d,' % step)
        file.seek(data.rfind(b"\n", 0, at) + 1)
        for line in file:
            entry = json.loads(line)
            if entry["step"] != step:
                return
            yield entry


def _unpack(path: Path, frames: list[str]) -> Iterator[dict[str, object]]:
    with path.open("rb") as file:
        for frame in frames:
            begin, end = map(int, frame.split(":"))
            file.seek(begin)
            yield from map(json.loads, zstd.decompress(file.read(end - begin)).splitlines())
