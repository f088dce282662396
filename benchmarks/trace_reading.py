"""Ways to read trajectories, each in a process of its own; prints what it took as one JSON object.

    python -m benchmarks.trace_reading ours|bare|peer DIRECTORY

`bare` is what any reader that decodes every line into a struct has to do: no header, no line
numbers, no check that a line is one object. `peer` has the shape of the format's own reader: text,
Unicode lines, json, a pydantic model that forbids unknown keys.
"""

import gc
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
from pydantic import BaseModel, ConfigDict, Field

from benchmarks.bench import peak_megabytes
from proctor.traces.entry import Entry
from proctor.traces.trajectory import read_chunks

_PIECE = 1 << 20
_DECODER = msgspec.json.Decoder(Entry)


def count_ours(path: str) -> int:
    """Entries, by proctor's reader."""
    return sum(len(chunk.entries) for chunk in read_chunks(path))


def count_bare(path: str) -> int:
    """Entries, by nothing but the decoder."""
    entries = 0
    with Path(path).open("rb") as file:
        file.readline()
        rest = b""
        while data := file.read(_PIECE):
            data = rest + data
            end = data.rfind(b"\n") + 1
            entries += len(_DECODER.decode_lines(data[:end]))
            rest = data[end:]
    return entries


class PeerEntry(BaseModel):
    """A line as a pydantic model with the format's keys."""

    model_config = ConfigDict(extra="forbid")

    step: int = Field(ge=0)
    role: str
    content: str | None = None
    tool_name: str | None = None
    command: str | None = None
    arguments: dict[str, Any] | None = None
    stdout: str | None = None
    stderr: str | None = None
    exit_code: int | None = None
    duration_ms: int | None = None
    media: list[str] | None = None
    metadata: dict[str, Any] | None = None
    call_type: str | None = None
    output_summary: str | None = None
    timestamp: str | None = None


def read_as_peer(path: Path) -> list[PeerEntry]:
    """The way the format's own reader is built: the whole file, then all of its lines."""
    entries = []
    for line in path.read_text(encoding="utf-8").splitlines():
        text = line.strip()
        if not text:
            continue
        value = json.loads(text)
        if "version" in value and "format" in value:
            continue
        entries.append(PeerEntry.model_validate(value))
    return entries


def count_peer(path: str) -> int:
    """Entries, the peer's way."""
    return len(read_as_peer(Path(path)))


WAYS: dict[str, Callable[[str], int]] = {
    "ours": count_ours,
    "bare": count_bare,
    "peer": count_peer,
}


def main(way: str, directory: str) -> None:
    """Read every trajectory of a directory and print entries, seconds and megabytes."""
    paths = [str(path) for path in sorted(Path(directory).glob("*.jsonl"))]
    gc.collect()
    start = time.perf_counter()
    entries = sum(map(WAYS[way], paths))
    seconds = time.perf_counter() - start
    answer = {"entries": entries, "seconds": seconds, "megabytes": peak_megabytes()}
    print(json.dumps(answer))


if __name__ == "__main__":
    main(*sys.argv[1:])
