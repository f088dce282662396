"""Traces to sum up and classify, like those of real runs: drawn from seeds, written once, kept.

Each file is drawn of its own, so that nothing which is remembered from one can answer for all the
others: an instruction, then turns of what the agent says, one command and what it printed. A
quarter of the commands were given before in the same run, a quarter write files, a quarter fail;
what is said is plain English, most of it with words that the rules listen to. An entry has about
400 bytes, and a time of its own; 20 KB are about 50 entries.
"""

import json
import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

from benchmarks.bench import Bench

_SAID = """\
Let me look at the structure of the project before I change anything.
The tests fail because the parser drops the last line of every file.
I will write the corrected version and run the whole suite again.
Now I should verify that the output matches what the task asks for.
The function returns too early, so the total is never added up.
There are two ways to do this; the second needs no further package.
That is not what I expected: the value is larger than the limit.
Next I read the configuration and see which of the paths are used.
Done: the report was written, and its numbers agree with the table.
Perhaps the naïve approach is fast enough for files of this size.
First the data has to be loaded, then every row gets its own key.
The build passes; only the second check of the validation is left."""
_COMMANDS = (
    "ls -la {name}",
    "cat src/{name}.py",
    "python -m pytest -q tests/test_{name}.py",
    "grep -rn 'def {name}' src | head -{number}",
    "git diff --stat",
    "make",
    "cd /app && python {name}.py --limit {number} 2>&1 | tail -40",
    "cat > src/{name}.py <<'EOF'\nif value > {number}:\n    print('too large')\nEOF",
    "sed -i 's/limit = 10/limit = {number}/' src/{name}.py && git status",
    'echo "{name}: {number}" >> output.md',
    "curl -s http://localhost:8000/{name}?page={number}",
    "sed -n '1,{number}p' src/{name}.py",
)
_NAMES = ("main", "parser", "reader", "table", "limits", "report", "check_all", "loader", "model")
_PRINTED = """\
-rw-r--r-- 1 root root     4096 Nov 15 18:51 src/main.py
src/main.py:12: value = read_table(path)['key']  # done
tests/test_main.py ............................... [ 62%]
total size: 4096 bytes in 12 files, 3 of them déjà vu
AssertionError: expected 12 rows, found 11 in the last part"""
_LINES = (0, 1, 2, 4, 6, 12, 24)
"""Lines of what a tool prints."""
_BEGAN = datetime(2026, 11, 15, 18, tzinfo=UTC)


def load_drawn_traces(bench: Bench, count: int, size: int) -> Path:
    """A directory of as many trajectories of about `size` bytes each."""

    def fill(directory: Path) -> None:
        for number in range(count):
            text = _draw_trace(random.Random(number), size)
            (directory / f"{number:05}.jsonl").write_text(text, encoding="utf-8")

    return bench.kept(f"inspect-3-{count}-{size}", fill)


def _draw_trace(draw: random.Random, size: int) -> str:
    lines: list[str] = []
    length, now = 0, _BEGAN
    for entry in _draw_entries(draw):
        now += timedelta(milliseconds=draw.randint(1, 9000))
        stamp = now.isoformat(timespec="milliseconds").replace("+00:00", "Z")
        lines.append(json.dumps({**entry, "timestamp": stamp}, ensure_ascii=False) + "\n")
        length += len(lines[-1])
        if length >= size:
            break
    return "".join(lines)


def _draw_entries(draw: random.Random) -> Iterator[dict[str, object]]:
    """An instruction, and turns without end."""
    yield {"role": "user", "step": 0, "content": _draw_text(draw, _SAID, 10)}
    given: list[str] = []
    step = 0
    while True:
        step += 1
        yield {
            "role": "assistant",
            "step": step,
            "content": _draw_text(draw, _SAID, draw.randint(1, 7)),
        }
        is_repeated = bool(given) and draw.random() < 1 / 4
        given.append(draw.choice(given) if is_repeated else _draw_command(draw))
        yield from _draw_call(draw, step, given[-1])


def _draw_command(draw: random.Random) -> str:
    name = draw.choice(_NAMES)
    return draw.choice(_COMMANDS).format(name=name, number=draw.randint(1, 999))


def _draw_call(draw: random.Random, step: int, command: str) -> Iterator[dict[str, object]]:
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
        "stdout": _draw_text(draw, _PRINTED, draw.choice(_LINES)),
        "stderr": "",
        "exit_code": draw.choice((0, 0, 0, 1)),
        "duration_ms": draw.randint(1, 9000),
        "metadata": {"tokens": {"call_input": draw.randint(1, 9999), "grand_total": 123456}},
    }


def _draw_text(draw: random.Random, lines: str, count: int) -> str:
    return "\n".join(draw.choices(lines.split("\n"), k=count))
