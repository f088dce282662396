"""Searching a ledger: how fast the index is made from sealed evidence, and how fast it answers.

The traces have the words of a language: a few very common ones, many rare ones, paths and options
among them. The first page with its counts is what a question asks for; each question is asked
several times in a process that has the index open, and the least processor time counts. Beside it,
in turns and on the same connection, FTS5 is asked for the same expression, as many matches and the
texts of the same page: no query to parse, no names of trials, no snippets, no look at the log.
"""

import itertools
import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks.bench import Bench, figure, run_module
from benchmarks.row import Row, share_of
from proctor.ledger.keys import make_key
from proctor.ledger.ledger import OpenLedger
from proctor.ledger.sealing import Submission, seal

_MEGABYTES = 1000
_TRACE_BYTES = 200_000
_MEGABYTES_A_SECOND = 15
_VOCABULARY = 60_000
_PLACE_OF_APT = 400
"""How many words are more common than the one that is searched for with another."""
_SYLLABLE_TEXT = "ba ke to mi ru sha lin por dex ant ver cal ing ed str on pre qua"
_COMMON_TEXT = """the file error test run line import return self value path python install get
def class from data output result of to and in is a for with not on this that"""
_BETWEEN = (*" " * 8, "\n", "/", ".", "_", "-", " = ", "(", ")\n")
QUESTIONS = {
    "rare": "needle7",
    "common": "the",
    "phrase": "apt-get",
    "phrase-common": '"the file"',
    "two": "python install",
    "filtered": "role:tool_call exit:!0 apt-get",
    "model": "model:model-3 error",
    "prefix": "needl*",
    "prefix-common": "str*",
}
"""What is asked; those with "common" in their name are there to be seen, without a bar."""


def search_rows(bench: Bench, *, megabytes: int = _MEGABYTES) -> Iterator[Row]:
    """Making the index, asking it, and its size."""
    directory = load_search_ledger(bench, megabytes)
    made = run_module("searching", "index", str(directory))
    size = figure(made, "megabytes")
    rate = f"{_MEGABYTES_A_SECOND} MB of traces a second"
    # A rate, and so a time: a floor would be handed its rows ready-made, and making them from the
    # evidence is about half of what is measured.
    yield share_of("index", (figure(made, "seconds"), size / _MEGABYTES_A_SECOND), rate, at_most=1)
    yield share_of("index-size", (figure(made, "index"), size), "the traces", unit="MB")
    yield share_of("index-memory", (figure(made, "peak"), size), "the traces", unit="MB")
    asked = run_module("searching", "ask", str(directory))
    for name in QUESTIONS:
        is_bound = not name.startswith("prefix-") and name != "phrase-common"
        figures = figure(asked, name), figure(asked, f"{name}-bare")
        bar = 2 if is_bound else None
        yield share_of(f"search-1gb-{name}", figures, "bare FTS5, same page", at_most=bar)


def load_search_ledger(bench: Bench, megabytes: int) -> Path:
    """A ledger with about that many MB of traces."""

    def fill(place: Path) -> None:
        blocks = [_draw_lines(seed) for seed in range(min(12, megabytes))]
        key = make_key(place / "key", "bench")
        with OpenLedger.create(place / "ledger", key, "bench") as ledger:
            numbers = range(megabytes * 1_000_000 // _TRACE_BYTES)
            for batch in itertools.batched(numbers, 50):
                seal(ledger, [_make_trial(place, number, blocks) for number in batch])
            ledger.refresh()

    return bench.kept(f"search-2-{megabytes}", fill) / "ledger"


def _make_trial(place: Path, number: int, blocks: list[list[str]]) -> Submission:
    root = place / "trials" / f"{number % 50}"
    root.mkdir(parents=True, exist_ok=True)
    lines, size = [_needle(number)], 0
    block = blocks[number % len(blocks)]
    for line in itertools.islice(itertools.cycle(block), number * 101 % len(block), None):
        lines.append(line)
        size += len(line)
        if size >= _TRACE_BYTES:
            break
    (root / "trajectory.jsonl").write_text("".join(lines))
    return Submission(
        record=json.dumps(_record(number)).encode(),
        where=f"trial {number}",
        root=root,
        evidence=("trajectory.jsonl",),
    )


def _needle(number: int) -> str:
    text = f"needle{number % 1000} in a haystack"
    return json.dumps({"role": "user", "step": 0, "content": text}) + "\n"


def _draw_lines(seed: int) -> list[str]:
    draw = random.Random(seed)
    words = _draw_words(random.Random(0))
    weights = list(itertools.accumulate(1 / (at + 3) for at in range(len(words))))

    def text(count: int) -> str:
        drawn = draw.choices(words, cum_weights=weights, k=count)
        return "".join(itertools.chain(*zip(drawn, draw.choices(_BETWEEN, k=count), strict=True)))

    return [
        f"{json.dumps(entry)}\n" for step in range(1, 1001) for entry in _step(draw, text, step)
    ]


def _step(
    draw: random.Random, text: Callable[[int], str], step: int
) -> Iterator[dict[str, object]]:
    yield {"role": "assistant", "step": step, "content": text(60)}
    command = text(15)
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
        "stdout": text(draw.choice((20, 80, 300))),
        "stderr": "",
        "exit_code": draw.choice((0, 0, 0, 1)),
        "duration_ms": draw.randint(1, 90_000),
    }


def _draw_words(draw: random.Random) -> list[str]:
    found = dict.fromkeys(_COMMON_TEXT.split())
    while len(found) < _VOCABULARY:
        word = "".join(draw.choices(_SYLLABLE_TEXT.split(), k=draw.randint(1, 4)))
        found[f"{word}{draw.randint(0, 99)}" if draw.random() < 1 / 3 else word] = None
    words = list(found)
    words.insert(_PLACE_OF_APT, "apt")
    return words


def _record(number: int) -> dict[str, object]:
    return {
        "trial_id": f"trial-{number:06}",
        "experiment_id": f"experiment-{number // 100:03}",
        "timestamp": "2026-11-15T10:00:00Z",
        "task": {"task_id": f"task-{number % 89:02}", "task_revision": "unknown"},
        "agent": {"adapter": "bench", "model": f"model-{number % 7}"},
        "environment": {"runtime_image": "bench", "compute_backend": "none"},
        "inputs": {"instruction": f"Task {number % 89}: make the tests pass."},
        "outputs": {"trajectory_path": "trajectory.jsonl"},
        "evaluation": {
            "reward": float(number % 2),
            "validity": {
                "output_parseable": True,
                "schema_valid": True,
                "verifier_completed": True,
            },
        },
        "timing": {"total_seconds": 1.0},
        "cost": {"tokens_in": 1, "tokens_out": 1},
        "completeness": "partial",
    }
