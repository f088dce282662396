"""changes.jsonl and clean-room.json, read: what proctor wrote, and what a stranger wrote."""

import json
from pathlib import Path

import pytest

from proctor.trial import change_record
from proctor.trial.account import render_account
from proctor.trial.change_record import ChangeRecord, Header, describe_places, parse_changes
from proctor.trial.changes import Change, ChangeAccount, Phase, Place, Surroundings
from proctor.trial.clean_room_result import (
    CleanRoomResult,
    Verification,
    describe_clean_room,
    describe_missing,
    parse_clean_room,
)
from tests.trial.changed import room, verified

HEADER = {
    "format": "proctor-changes-1",
    "total": 1,
    "listed": 1,
    "is_complete": True,
    "places": {"work": 1},
    "phases": {"agent": 1},
}
LINE = {"path": "/app/a", "how": "created", "kind": "file"}


def parse(*lines: object) -> ChangeRecord:
    texts = [line if isinstance(line, bytes) else json.dumps(line).encode() for line in lines]
    return parse_changes(b"\n".join(texts) + b"\n")


def test_what_a_trial_writes_is_read_as_it_was() -> None:
    late = Change(path="/etc/c", how="deleted", kind="file", when=Phase.VERIFICATION)
    changes = [
        Change(path="/app/\udcff", how="created", kind="link", target="\x1b[31m", mode="0777"),
        Change(path="/etc/b", how="changed", kind="file", place=Place.SYSTEM, size=3, sha256="a"),
        Change(path="/root/x", how="created", kind="file", place=Place.HOME, sha256="b"),
    ]
    around = Surroundings(workdir="/app")
    record = parse_changes(
        render_account(ChangeAccount(around=around, changes=changes, late=[late]))
    )
    assert record.problems == ()
    assert [each.path for each in record.ordered()] == [
        "/etc/b",
        r"/app/\udcff",
        "/root/x",
        "/etc/c",
    ]
    assert record.changes[1] == changes[1]
    assert describe_places(record) == "1 system, 1 work, 1 home"


@pytest.mark.parametrize(
    ("lines", "sentence"),
    [
        ([b""], "line 1: Input data was truncated; expected the header of proctor-changes-1"),
        ([b"\xff"], "line 1: "),
        ([HEADER | {"format": "x-2"}, LINE], 'line 1: format "x-2"; expected proctor-changes-1'),
        ([HEADER | {"total": "many"}, LINE], "line 1: Expected `int`, got `str` - at `$.total`"),
        ([HEADER | {"places": {"work": -1}}, LINE], "line 1: Expected `int` >= 0"),
        ([HEADER, LINE, b'{"path": 3}'], "line 3: Expected `str`, got `int` - at `$.path`"),
        ([HEADER, LINE, LINE | {"place": "moon"}], "line 3: Invalid enum value 'moon'"),
        ([HEADER, LINE, b'{"path":"\\ud800","how":"a","kind":"b"}'], "line 3: JSON is malformed"),
        ([HEADER, LINE, LINE | {"path": "x" * (1 << 18)}], "line 3: it has 262,"),
        ([HEADER | {"listed": 7}, LINE], "`listed` is 7 in the first line; 1 could be read"),
    ],
)
def test_what_cannot_be_used_is_said(lines: list[object], sentence: str) -> None:
    record = parse(*lines)
    assert sentence in record.problems[0]
    assert len(record.changes) == len(record.lines) == (0 if "line 1:" in sentence else 1)


def test_a_stranger_cannot_make_it_long(monkeypatch: pytest.MonkeyPatch) -> None:
    many = parse(HEADER, LINE, *([b"{}"] * 1000))
    assert (len(many.problems), many.problems[-1]) == (11, "990 more problems")
    assert "1,000,000 JSON values" in parse(HEADER, b"[" + b"1," * 1_000_000).problems[0]
    monkeypatch.setattr(change_record, "MOST_LISTED", 2)
    cut = parse(HEADER, LINE, LINE, LINE)
    assert (len(cut.changes), cut.problems) == (
        2,
        ("it lists more than 2 paths; the others were not read",),
    )
    assert parse(HEADER | {"listed": 2}, LINE, LINE).problems == ()
    monkeypatch.setattr(change_record, "LARGEST", 10)
    assert parse(HEADER).problems == (change_record.TOO_LARGE,)


def test_without_a_header_nothing_is_called_complete() -> None:
    assert describe_places(parse(b"")).endswith("0 home; the record is not complete")


@pytest.mark.parametrize(
    ("written", "told"),
    [
        (room("agrees"), "agrees (reward 1.0), 0.3s"),
        (
            room("clean-room-differs", clean=[verified(0.0, is_same=False)]),
            "differs: 0.0 against 1.0, 4 paths left out",
        ),
        (
            room("verifier-flaky", left_out=1, clean=[verified(0, exception_type="BadError")]),
            "differs: BadError against 1.0, 1 path left out (verifier-flaky)",
        ),
        (
            room("more", first=verified(1.0) | {"rewards": {"a": 0.5, "b": 1}}),
            "gives more: 1.0 against a 0.5, b 1, 4 paths left out",
        ),
        (room("clean-room-skipped", clean=[], reason="no room"), "skipped: no room"),
        (room("agrees", first=verified(None)), 'agrees (reward {"reward": null}), 0.3s'),
        (room("x" * 5000, clean=[]), f"not run against 1.0, 4 paths left out ({'x' * 200}…)"),
    ],
)
def test_a_clean_room_is_told_in_a_line(written: dict[str, object], told: str) -> None:
    found = parse_clean_room(json.dumps(written).encode())
    assert isinstance(found, CleanRoomResult)
    assert told in describe_clean_room(found)


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (b"", "Input data was truncated; expected proctor-clean-room-1"),
        (b"\xff", "expected proctor-clean-room-1"),
        (json.dumps(room("agrees", seconds="long")).encode(), "Expected `float`, got `str`"),
        (json.dumps(room("agrees", format="x")).encode(), 'format "x"; expected proctor-clean'),
    ],
)
def test_another_file_is_none(data: bytes, sentence: str) -> None:
    found = parse_clean_room(data)
    assert isinstance(found, str)
    assert sentence in found


def test_why_there_was_no_clean_room() -> None:
    skipped = {"code": "clean-room-skipped", "detail": {"reason": "--no-clean-room"}}
    assert describe_missing([{}, skipped], 1.0) == "skipped: --no-clean-room"
    assert describe_missing([skipped | {"detail": 3}], 1.0) == "skipped: no reason is on record"
    assert describe_missing([], 0.0) == describe_missing([], None) == "not run: no reward above 0"
    assert describe_missing([], 1.0) == "not run: there is no clean-room.json"


def test_what_is_too_deep_or_too_large_is_not_read() -> None:
    deep = b'{"x": ' + b"[" * 100_000
    assert parse(deep).problems == ("line 1: JSON that is nested too deeply",)
    assert parse(HEADER, LINE, deep).problems == ("line 3: JSON that is nested too deeply",)
    assert parse_clean_room(deep) == "JSON that is nested too deeply"
    assert parse_clean_room(bytes(1 << 21)) == "it is larger than 1 MiB, and was not read"


def test_the_page_of_the_formats_names_every_field() -> None:
    page = (
        Path(__file__).resolve().parents[2] / "docs" / "reference" / "formats" / "trial.md"
    ).read_text()
    kinds = (Header, Change, CleanRoomResult, Verification)
    fields = {name for kind in kinds for name in kind.__struct_fields__} - {"mark"}
    assert [name for name in sorted(fields) if f"`{name}`" not in page] == []
