"""Log files of strangers: both forms, and everything that can be wrong with them."""

import contextlib
import json
import os
import random
import struct
import zipfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from proctor.errors import InputError, InspectError
from proctor.exchange.inspect import archive
from proctor.exchange.inspect.log import load_log
from tests.examples import examples
from tests.exchange.inspect.logs import (
    EVAL,
    HEADER,
    find,
    make_sample,
    record_of,
    submit,
    write_archive,
    write_document,
    write_members,
)


@pytest.mark.parametrize("method", [0, 8, 93])
def test_members_may_be_stored_deflated_or_compressed_with_zstd(
    tmp_path: Path, method: int
) -> None:
    (trial,) = submit(write_archive(tmp_path / "a.eval", make_sample(), method=method))
    assert json.loads(trial.attached["inspect_sample.json"]) == make_sample()


def test_both_forms_give_the_same_trials(tmp_path: Path) -> None:
    samples = [make_sample("a"), make_sample("a", 2), make_sample(7, scores=None)]
    packed = submit(write_archive(tmp_path / "a.eval", *samples))
    plain = submit(write_document(tmp_path / "a.json", *samples))
    assert [trial.record for trial in packed] == [trial.record for trial in plain]
    assert [trial.attached for trial in packed] == [trial.attached for trial in plain]
    assert [record_of(trial)["trial_id"] for trial in packed] == [
        "a.epoch-1.Ev1",
        "a.epoch-2.Ev1",
        "7.epoch-1.Ev1",
    ]


def test_a_log_that_is_still_written_has_its_header_in_the_journal(tmp_path: Path) -> None:
    start = {key: HEADER[key] for key in ("version", "eval", "plan")}
    members = {
        "_journal/start.json": json.dumps(start).encode(),
        "samples/1_epoch_1.json": json.dumps(make_sample()).encode(),
    }
    begun = write_members(tmp_path / "a.eval", members)
    assert load_log(begun).status == "started"
    (later,) = submit(write_archive(tmp_path / "b.eval", make_sample()))
    (before,) = submit(begun)
    assert (before.record, before.attached) == (later.record, later.attached)
    assert "its status is started; it may lack samples" in find(begun).notes[0]


def test_of_two_members_with_one_name_the_last_counts(tmp_path: Path) -> None:
    path = write_archive(tmp_path / "a.eval", make_sample(scores={"exact": {"value": 0}}))
    with zipfile.ZipFile(path, "a") as found, pytest.warns(UserWarning, match="Duplicate name"):
        found.writestr("samples/1_epoch_1.json", json.dumps(make_sample()))
    (trial,) = submit(path)
    assert record_of(trial)["evaluation"]["reward"] == 1


def test_a_directory_is_searched_for_logs_and_other_files_are_skipped(tmp_path: Path) -> None:
    (tmp_path / "deep" / ".hidden").mkdir(parents=True)
    write_archive(tmp_path / "deep" / "a.eval", make_sample("a"))
    write_archive(tmp_path / "deep" / ".hidden" / "b.eval", make_sample("b"))
    write_document(tmp_path / "c.json", make_sample("c"))
    (tmp_path / "logs.json").write_text('{"listing": []}')
    (tmp_path / "link.eval").symlink_to(tmp_path / "deep" / "a.eval")
    found = find(tmp_path)
    assert [offer.where.rpartition(": ")[0] for offer in found.offers] == [
        str(tmp_path / "c.json"),
        str(tmp_path / "deep" / "a.eval"),
    ]
    assert found.notes == [f"{tmp_path}: 1 other JSON file in it, not logs"]


def test_a_log_without_samples_says_its_status(tmp_path: Path) -> None:
    header = {**HEADER, "status": "error", "error": {"message": "no key"}}
    path = write_archive(tmp_path / "a.eval", header=header)
    with pytest.raises(InspectError, match='no samples in it; its status is error: "no key"'):
        find(path)
    write_archive(tmp_path / "b.eval", make_sample())
    found = find(tmp_path)
    assert (len(found.offers), "no samples" in found.notes[0]) == (1, True)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "not a log of Inspect: it is empty; expected a zip archive or a JSON object"),
        (b"PK\x03\x04 and then nothing", "not a whole zip archive"),
        (b"[1, 2]", "no '{' at character 0"),
        (b'{"version": 2, "eval": {}', "no ',' at character"),
        (b'{"version": 2} {', "more text after its end"),
        (b'{"version": 2}', "no `eval` object in its header"),
        (b'{"version": 2, "eval": []}', "no `eval` object in its header"),
        (b'{"version": 3, "eval": {}}', "version 3 of the log format"),
        (b'{"version": true, "eval": {}}', "version true of the log format"),
        (b'{"version": 1e999, "eval": {}}', "version Infinity of the log format"),
        (b'{"version": 2, "eval": {}, "samples": [1]}', "no task, or neither eval_id"),
        (b'{"a": ' + b"[" * 100_000 + b"}", "nested too deeply"),
        (b"\xff\xfe{", "not a log of Inspect: neither a zip archive nor text; expected"),
        (b'{"a": "' + b"\xff" + b'"}', "not a log of Inspect"),
    ],
)
def test_what_is_no_log_gets_a_sentence(tmp_path: Path, data: bytes, said: str) -> None:
    path = tmp_path / "a.eval"
    path.write_bytes(data)
    with pytest.raises(InspectError, match=said):
        find(path)


def test_what_is_not_there_gets_a_sentence(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path, said in (
        (tmp_path / "none.eval", "no such file or directory"),
        (tmp_path / "pipe", "not a plain file"),
        (tmp_path, "no log in it"),
    ):
        with pytest.raises(InspectError, match=said):
            find(path)


def test_an_archive_of_something_else_is_no_log(tmp_path: Path) -> None:
    path = write_members(tmp_path / "a.eval", {"word/document.xml": b"<w/>"})
    with pytest.raises(InspectError, match=r"a zip archive without header\.json"):
        find(path)


def test_a_truncated_archive_is_refused(tmp_path: Path) -> None:
    path = write_archive(tmp_path / "a.eval", make_sample())
    data = path.read_bytes()
    for size in (len(data) - 1, len(data) // 2, 30):
        path.write_bytes(data[:size])
        with pytest.raises(InspectError, match="not a whole zip archive"):
            find(path)


def refusal_of(path: Path) -> str:
    (offer,) = find(path).offers
    with pytest.raises(InputError) as refused:
        offer.submit()
    return str(refused.value)


def patched(path: Path, member: str, offset: int, value: bytes) -> Path:
    """The archive with bytes of a member's entry in the directory replaced."""
    data = bytearray(path.read_bytes())
    at = data.rindex(member.encode()) - 46 + offset
    data[at : at + len(value)] = value
    path.write_bytes(bytes(data))
    return path


@pytest.mark.parametrize(
    ("offset", "value", "said"),
    [
        (8, b"\x01", "encrypted"),
        (10, b"\x0c\x00", "compression method 12"),
        (16, b"\x00\x00\x00\x00", "its size or checksum"),
        (24, struct.pack("<I", 10), "its size or checksum"),
        (24, struct.pack("<I", 0xF0000000), "bytes; expected at most"),
        (42, struct.pack("<I", 5), "not where the directory says"),
    ],
)
def test_a_member_that_is_not_what_the_directory_says_is_refused(
    tmp_path: Path, offset: int, value: bytes, said: str
) -> None:
    path = write_archive(tmp_path / "a.eval", make_sample())
    assert said in refusal_of(patched(path, "samples/1_epoch_1.json", offset, value))


@pytest.mark.parametrize("method", [8, 93])
def test_a_bomb_is_refused_before_it_is_unpacked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: int
) -> None:
    bomb = b'"' + b" " * (1 << 22) + b'"'
    path = write_archive(tmp_path / "a.eval", bomb, method=method)
    assert path.stat().st_size < 20_000
    monkeypatch.setattr(archive, "LARGEST_MEMBER", 1 << 20)
    assert "4,194,306 bytes; expected at most 1,048,576" in refusal_of(path)
    # One that lies about its size is not unpacked further than it claims.
    lying = patched(path, "samples/0.json", 24, struct.pack("<I", 1000))
    assert "its size or checksum" in refusal_of(lying)


def test_members_that_share_bytes_are_refused(tmp_path: Path) -> None:
    path = write_archive(tmp_path / "a.eval", *[make_sample(n) for n in range(9)])
    data = path.read_bytes()
    # Every entry claims the bytes of the whole file.
    size = struct.pack("<I", len(data) - 200)
    for number in range(9):
        patched(path, f"samples/{number}_epoch_1.json", 20, size)
    with pytest.raises(InspectError, match="its members overlap"):
        find(path)


def test_too_many_members_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_archive(tmp_path / "a.eval", *[make_sample(n) for n in range(9)])
    monkeypatch.setattr(archive, "MOST_MEMBERS", 5)
    with pytest.raises(InspectError, match="10 members; expected at most 5"):
        find(path)
    monkeypatch.setattr(archive, "LARGEST_DIRECTORY", 100)
    with pytest.raises(InspectError, match=r"a directory of .* bytes; expected at most 100"):
        find(path)


def test_a_directory_is_as_large_as_its_64_bit_record_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archive, "LARGEST_DIRECTORY", 500)
    directory = (b"PK\x01\x02" + bytes(24) + b"\x01" + bytes(17) + b"a") * 100
    size = len(directory)
    end_64 = struct.pack("<4sQ2H2L4Q", b"PK\x06\x06", 44, 45, 45, 0, 0, 100, 100, size, 0)
    locator = struct.pack("<4sLQL", b"PK\x06\x07", 0, size, 1)
    # The 32-bit record claims a single member.
    end = struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, 1, 1, 47, 0, 0)
    path = tmp_path / "a.eval"
    path.write_bytes(directory + end_64 + locator + end)
    with pytest.raises(InspectError, match=f"a directory of {size:,} bytes; expected at most 500"):
        find(path)


def test_names_of_members_lead_nowhere(tmp_path: Path) -> None:
    members = {
        "header.json": json.dumps(HEADER).encode(),
        "samples/../../../x.json": json.dumps(make_sample("../../../x")).encode(),
    }
    (trial,) = submit(write_members(tmp_path / "a.eval", members))
    assert sorted(trial.attached) == [
        "inspect_eval.json",
        "inspect_sample.json",
        "trajectory.jsonl",
    ]
    assert record_of(trial)["trial_id"].startswith("x.epoch-1.Ev1-")
    assert [path.name for path in tmp_path.iterdir()] == ["a.eval"]


def test_more_values_than_memory_has_room_for_are_refused(tmp_path: Path) -> None:
    path = write_archive(tmp_path / "a.eval", b"[" + b"0," * 10_000_001 + b"0]")
    assert "more than 10,000,000 JSON values" in refusal_of(path)


def test_one_broken_sample_does_not_refuse_the_others(tmp_path: Path) -> None:
    path = write_archive(tmp_path / "a.eval", b"{", make_sample())
    first, second = find(path).offers
    with pytest.raises(InspectError, match="not JSON"):
        first.submit()
    assert second.submit().where == f'{path}: "samples/1_epoch_1.json"'


def test_one_broken_log_does_not_refuse_the_others(tmp_path: Path) -> None:
    write_archive(tmp_path / "a.eval", make_sample())
    (tmp_path / "b.eval").write_bytes(b"PK")
    good, broken = find(tmp_path).offers
    assert good.submit().source is not None
    with pytest.raises(InspectError, match="not a whole zip archive"):
        broken.submit()


@pytest.mark.parametrize("form", ["stored", "deflate", "zstd", "json"])
def test_bytes_that_were_changed_are_refused_with_a_sentence(tmp_path: Path, form: str) -> None:
    path, chance = tmp_path / "a.eval", random.Random(7)
    if form == "json":
        write_document(path, make_sample(), make_sample(2))
    else:
        method = {"stored": 0, "deflate": 8, "zstd": 93}[form]
        write_archive(path, make_sample(), make_sample(2), method=method)
    whole = path.read_bytes()
    for _ in range(200):
        data = bytearray(whole)
        for _ in range(chance.randint(1, 4)):
            data[chance.randrange(len(data))] = chance.randrange(256)
        path.write_bytes(data[: chance.choice([len(data), chance.randrange(len(data))])])
        with contextlib.suppress(InputError):
            for offer in find(path).offers:
                with contextlib.suppress(InputError):
                    offer.submit()


JUNK = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(["\ud800", "../../x", "attachment://x", "\x1b[2J", 10**400, "2026-01-01"]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=8,
)
FIELDS = sorted({*make_sample(), "events", "model_usage", "error", "limit", "attachments"})
PARTS = st.dictionaries(
    st.sampled_from(["role", "content", "tool_calls", "id", "function", "error", "tool_call_id"]),
    JUNK | st.sampled_from(["assistant", "tool", "user"]),
    max_size=4,
)


@settings(
    max_examples=examples(200),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
@given(
    st.dictionaries(st.sampled_from(FIELDS), JUNK, max_size=4),
    st.lists(PARTS, max_size=3),
    st.dictionaries(st.sampled_from(sorted(EVAL)), JUNK, max_size=2),
)
def test_any_values_are_refused_with_a_sentence_or_can_be_sealed(
    tmp_path: Path, changes: dict[str, Any], messages: list[Any], given_: dict[str, Any]
) -> None:
    sample = make_sample(messages=messages) | changes
    header = {**HEADER, "eval": {**EVAL, **given_}}
    with contextlib.suppress(InputError):
        submit(write_archive(tmp_path / "a.eval", sample, header=header))
