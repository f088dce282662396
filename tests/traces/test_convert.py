"""One kind of trace to another: what comes back is what went in, or it is listed as lost."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings

from proctor.errors import TraceError
from proctor.traces.atif.model import Agent, Atif
from proctor.traces.atif.rules import render_atif
from proctor.traces.convert import (
    Loaded,
    load_entries,
    redact_entries,
    render_as_atif,
    render_as_trajectory,
)
from proctor.traces.entry import Entry, TraceKind
from proctor.traces.trajectory import load_trajectory
from proctor.traces.writer import Redactor
from tests.conformance.theirs import harbor_module
from tests.examples import examples
from tests.traces.atif_values import documents, entry_lists

DATA = Path(__file__).resolve().parent.parent / "data"
REAL = sorted((DATA / "harbor").rglob("agent/trajectory.json"))
CONVERSATIONS = sorted(
    path for path in (DATA / "conversations").glob("*.jsonl") if path.stem != "aec-bench"
)
GOOD = b'{"step":1,"role":"user","content":"x"}\n'


def they_take(data: bytes) -> bool:
    """What harbor's validator says of a document."""
    validator = harbor_module("harbor.utils.trajectory_validator").TrajectoryValidator()
    return bool(validator.validate(json.loads(data)))


def there_and_back(path: Path, between: Path) -> tuple[bytes, list[Any]]:
    """ATIF to a trajectory that is really written, and back."""
    data, losses = render_as_trajectory(load_entries(str(path), TraceKind.ATIF))
    between.write_bytes(data)
    back, others = render_as_atif(load_entries(str(between), TraceKind.TRAJECTORY))
    return back, [*losses, *others]


def load(path: Path, data: bytes, *, salvage: bool = False) -> Loaded:
    path.write_bytes(data)
    return load_entries(str(path), TraceKind.TRAJECTORY, salvage=salvage)


def lost(loaded: Loaded) -> list[tuple[str, str]]:
    return [(loss.path, loss.value_summary) for loss in loaded.losses]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "trajectory.jsonl"


def test_every_real_document_comes_back_equal_through_a_file(path: Path) -> None:
    assert len(REAL) >= 100
    for real in REAL:
        back, losses = there_and_back(real, path)
        assert losses == []
        assert json.loads(back) == json.loads(real.read_bytes())
        assert they_take(back)


@settings(max_examples=examples(60))
@given(documents())
def test_any_document_comes_back_equal_through_a_file(
    tmp_path_factory: pytest.TempPathFactory, atif: Atif
) -> None:
    root = tmp_path_factory.mktemp("convert")
    (root / "trajectory.json").write_bytes(render_atif(atif))
    back, losses = there_and_back(root / "trajectory.json", root / "trajectory.jsonl")
    assert losses == []
    assert back == render_atif(atif)
    assert they_take(back)


@settings(max_examples=examples(60))
@given(entry_lists())
def test_any_trajectory_becomes_atif_that_harbor_takes(
    tmp_path_factory: pytest.TempPathFactory, entries: list[Entry]
) -> None:
    path = tmp_path_factory.mktemp("convert") / "trajectory.jsonl"
    data, losses = render_as_trajectory(Loaded(entries, []))
    path.write_bytes(data)
    found = load_trajectory(str(path))
    assert (found.entries, len(found.headers), losses) == (entries, 1, [])
    assert they_take(render_as_atif(load_entries(str(path), TraceKind.TRAJECTORY))[0])


@pytest.mark.parametrize("source", CONVERSATIONS, ids=lambda path: path.stem)
def test_every_dialect_becomes_atif_that_harbor_takes(source: Path, path: Path) -> None:
    loaded = load_entries(str(source), TraceKind.CONVERSATION)
    assert loaded.losses == []
    assert they_take(render_as_atif(loaded)[0])
    path.write_bytes(render_as_trajectory(loaded)[0])
    found = load_trajectory(str(path), thorough=True)
    assert (found.entries, found.diagnostics) == (list(loaded.entries), [])


def test_the_header_is_left_out_when_asked(path: Path) -> None:
    loaded = load(path, GOOD)
    header, entries = render_as_trajectory(loaded)[0].split(b"\n", 1)
    assert json.loads(header) == {"version": 1, "format": "aec-bench-trajectory"}
    assert render_as_trajectory(loaded, header=False)[0] == entries


def test_an_agent_given_goes_into_the_document(path: Path) -> None:
    data, _ = render_as_atif(load(path, GOOD), Agent(name="mine", version="7"))
    assert json.loads(data)["agent"] == {"name": "mine", "version": "7"}


def test_nothing_makes_no_document(path: Path) -> None:
    with pytest.raises(TraceError, match="there are no entries"):
        render_as_atif(load(path, b""))


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        (b'{"step":1,"role":"user","more":5}', 'unknown key "more"; not part of the format'),
        (b'{"step":1,"role":"user","content":5}', "content is 5; expected a string"),
        (b'{"step":1,"role":"user","content":"","content":"b"}', 'key "content" more than once'),
        (
            b'{"step":1,"role":"user","metadata":{"a":NaN}}',
            "NaN, which JSON numbers cannot express",
        ),
        (b"nonsense", "not JSON"),
        (b'{"role":"user"}', "no step"),
    ],
)
def test_strict_refuses_damage_with_its_line(path: Path, bad: bytes, said: str) -> None:
    with pytest.raises(TraceError) as raised:
        load(path, GOOD + bad + b"\n")
    assert str(raised.value).startswith(f"{path}:2: {said}")


@pytest.mark.parametrize(
    ("bad", "expected"),
    [
        (b'{"step":1,"role":"user","more":5}', [("line 2: more", "5")]),
        (b'{"step":1,"role":"user","content":5}', [("line 2: content", "5")]),
        (b'{"step":1,"role":"user","content":"","content":"b"}', [("line 2: content", '""')]),
        (b"nonsense", [("line 2", "garbage")]),
        (b"\xff", [("line 2", "invalid-utf-8"), ("line 2", "garbage")]),
        (b'{"role":"user"}', [("line 2: role", '"user"'), ("line 2", "no-step")]),
    ],
)
def test_salvage_lists_once_what_is_lost(
    path: Path, bad: bytes, expected: list[tuple[str, str]]
) -> None:
    loaded = load(path, GOOD + bad + b"\n" + GOOD, salvage=True)
    assert lost(loaded) == expected
    assert loaded.entries[0] == loaded.entries[-1]
    assert they_take(render_as_atif(loaded)[0])


def test_half_a_character_is_listed_in_either_temper(path: Path) -> None:
    data = GOOD.replace(b'"x"', rb'"\ud800"')
    for salvage in (False, True):
        loaded = load(path, data, salvage=salvage)
        assert lost(loaded) == [("line 1", "half-character")]
        assert loaded.entries[0].content == "\ufffd"


def test_what_an_atif_reader_replaces_is_listed(tmp_path: Path) -> None:
    path = tmp_path / "trajectory.json"
    path.write_bytes(
        b'{"agent": {"name": "a", "version": "1"}, "notes": "first", "notes": "n", "more": 1,\n'
        rb' "steps": [{"step_id": 1, "source": "user", "message": "\ud800", "extra": {"a": NaN}}]}'
    )
    with pytest.raises(TraceError, match=r"trajectory\.json"):
        load_entries(str(path), TraceKind.ATIF)
    loaded = load_entries(str(path), TraceKind.ATIF, salvage=True)
    codes = [loss.value_summary for loss in loaded.losses]
    assert {"1", "duplicate-key", "not-a-json-number", "half-character"} <= set(codes)
    assert ("more", "1") in lost(loaded)
    assert they_take(render_as_atif(loaded)[0])


def test_numbers_that_json_does_not_have_stay_readable(path: Path) -> None:
    data = b'{"step":1,"role":"user","metadata":{"a":NaN,"b":1e999}}\n'
    loaded = load(path, data, salvage=True)
    for render in (render_as_trajectory, render_as_atif):
        written, _ = render(loaded)
        assert b"NaN" not in written
        assert b"Infinity" not in written
        for text in written.splitlines() if render is render_as_trajectory else [written]:
            msgspec.json.decode(text)


# Redaction

SECRET = "-".join(["hunter2"] * 2)
NUMBER = "1234"


def redacted(loaded: Loaded, secret: str) -> Loaded:
    return redact_entries(loaded, Redactor({"S": secret}))


def test_a_secret_is_nowhere_in_what_is_written(path: Path) -> None:
    text = f'{{"step":1,"role":"tool_call","command":"{SECRET}","arguments":{{"{SECRET}":1}},'
    text += f'"media":["{SECRET}"],"metadata":{{"a":["{SECRET}"]}},"{SECRET}":"{SECRET}"}}\n'
    loaded = redacted(load(path, text.encode(), salvage=True), SECRET)
    for render in (render_as_trajectory, render_as_atif):
        data, losses = render(loaded)
        assert b"[redacted:S]" in data
        assert SECRET.encode() not in data
        assert SECRET not in str(losses)
    assert lost(loaded) == [("line 1: [redacted:S]", '"[redacted:S]"')]


def test_half_of_a_secret_is_not_shown_at_a_cut(path: Path) -> None:
    value = "x" * 50 + SECRET + "y" * 50
    loaded = load(path, f'{{"step":1,"role":"user","more":"{value}"}}\n'.encode(), salvage=True)
    assert "hunter2" in str(loaded.losses)
    assert "hunter" not in str(redacted(loaded, SECRET).losses)


@pytest.mark.parametrize("secret", ["content", "step", "metadata", "user", "atif", NUMBER])
def test_a_secret_that_is_spelled_like_the_format_does_not_break_it(
    path: Path, secret: str
) -> None:
    line = b'{"step":1,"role":"user","content":"content 1234","metadata":{"atif":{}},'
    line += b'"exit_code":1234,"duration_ms":51234}\n'
    loaded = redacted(load(path, line), secret)
    (entry,) = loaded.entries
    assert entry.step == 1
    assert secret not in (entry.content or "")
    assert (entry.exit_code is None) is (entry.duration_ms is None) is (secret == NUMBER)
    assert they_take(render_as_atif(loaded)[0])


def test_what_a_header_said_is_listed_as_lost(tmp_path: Path) -> None:
    path = tmp_path / "trajectory.jsonl"
    header = {"version": 1, "format": "aec-bench-trajectory", "timestamp": "t", "seed": 42}
    path.write_text(json.dumps(header) + '\n{"step": 0, "role": "user"}\n')
    losses = load_entries(str(path), TraceKind.TRAJECTORY).losses
    assert [loss.path for loss in losses] == ["header.timestamp", "line 1: seed"]
