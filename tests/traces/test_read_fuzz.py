"""Readers under fire: no crash, no hang, and what salvage gives is what the file says.

The short version runs with the suite; the long one is a million mutated files.
"""

import json
import random
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proctor.errors import TraceError
from proctor.traces.trajectory import Chunk, load_trajectory
from tests.examples import examples

SEEDS = (
    b"""\
{"version": 1, "format": "aec-bench-trajectory"}
{"step": 0, "role": "user", "content": "a\xe2\x80\xa8b \\ud83d\\ude00"}
{"step": 1, "role": "tool_call", "tool_name": "bash", "command": "ls", "arguments": {"a": [1.5]}}
{"step": 1, "role": "tool_result", "stdout": "x", "stderr": "", "exit_code": -1, "duration_ms": 3}
{"step": 2, "role": "assistant", "media": ["a.png"], "metadata": {"tokens": {"in": 1}}}
""",
    b'{"step":1,"role":"user"}\r\n\n{"step":"2","role":"x","meta_harness":{"attempt":1}}\n{"ste',
)
SPLINTERS = [
    *(bytes([byte]) for byte in b'\n\r\0"{}[]:,\\ \t\xff'),
    *(b"\\u", b"\\ud800", b"NaN", b"1e999", b"-0", b"null", b"true", b"9" * 40),
    *(b"\xef\xbb\xbf", b"\xe2\x80\xa8", b'"step":', b'"role":"a"', b'"version":1,"format":2,'),
]


def mutate(draw: random.Random) -> bytes:
    data = bytearray(draw.choice(SEEDS))
    for _ in range(draw.randint(1, 6)):
        at = draw.randint(0, len(data))
        match draw.randint(0, 4):
            case 0:
                data[at:at] = draw.choice(SPLINTERS)
            case 1:
                del data[at : at + draw.randint(1, 20)]
            case 2 if at < len(data):
                data[at] = draw.randint(0, 255)
            case 3:
                data[at:at] = data[at : at + draw.randint(1, 60)]
            case _:
                data = data[:at]
    return bytes(data)


def read_all_ways(path: Path) -> None:
    """Both tempers, both paces: they agree with each other and with the standard library."""
    fast = load_trajectory(str(path), salvage=True)
    slow = load_trajectory(str(path), salvage=True, thorough=True)
    assert fast.entries == slow.entries
    assert fast.lines == slow.lines
    assert len(fast.headers) == len(slow.headers)
    seen = [found for found in slow.diagnostics if found.is_problem]
    unseen = [found for found in seen if found.code != "duplicate-key"]
    assert [found for found in fast.diagnostics if found.is_problem] == unseen
    for thorough, expected in ((False, unseen), (True, seen)):
        if expected:
            with pytest.raises(TraceError, match=re.escape(expected[0].message)):
                load_trajectory(str(path), thorough=thorough)
        else:
            assert load_trajectory(str(path), thorough=thorough).entries == fast.entries
    check_against_the_standard_library(path.read_bytes(), slow)


def check_against_the_standard_library(data: bytes, found: Chunk) -> None:
    """Every line that plain json takes as an object with a step and a role is an entry."""
    numbers = set(found.lines)
    for number, line in enumerate(data.split(b"\n"), 1):
        try:
            value = json.loads(line.decode())
        except (ValueError, RecursionError):
            continue
        if isinstance(value, dict) and type(value.get("step")) is int and value["step"] >= 0:
            assert (number in numbers) == isinstance(value.get("role"), str)


def run(path: Path, seed: int, count: int) -> None:
    draw = random.Random(seed)
    for _ in range(count):
        path.write_bytes(mutate(draw))
        read_all_ways(path)


@pytest.mark.parametrize("seed", range(4))
def test_two_thousand_mutated_files(tmp_path: Path, seed: int) -> None:
    run(tmp_path / "trajectory.jsonl", seed, 500)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(100, 116))
def test_a_million_mutated_files(tmp_path: Path, seed: int) -> None:
    run(tmp_path / "trajectory.jsonl", seed, 65_000)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)
_KEYS = st.sampled_from(["step", "role", "content", "media", "metadata", "exit_code", "x"])
_LINES = st.dictionaries(_KEYS, _JSON, max_size=6).map(json.dumps) | st.text(max_size=20)


@settings(max_examples=examples(150))
@given(lines=st.lists(_LINES, max_size=6), end=st.sampled_from(["", "\n", "\r\n"]))
def test_generated_lines(
    lines: list[str], end: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("fuzz") / "trajectory.jsonl"
    path.write_bytes(("\n".join(lines) + end).encode(errors="surrogatepass"))
    read_all_ways(path)
