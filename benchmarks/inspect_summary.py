"""Summing traces up beside reading them: 10,000 files, one process each way.

    python -m benchmarks.inspect_summary read|summarise DIRECTORY

The lines are like those of a real run: every entry has a time of its own, some commands write
files, some fail, some are repeated, and what tools print is short as a rule and long at times; an
entry has about 1 KB. Both ways have to come to the same number of entries.
"""

import gc
import json
import random
import sys
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

from benchmarks.bench import Bench, check_same, figure, run_module
from benchmarks.row import Row, share_of
from proctor.inspection.reading import summarise_file
from proctor.trajectory.read import read_chunks
from proctor.trajectory.trace import TraceKind

_TEXT = """\
the file was read and its lines were counted again; total size: 4096 bytes, 12 matches in
\tsrc/main.py naïve déjà vu next_line = value['key'] # done"""
_WORDS = _TEXT.split(" ")
_COMMANDS = (
    *("ls -la", "python -m pytest -q tests", "git diff", "make"),
    "cat > src/main.py <<'EOF'\nif value > limit:\n    print('too large')\nEOF",
    "grep -rn 'def main' src | head -20 > /tmp/found.txt",
)
_OUTPUTS = (5, 20, 60, 150, 300, 500, 1000)
"""Words of what a tool prints."""
_BEGAN = datetime(2026, 11, 15, 18, tzinfo=UTC)


def summary_rows(
    bench: Bench, *, files: int = 10_000, size: int = 20_000, rounds: int = 3
) -> Iterator[Row]:
    """The row, with its bar."""
    directory = _load_traces(bench, files, size)
    entries: dict[str, object] = {}

    def seconds(way: str) -> float:
        answer = run_module("inspect_summary", way, str(directory))
        entries[way] = answer["entries"]
        return figure(answer, "seconds")

    least = bench.least(lambda: seconds("summarise"), lambda: seconds("read"), rounds=rounds)
    check_same(f"{directory}: entries", entries["summarise"], entries["read"])
    yield share_of("summarise-10k", least, "reading the same files", at_most=3)


def _load_traces(bench: Bench, count: int, size: int) -> Path:
    directory = bench.data / f"inspect-2-{count}-{size}"
    finished = directory / "finished"
    if not finished.exists():
        directory.mkdir(parents=True, exist_ok=True)
        traces = [_draw_trace(seed, size) for seed in range(16)]
        for number in range(count):
            (directory / f"{number:05}.jsonl").write_text(traces[number % 16], encoding="utf-8")
        finished.touch()
    return directory


def _draw_trace(seed: int, size: int) -> str:
    draw, lines, length, step = random.Random(seed), [], 0, 0
    now = _BEGAN
    while length < size:
        step += 1
        for entry in _draw_step(draw, step):
            now += timedelta(milliseconds=draw.randint(1, 9000))
            stamp = now.isoformat(timespec="milliseconds").replace("+00:00", "Z")
            line = json.dumps({**entry, "timestamp": stamp}, ensure_ascii=False) + "\n"
            lines.append(line)
            length += len(line.encode())
    return "".join(lines)


def _draw_step(draw: random.Random, step: int) -> Iterator[dict[str, object]]:
    def text(words: int) -> str:
        return " ".join(draw.choices(_WORDS, k=words))

    command = draw.choice([*_COMMANDS, f"echo {text(20)}", f"python run.py {text(30)}"])
    yield {"role": "assistant", "step": step, "content": text(90)}
    yield {
        "role": "tool_call",
        "step": step,
        "tool_name": "bash",
        "command": command,
        "arguments": {"command": command, "timeout": draw.randint(1, 600)},
    }
    yield {
        "role": "tool_result",
        "step": step,
        "tool_name": "bash",
        "stdout": text(draw.choice(_OUTPUTS)),
        "stderr": "",
        "exit_code": draw.choice((0, 0, 0, 1)),
        "duration_ms": draw.randint(1, 9000),
        "metadata": {"tokens": {"call_input": draw.randint(1, 9999), "grand_total": 123456}},
    }


def _count(path: str) -> int:
    return sum(len(chunk.entries) for chunk in read_chunks(path, salvage=True))


def _summarise(path: str) -> int:
    return summarise_file(path, TraceKind.TRAJECTORY).messages


_WAYS: dict[str, Callable[[str], int]] = {"read": _count, "summarise": _summarise}


def main(way: str, directory: str) -> None:
    """Go through every trace of a directory and print entries and seconds."""
    paths = [str(path) for path in sorted(Path(directory).glob("*.jsonl"))]
    gc.collect()
    start = time.perf_counter()
    entries = sum(map(_WAYS[way], paths))
    print(json.dumps({"entries": entries, "seconds": time.perf_counter() - start}))


if __name__ == "__main__":
    main(*sys.argv[1:])
