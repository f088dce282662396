"""Every kind of line and file that a reader of trajectories can meet, and the answer to each."""

import json
from pathlib import Path

import pytest

from proctor.errors import TraceError
from proctor.traces.entry import Entry, Header
from proctor.traces.trajectory import Chunk, load_trajectory

HEADER = b'{"version": 1, "format": "aec-bench-trajectory"}\n'
USER = b'{"step": 0, "role": "user", "content": "go"}\n'
ANSWER = b'{"step": 1, "role": "assistant", "content": "done"}\n'
SEED = b"""\
{"version": 1, "format": "aec-bench-trajectory"}
{"step": 0, "role": "system", "content": "You are a senior electrical engineer..."}
{"step": 0, "role": "user", "content": "Calculate voltage drop..."}
{"step": 1, "role": "assistant", "content": "I'll compute R and X contributions..."}
{"step": 1, "role": "tool_call", "tool_name": "python", "command": "python calc.py"}
{"step": 1, "role": "tool_result", "tool_name": "python", "stdout": "V_drop = 5.2V", "exit_code": 0, "duration_ms": 142}
{"step": 2, "role": "assistant", "content": "Writing result to output.jsonl..."}
"""  # noqa: E501


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    return tmp_path / "trajectory.jsonl"


def problems(found: Chunk) -> list[tuple[str, int | None]]:
    return [(seen.code, seen.line) for seen in found.diagnostics if seen.is_problem]


def notes(found: Chunk) -> list[tuple[str, int | None]]:
    return [(seen.code, seen.line) for seen in found.diagnostics if not seen.is_problem]


def steps(found: Chunk) -> list[int]:
    return [entry.step for entry in found.entries]


def test_the_format_s_own_example(trace: Path) -> None:
    trace.write_bytes(SEED)
    found = load_trajectory(str(trace))
    assert found.headers == [Header(1, "aec-bench-trajectory")]
    assert steps(found) == [0, 0, 1, 1, 1, 2]
    assert found.lines == [2, 3, 4, 5, 6, 7]
    assert found.entries[4] == Entry(
        role="tool_result",
        step=1,
        tool_name="python",
        stdout="V_drop = 5.2V",
        exit_code=0,
        duration_ms=142,
    )


@pytest.mark.parametrize(
    "header",
    [
        pytest.param(b"", id="none"),
        pytest.param(HEADER, id="seed"),
        pytest.param(
            b'{"version": 1, "format": "aec-bench-trajectory", '
            b'"timestamp": "2026-11-15T18:51:28.792Z"}\n',
            id="with-timestamp",
        ),
    ],
)
def test_all_generations_of_header(trace: Path, header: bytes) -> None:
    trace.write_bytes(header + USER)
    found = load_trajectory(str(trace), thorough=True)
    assert len(found.headers) == bool(header)
    assert (steps(found), found.diagnostics) == ([0], [])


def test_later_generations_meta_harness_is_kept_as_it_is(trace: Path) -> None:
    lineage = {"kernel_ref": {"id": "k", "version": 2}, "binding_ids": ["a", "b"], "attempt": 1}
    line = {"step": 1, "role": "assistant", "meta_harness": lineage}
    trace.write_text(json.dumps(line) + "\n")
    assert load_trajectory(str(trace)).entries[0].meta_harness == lineage


# What the peer's reader does with each of these is the table this one is held against.


@pytest.mark.parametrize("data", [b"", b"\n", b"\n  \n\t\n", HEADER])
def test_nothing_in_it_is_no_problem(trace: Path, data: bytes) -> None:
    trace.write_bytes(data)
    found = load_trajectory(str(trace), thorough=True)
    assert (found.entries, found.diagnostics) == ([], [])


def test_blank_lines_are_skipped_and_counted(trace: Path) -> None:
    trace.write_bytes(USER + b"\n \n" + ANSWER)
    found = load_trajectory(str(trace))
    assert (steps(found), found.lines) == ([0, 1], [1, 4])


def test_windows_line_ends(trace: Path) -> None:
    trace.write_bytes((HEADER + USER + ANSWER).replace(b"\n", b"\r\n"))
    found = load_trajectory(str(trace), thorough=True)
    assert (steps(found), found.lines, found.diagnostics) == ([0, 1], [2, 3], [])


PROBLEMS = {
    "torn-line": (USER + b'{"step": 1, "role": "assist', [("torn-line", 2)], 1),
    "garbage": (USER + b"Killed\n" + ANSWER, [("garbage", 2)], 2),
    "zeros-after-a-power-cut": (USER + b"\0" * 512 + b"\n" + ANSWER, [("garbage", 2)], 2),
    "unknown-key": (b'{"step": 0, "role": "user", "name": "x"}\n', [("unknown-key", 1)], 1),
    "no-step": (b'{"role": "user"}\n', [("no-step", 1)], 0),
    "no-role": (b'{"step": 1}\n', [("no-role", 1)], 0),
    "negative-step": (b'{"step": -1, "role": "user"}\n', [("wrong-type", 1)], 0),
    "null-step": (b'{"step": null, "role": "user"}\n', [("wrong-type", 1)], 0),
    "list-content": (
        b'{"step": 1, "role": "user", "content": [{"type": "text"}]}\n',
        [("wrong-type", 1)],
        1,
    ),
    "half-an-exit-code": (
        b'{"step": 1, "role": "tool_result", "exit_code": 1.5}\n',
        [("wrong-type", 1)],
        1,
    ),
    "endless-exit-code": (
        b'{"step": 1, "role": "tool_result", "exit_code": Infinity}\n',
        [("not-a-json-number", 1), ("wrong-type", 1)],
        1,
    ),
    "number-line": (b"12\n" + USER, [("not-an-object", 1)], 1),
    "null-line": (b"null\n", [("not-an-object", 1)], 0),
    "array-line": (b"[]\n", [("not-an-object", 1)], 0),
    "string-line": (b'"text"\n', [("not-an-object", 1)], 0),
    "byte-order-mark": (b"\xef\xbb\xbf" + HEADER + USER, [("byte-order-mark", 1)], 1),
    "invalid-utf-8": (
        b'{"step": 0, "role": "user", "content": "\xff"}\n',
        [("invalid-utf-8", 1)],
        1,
    ),
    "raw-nul": (
        b'{"step": 0, "role": "user", "content": "a\x00b"}\n',
        [("control-character", 1)],
        1,
    ),
    "nan": (
        b'{"step": 0, "role": "user", "metadata": {"x": NaN}}\n',
        [("not-a-json-number", 1)],
        1,
    ),
    "half-a-header": (b'{"version": 1}\n', [("unknown-key", 1), ("no-step", 1), ("no-role", 1)], 0),
    "two-on-a-line": (
        USER[:-1] + b" " + ANSWER + b'{"step": 1,\n"role": "user"}\n',
        [("garbage", 1), ("garbage", 2), ("garbage", 3)],
        0,
    ),
    "too-deep": (
        b'{"step": 0, "role": "user", "metadata": {"x": ' + b"[" * 200_000 + b"\n" + USER,
        [("too-deep", 1)],
        1,
    ),
    "a-number-of-5000-digits": (
        b'{"step": ' + b"9" * 5000 + b', "role": "user"}\n',
        [("garbage", 1)],
        0,
    ),
}


@pytest.mark.parametrize("thorough", [False, True])
@pytest.mark.parametrize("name", PROBLEMS)
def test_a_problem_stops_the_strict_and_not_the_salvaging(
    trace: Path, name: str, thorough: bool
) -> None:
    data, expected, kept = PROBLEMS[name]
    trace.write_bytes(data)
    found = load_trajectory(str(trace), salvage=True, thorough=thorough)
    assert problems(found) == expected
    assert len(found.entries) == kept
    line = expected[0][1]
    with pytest.raises(TraceError, match=rf"trajectory\.jsonl:{line}: "):
        load_trajectory(str(trace), thorough=thorough)


def test_what_an_entry_has_no_place_for_is_kept_beside_it(trace: Path) -> None:
    trace.write_bytes(b'{"step": 1, "role": "user", "content": ["a"], "name": {"x": 1}}\n')
    found = load_trajectory(str(trace), salvage=True)
    assert found.entries == [Entry(role="user", step=1)]
    assert found.kept[0].line == 1
    assert found.kept[0].beside == {"content": ["a"], "name": {"x": 1}}


def test_a_line_that_is_no_entry_is_kept_whole(trace: Path) -> None:
    trace.write_bytes(b'{"role": "user", "content": "lost?"}\n')
    found = load_trajectory(str(trace), salvage=True)
    assert found.kept[0].beside == {"role": "user", "content": "lost?"}


def test_a_second_key_of_the_same_name_wins_and_the_first_is_kept(trace: Path) -> None:
    trace.write_bytes(
        b'{"step": 1, "role": "user", "metadata": {"a": 1, "a": 2}, "role": "assistant"}\n'
    )
    assert load_trajectory(str(trace)).entries[0].role == "assistant"
    found = load_trajectory(str(trace), salvage=True, thorough=True)
    assert problems(found) == [("duplicate-key", 1)]
    assert found.entries[0].metadata == {"a": 2}
    assert found.kept[0].shadowed == (("a", 1), ("role", "user"))
    with pytest.raises(TraceError, match="more than once; the last one counts"):
        load_trajectory(str(trace), thorough=True)


def test_what_the_format_frowns_on_is_noted_and_read(trace: Path) -> None:
    trace.write_bytes(
        b'{"step": "2", "role": "tool_result", "exit_code": true, "duration_ms": 12.0}\n'
        b'{"step": 1, "role": "narrator"}\n'
        b'{"step": 1, "role": ""}'
    )
    assert steps(load_trajectory(str(trace))) == [2, 1, 1]
    found = load_trajectory(str(trace), thorough=True)
    assert found.entries[0] == Entry(role="tool_result", step=2, exit_code=1, duration_ms=12)
    assert notes(found) == [
        *[("coerced", 1)] * 3,
        ("unknown-role", 2),
        ("decreasing-step", 2),
        ("no-line-end", 3),
        ("unknown-role", 3),
    ]


@pytest.mark.parametrize("version", ['"1"', "2", "true", "null"])
def test_another_version_is_read_with_a_note(trace: Path, version: str) -> None:
    trace.write_bytes(f'{{"version": {version}, "format": "x"}}\n'.encode() + USER)
    found = load_trajectory(str(trace), thorough=True)
    assert (steps(found), notes(found)) == ([0], [("other-version", 1)])


def test_headers_further_down_are_skipped_with_a_note(trace: Path) -> None:
    trace.write_bytes(USER + HEADER + HEADER + ANSWER)
    found = load_trajectory(str(trace), thorough=True)
    assert (steps(found), len(found.headers)) == ([0, 1], 2)
    assert notes(found) == [("late-header", 2), ("header-again", 3)]


def test_an_entry_that_looks_like_a_header_is_not_dropped(trace: Path) -> None:
    trace.write_bytes(b'{"step": 3, "role": "user", "version": 1, "format": "x"}\n')
    found = load_trajectory(str(trace), salvage=True)
    assert (steps(found), problems(found)) == ([3], [("unknown-key", 1)])


@pytest.mark.parametrize("separator", ["\u2028", "\u2029", "\u0085"])
def test_separators_inside_a_string_are_text(trace: Path, separator: str) -> None:
    text = f"a{separator}b"
    line = json.dumps({"step": 0, "role": "user", "content": text}, ensure_ascii=False)
    trace.write_text(line + "\n", encoding="utf-8", newline="")
    for thorough in (False, True):
        assert load_trajectory(str(trace), thorough=thorough).entries[0].content == text


def test_half_a_surrogate_pair_can_be_written_again(trace: Path) -> None:
    trace.write_bytes(
        b'{"step": 0, "role": "user", "content": "\\ud83d", "metadata": {"\\udc00":1}}\n'
    )
    found = load_trajectory(str(trace), thorough=True)
    assert found.entries[0].content == "\ufffd"
    assert found.entries[0].metadata == {"\ufffd": 1}
    assert notes(found) == [("half-character", 1)]


def test_a_whole_surrogate_pair_is_one_character(trace: Path) -> None:
    trace.write_bytes(b'{"step": 0, "role": "user", "content": "\\ud83d\\ude00", "x": 1}\n')
    found = load_trajectory(str(trace), salvage=True, thorough=True)
    assert (found.entries[0].content, notes(found)) == ("\U0001f600", [])


def test_one_bad_line_costs_no_other(trace: Path) -> None:
    rows = [json.dumps({"step": number, "role": "user"}) for number in range(60_000)]
    rows[31_337] = '{"step": 1, '
    trace.write_text("\n".join(rows) + "\n")
    found = load_trajectory(str(trace), salvage=True)
    assert problems(found) == [("garbage", 31_338)]
    assert len(found.entries) == 59_999
    assert 31_338 not in found.lines
