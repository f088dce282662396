"""Readers of conversations, ATIF files and records under fire, and what is converted of them.

Strict gives a value or a sentence, salvage likewise and never less than strict, and what was read
can be written. The short version runs with the suite, the long one in the soak.
"""

import json
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from proctor.audit.file_kind import find_file_kind
from proctor.errors import InputError, RecordError, TraceError
from proctor.record.read import parse_record
from proctor.traces.atif.read import parse_atif
from proctor.traces.conversation import load_conversation
from proctor.traces.convert import (
    load_entries,
    redact_entries,
    render_as_atif,
    render_as_trajectory,
)
from proctor.traces.entry import TraceKind
from proctor.traces.writer import Redactor

DATA = Path(__file__).resolve().parent.parent / "data"
CONVERSATIONS = [
    path.read_bytes()
    for path in sorted((DATA / "conversations").glob("*.jsonl"))
    if path.stem != "aec-bench"
]
ATIF = [
    (DATA / "atif" / "every-field.json").read_bytes(),
    next((DATA / "harbor").rglob("agent/trajectory.json")).read_bytes(),
]
RECORDS = [path.read_bytes() for path in sorted((DATA / "records").rglob("*.json"))]
SPLINTERS = [
    *(bytes([byte]) for byte in b'\n\r\0"{}[]:,\\ \t\xff'),
    *(b"\\u", b"\\ud800", b"NaN", b"1e999", b"-0", b"null", b"true", b"9" * 40, b"9" * 5000),
    *(b"\xef\xbb\xbf", b"\xe2\x80\xa8", b"[" * 2000, b'{"a":' * 2000, b'"role":', b'"steps":1,'),
    *(b'"content":', b'"content":[{"type":"text"}],', b'"schema_version":2,', b"-1", b"1.5", b"[]"),
]
SECRETS = Redactor({"A": "content", "B": "step", "C": "1234"})


def mutate(draw: random.Random, seeds: list[bytes]) -> bytes:
    data = bytearray(draw.choice(seeds))
    for _ in range(draw.randint(1, 5)):
        at = draw.randint(0, len(data))
        match draw.randint(0, 5):
            case 0:
                data[at:at] = draw.choice(SPLINTERS)
            case 1:
                del data[at : at + draw.randint(1, 20)]
            case 2 if at < len(data):
                data[at] = draw.randint(0, 255)
            case 3:
                data[at:at] = data[at : at + draw.randint(1, 60)]
            case 4:
                swap_value(draw, data)
            case _ if draw.random() < 0.2:
                data = data[:at]
    return bytes(data)


def swap_value(draw: random.Random, data: bytearray) -> None:
    """Another value after some colon, so that what is damaged is often still JSON."""
    colons = [at for at, byte in enumerate(data) if byte == ord(":")]
    if colons:
        start = draw.choice(colons) + 1
        end = min((at for sign in b",}\n" if (at := data.find(sign, start)) > 0), default=start)
        data[start:end] = draw.choice((b"null", b"1", b'"x"', b"[]", b"{}", b"[1]", b"true"))


def read_conversation(path: Path, data: bytes) -> bool:
    path.write_bytes(data)
    salvaged = load_conversation(str(path), salvage=True)
    convert(path, TraceKind.CONVERSATION)
    try:
        strict = load_conversation(str(path))
    except TraceError:
        assert any(found.is_problem for found in salvaged.diagnostics)
        return False
    assert strict == salvaged
    return True


def read_atif(path: Path, data: bytes) -> bool:
    try:
        salvaged = parse_atif(data, salvage=True)
    except TraceError:
        with pytest.raises(TraceError):
            parse_atif(data)
        return False
    path.write_bytes(data)
    convert(path, TraceKind.ATIF)
    try:
        strict = parse_atif(data)
    except TraceError:
        assert any(found.is_problem for found in salvaged.diagnostics)
        return False
    assert strict == salvaged
    return True


def read_record(path: Path, data: bytes) -> bool:
    del path
    try:
        salvaged = parse_record(data, "record.json", salvage=True)
    except RecordError:
        with pytest.raises(RecordError):
            parse_record(data, "record.json")
        return False
    try:
        strict = parse_record(data, "record.json")
    except RecordError:
        assert any(found.is_problem for found in salvaged.diagnostics)
        return False
    assert strict == salvaged
    return True


def convert(path: Path, source: TraceKind) -> None:
    """Whatever can be salvaged can be written, with secrets and without, as JSON."""
    try:
        find_file_kind(str(path))
        loaded = load_entries(str(path), source, salvage=True)
    except InputError:
        return
    for each in (loaded, redact_entries(loaded, SECRETS)):
        for line in render_as_trajectory(each)[0].splitlines():
            json.loads(line)
        try:
            json.loads(render_as_atif(each)[0])
        except TraceError:
            assert not each.entries


type Reader = Callable[[Path, bytes], bool]

READERS = pytest.mark.parametrize(
    ("read", "seeds"),
    [(read_conversation, CONVERSATIONS), (read_atif, ATIF), (read_record, RECORDS)],
    ids=["conversation", "atif", "record"],
)


def run(path: Path, read: Reader, seeds: list[bytes], draw: random.Random, count: int) -> None:
    verdicts = {read(path, mutate(draw, seeds)) for _ in range(count)}
    assert verdicts == {True, False}, "both kinds are there"


@READERS
def test_some_hundred_mutated_files(tmp_path: Path, read: Reader, seeds: list[bytes]) -> None:
    run(tmp_path / "file", read, seeds, random.Random(3), 250)


@pytest.mark.soak
@READERS
@pytest.mark.parametrize("seed", range(200, 208))
def test_many_thousand_mutated_files(
    tmp_path: Path, read: Reader, seeds: list[bytes], seed: int
) -> None:
    run(tmp_path / "file", read, seeds, random.Random(seed), 15_000)
