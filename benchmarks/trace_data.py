"""Trajectories to read: drawn from a seed, written once, kept from run to run."""

import json
import random
from collections.abc import Iterator
from pathlib import Path

from benchmarks.bench import Bench

_HEADER = '{"version": 1, "format": "aec-bench-trajectory"}\n'
_TEXT = """\
the file was read and its lines were counted again; total size: 4096 bytes, 12 matches in
\tsrc/main.py naïve déjà vu next_line = value['key'] # done"""
_WORDS = _TEXT.split(" ")
_WHEN = "2026-11-15T18:51:28.792Z"


def load_trace_file(bench: Bench, megabytes: int) -> Path:
    """One trajectory of about that many MB, about 600 bytes a line."""
    return load_trace_files(bench, 1, megabytes * 1_000_000)[0]


def load_trace_files(bench: Bench, count: int, size: int) -> list[Path]:
    """As many trajectories of about `size` bytes each."""

    def fill(directory: Path) -> None:
        blocks = [_draw_block(seed) for seed in range(8)]
        for number in range(count):
            _write(directory / f"{number:05}.jsonl", blocks[number % len(blocks)], size)

    return sorted(bench.kept(f"traces-1-{count}-{size}", fill).glob("*.jsonl"))


def load_rising_trace(bench: Bench, megabytes: int) -> tuple[Path, int]:
    """One trajectory of about that many MB whose steps only rise, and its last step."""

    def fill(directory: Path) -> None:
        last = _write_rising(directory / "trajectory.jsonl", megabytes * 1_000_000)
        (directory / "last").write_text(str(last), encoding="ascii")

    directory = bench.kept(f"rising-1-{megabytes}", fill)
    return directory / "trajectory.jsonl", int((directory / "last").read_text(encoding="ascii"))


def _write_rising(path: Path, size: int) -> int:
    block = _draw_block(0)
    number, written = 0, 0
    with path.open("w", encoding="utf-8", newline="") as file:
        file.write(_HEADER)
        while written < size:
            for line in block:
                step = int(line.partition('"step": ')[2].partition(",")[0])
                told = line.replace(f'"step": {step},', f'"step": {number + step},', 1)
                written += file.write(told)
            number += 1000
    return number


def _write(path: Path, block: list[str], size: int) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        file.write(_HEADER)
        written, at = 0, 0
        while written < size:
            line = block[at % len(block)]
            file.write(line)
            written += len(line.encode())
            at += 1


def _draw_block(seed: int) -> list[str]:
    """A thousand steps of lines, used over again: what counts is their size and shape."""
    draw = random.Random(seed)
    steps = (_draw_step(draw, step) for step in range(1, 1001))
    return [f"{json.dumps(entry, ensure_ascii=False)}\n" for step in steps for entry in step]


def _draw_step(draw: random.Random, step: int) -> Iterator[dict[str, object]]:
    def text(words: int) -> str:
        return " ".join(draw.choices(_WORDS, k=words))

    yield {"role": "assistant", "step": step, "content": text(70), "timestamp": _WHEN}
    yield {
        "role": "tool_call",
        "step": step,
        "tool_name": "bash",
        "command": text(32),
        "arguments": {"command": text(32), "timeout": draw.randint(1, 600)},
        "timestamp": _WHEN,
    }
    yield {
        "role": "tool_result",
        "step": step,
        "tool_name": "bash",
        "stdout": text(90),
        "stderr": "",
        "exit_code": draw.choice((0, 0, 0, 1)),
        "duration_ms": draw.randint(1, 90_000),
        "metadata": {"tokens": {"call_input": draw.randint(1, 9999), "grand_total": 123456}},
        "timestamp": _WHEN,
    }
