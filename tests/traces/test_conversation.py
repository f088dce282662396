"""Every kind of line and file that a reader of conversations can meet, and the answer to each."""

import json
import os
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.diagnostic import Diagnostic
from proctor.errors import TraceError
from proctor.traces.conversation import Conversation, load_conversation, read_turns
from proctor.traces.turn import Turn
from tests.unprivileged import unprivileged

DATA = Path(__file__).parent.parent / "data" / "conversations"
USER = b'{"role": "user", "content": "go"}\n'
DONE = b'{"role": "assistant", "content": "done"}\n'
CASES = [json.loads(line) for line in (DATA / "aec-bench.jsonl").read_text().splitlines()]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "conversation.jsonl"


def load(file: Path, data: bytes, *, salvage: bool = False) -> Conversation:
    file.write_bytes(data)
    return load_conversation(str(file), salvage=salvage)


def texts(found: Conversation) -> list[str]:
    return [turn.text for turn in found.turns]


def noticed(found: Conversation) -> list[tuple[str, int | None, bool]]:
    return [(seen.code, seen.line, seen.is_problem) for seen in found.diagnostics]


# Whole files


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_what_aec_bench_loads_is_loaded(file: Path, case: dict[str, Any]) -> None:
    data = case["text"].encode()
    if case["error"] is not None:
        with pytest.raises(TraceError):
            load(file, data)
        found = load(file, data, salvage=True)
        assert (len(found.turns), noticed(found)) == (1, [("garbage", 2, True)])
        return
    found = load(file, data)
    assert found.diagnostics == ()
    assert len(found.turns) == case["text"].count("\n")
    assert case["messages"] in (None, len(found.turns))


@pytest.mark.parametrize("data", [b"", b"\n", b" \r\n\t\n\n"])
def test_no_rows_are_no_turns(file: Path, data: bytes) -> None:
    assert load(file, data) == Conversation(str(file), "plain", ())


def test_turns_come_in_order_with_their_lines(file: Path) -> None:
    found = load(file, USER + b"\n\r\n" + DONE)
    assert [(turn.line, turn.role) for turn in found.turns] == [(1, "user"), (4, "assistant")]


def test_only_a_line_feed_ends_a_line(file: Path) -> None:
    text = "a\u2028b\u2029c\u0085d"
    row = json.dumps({"role": "user", "content": text}, ensure_ascii=False)
    assert texts(load(file, row.encode() + b"\r\n")) == [text]


def test_a_last_line_without_its_end_is_noted(file: Path) -> None:
    found = load(file, USER + DONE.rstrip())
    assert texts(found) == ["go", "done"]
    assert noticed(found) == [("no-line-end", 2, False)]


def test_the_first_row_with_a_mark_says_the_dialect(file: Path) -> None:
    blocks = b'{"role": "user", "content": [{"type": "text", "text": "x"}]}\n'
    tool = b'{"role": "tool", "content": "y"}\n'
    assert load(file, USER + DONE).dialect == "plain"
    assert load(file, USER + blocks + tool).dialect == "anthropic"
    assert load(file, USER + tool + blocks).dialect == "openai"


def test_a_row_of_another_dialect_is_read_by_its_own_marks(file: Path) -> None:
    call = {"type": "tool_use", "id": "a", "name": "bash", "input": {"command": "ls"}}
    rows = [
        {"role": "tool", "content": "r"},
        {"role": "assistant", "content": [call]},
        {"kind": "response", "parts": [{"part_kind": "text", "content": "p"}]},
    ]
    found = load(file, "".join(json.dumps(row) + "\n" for row in rows).encode())
    assert [len(turn.calls) for turn in found.turns] == [0, 1, 0]
    assert found.turns[2].text == "p"


def test_an_array_is_rows_of_one_line(file: Path) -> None:
    rows = (DATA / "pydantic-ai-2.66.0.jsonl").read_text().splitlines()
    apart = load_conversation(str(DATA / "pydantic-ai-2.66.0.jsonl"))
    found = load(file, f"[{','.join(rows)}]".encode())
    assert {turn.line for turn in found.turns} == {1}
    assert [turn.results for turn in found.turns] == [turn.results for turn in apart.turns]
    assert load(file, b"[]\n").turns == ()


def test_a_result_is_named_after_its_call(file: Path) -> None:
    def call(at: int) -> bytes:
        calls = [{"id": f"c{at}", "function": {"name": f"f{at}", "arguments": "{}"}}]
        return json.dumps({"role": "assistant", "tool_calls": calls}).encode() + b"\n"

    asked = [json.dumps({"role": "tool", "tool_call_id": f"c{at}"}) for at in (0, 1, 5000, 9999)]
    data = b"".join(map(call, range(5001))) + "\n".join(asked).encode() + b"\n"
    found = load(file, data)
    assert [turn.results[0].name for turn in found.turns[-4:]] == [None, None, "f5000", None]


# Lines that are not as they should be


@pytest.mark.parametrize(
    ("line", "code", "message"),
    [
        (b"{bad\n", "garbage", "not JSON at character 2: Expecting property name enclosed"),
        (b"{} {}\n", "garbage", "not JSON at character 4: Extra data; expected a JSON object"),
        (b"\0\0\0\0\n", "garbage", "4 zero bytes; expected a JSON object"),
        (b'{"a": ' + b"9" * 5000 + b"}\n", "garbage", "not readable: Exceeds the limit"),
        (b'{"a": ' + b"[" * 200_000 + b"\n", "too-deep", "brackets nested deeper than can be read"),
        (b"5\n", "not-an-object", "5; expected a JSON object"),
        (b"null\n", "not-an-object", "null; expected a JSON object"),
        (b'"text"\n', "not-an-object", '"text"; expected a JSON object'),
        (b"[[]]\n", "not-an-object", "[]; expected a JSON object"),
        (
            b"\xef\xbb\xbf\n",
            "byte-order-mark",
            "starts with a byte order mark; expected plain UTF-8",
        ),
        (b'{"role": "assistant", "con', "torn-line", "the file ends inside a line, after 26 bytes"),
        (b"5", "not-an-object", "5; expected a JSON object"),
    ],
)
def test_a_line_that_is_no_row(file: Path, line: bytes, code: str, message: str) -> None:
    with pytest.raises(TraceError) as raised:
        load(file, USER + line)
    assert str(raised.value).startswith(f"{file}:2: {message}")
    found = load(file, USER + line + (DONE if line.endswith(b"\n") else b""), salvage=True)
    assert texts(found) == (["go", "done"] if line.endswith(b"\n") else ["go"])
    assert (code, 2, True) in noticed(found)


@pytest.mark.parametrize(
    ("row", "code", "message", "content"),
    [
        (b'\xef\xbb\xbf{"content": "a"}', "byte-order-mark", "starts with a byte order mark", "a"),
        (
            b'{"content": "a\xff\xfe"}',
            "invalid-utf-8",
            "byte 15 is 0xff; expected",
            "a\ufffd\ufffd",
        ),
        (b'{"content": "a\0\tb"}', "control-character", "a raw control character", "a\0\tb"),
        (b'{"content": "a", "content": "b"}', "duplicate-key", 'key "content" more than once', "b"),
        (b'{"a": NaN, "content": "b"}', "not-a-json-number", "NaN, which JSON numbers", "b"),
        (b'{"a": -Infinity, "content": "b"}', "not-a-json-number", "-Infinity, which", "b"),
        (b'{"a": 1e999, "content": "b"}', "not-a-json-number", "1e999, which JSON", "b"),
    ],
)
def test_a_row_with_a_flaw(file: Path, row: bytes, code: str, message: str, content: str) -> None:
    with pytest.raises(TraceError) as raised:
        load(file, row + b"\n")
    assert str(raised.value).startswith(f"{file}:1: {message}")
    found = load(file, row + b"\n" + DONE, salvage=True)
    assert texts(found) == [content, "done"]
    assert noticed(found) == [(code, 1, True)]


def test_many_repeated_keys_are_named_in_part(file: Path) -> None:
    pairs = ", ".join(f'"k{at % 1000}": {at}' for at in range(2000))
    found = load(file, f"{{{pairs}}}\n".encode(), salvage=True)
    (seen,) = found.diagnostics
    names = '"k0", "k1", "k2", "k3", "k4" and more'
    assert seen.message == f"key {names} more than once; the last one counts"
    assert found.turns[0].rest["k7"] == 1007


@pytest.mark.parametrize(
    ("escaped", "text"),
    [
        (r"a\ud83d\ude00", "a😀"),
        (r"a\\ud83d", r"a\ud83d"),
        (r"\u0000", "\0"),
        (r"a\ud83d", "a\ufffd"),
        (r"\\\uD83Da", "\\\ufffda"),
        (r"\ude00\ud83d", "\ufffd\ufffd"),
        (r"\ud83d\ud83d\ude00", "\ufffd😀"),
    ],
)
def test_half_a_character_is_replaced_and_noted(file: Path, escaped: str, text: str) -> None:
    found = load(file, f'{{"content": "{escaped}"}}\n'.encode())
    assert texts(found) == [text]
    assert noticed(found) == ([("half-character", 1, False)] if "\ufffd" in text else [])


def test_a_row_that_is_deep_is_a_turn_or_a_problem(file: Path) -> None:
    for depth in (10, 400, 900, 3000, 12_000, 100_000):
        nested = b'{"role": "tool", "content": ' + b"[" * depth + b"]" * depth + b"}\n"
        found = load(file, nested + DONE, salvage=True)
        assert texts(found)[-1] == "done"
        assert noticed(found) in ([], [("too-deep", 1, True)])


def test_a_line_beyond_the_limit_is_stepped_over(file: Path) -> None:
    long = b'{"content": "' + b"x" * (3 << 20) + b'"}\n'
    file.write_bytes(USER + long + DONE)
    message = f"a line of {len(long):,} bytes; expected no more than 1,048,576"
    with pytest.raises(TraceError, match=f":2: {message}"):
        load_conversation(str(file), line_limit=1 << 20)
    found = load_conversation(str(file), salvage=True, line_limit=1 << 20)
    assert texts(found) == ["go", "done"]
    assert found.diagnostics == (Diagnostic("line-too-long", message, 2),)
    assert len(load_conversation(str(file)).turns) == 3


@given(st.lists(st.binary(max_size=30) | st.sampled_from([USER, DONE, b"\n", b"{}", b"["])))
def test_no_bytes_break_the_reader(
    tmp_path_factory: pytest.TempPathFactory, data: list[bytes]
) -> None:
    file = tmp_path_factory.getbasetemp() / "any.jsonl"
    file.write_bytes(b"".join(data))
    for item in read_turns(str(file), salvage=True):
        assert isinstance(item, Turn | Diagnostic)
        assert item.line is not None
        assert 1 <= item.line <= b"".join(data).count(b"\n") + 1


# Streaming


def test_turns_come_before_the_problem_behind_them(file: Path) -> None:
    file.write_bytes(USER + b"{bad\n")
    turns = read_turns(str(file))
    assert next(turns) == Turn(line=1, role="user", text="go")
    with pytest.raises(TraceError, match=":2: not JSON"):
        next(turns)


def test_diagnostics_come_where_they_were_noticed(file: Path) -> None:
    file.write_bytes(USER + b"{bad\n" + DONE)
    items = list(read_turns(str(file), salvage=True))
    assert [type(item) for item in items] == [Turn, Diagnostic, Turn]


def test_memory_does_not_grow_with_the_file(file: Path) -> None:
    row = json.dumps({"role": "user", "content": "x" * 4000}).encode() + b"\n"
    file.write_bytes(row * 4000)
    tracemalloc.start()
    try:
        assert sum(1 for _ in read_turns(str(file))) == 4000
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 6 << 20


def test_a_file_that_is_cut_while_it_is_read(file: Path) -> None:
    file.write_bytes(USER * 100_000)
    items = read_turns(str(file), salvage=True)
    next(items)
    os.truncate(file, len(USER))
    assert [item.code for item in items if isinstance(item, Diagnostic)][-1] == "file-shrank"


def test_a_file_that_grows_while_it_is_read(file: Path) -> None:
    file.write_bytes(USER)
    items = read_turns(str(file))
    next(items)
    with file.open("ab") as more:
        more.write(DONE)
    (seen,) = items
    assert isinstance(seen, Diagnostic)
    assert (seen.code, seen.is_problem) == ("file-grew", False)


# Files that cannot be read


@pytest.mark.parametrize("salvage", [False, True])
def test_what_is_no_file_is_refused(tmp_path: Path, salvage: bool) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    for path, why in [
        (str(tmp_path / "none.jsonl"), "cannot be read: No such file or directory"),
        (str(tmp_path), "a directory; expected"),
        (str(fifo), "not a regular file; expected"),
        ("/dev/zero", "not a regular file; expected"),
        ("a\0b", "cannot be read: "),
    ]:
        with pytest.raises(TraceError) as raised:
            load_conversation(path, salvage=salvage)
        assert str(raised.value).startswith(f"{path}: {why}")


def test_a_file_that_may_not_be_read_is_refused(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file.write_bytes(USER)
    file.chmod(0)
    monkeypatch.chdir(file.parent)
    with unprivileged(), pytest.raises(TraceError, match="cannot be read: Permission denied"):
        load_conversation(file.name)
