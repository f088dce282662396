"""Bytes from anywhere become a record or a sentence."""

import codecs
import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.errors import IncompleteRecordError, RecordError
from proctor.record.document import LARGEST, parse_document
from proctor.record.read import load_record, parse_record
from tests.record.samples import Json, read_data, spelled, tree, without

GOOD = read_data("g1-complete.json")


def codes(data: bytes) -> list[str]:
    return [note.code for note in parse_record(data, "x", salvage=True).diagnostics]


def with_value(text: str) -> bytes:
    """The good record, its agent's configuration spelled out."""
    data = GOOD.replace(b'"max_turns": 20', b'"max_turns": ' + text.encode())
    assert data != GOOD
    return data


HOSTILE = [
    (b"", "not JSON at line 1 column 1"),
    (b"{", "not JSON at line 1 column 2"),
    (b"[]", "a JSON array; expected an object"),
    (b"7", "a JSON number; expected an object"),
    (b"null", "a JSON null; expected an object"),
    (b"{}", "has neither schema_version nor completeness; expected a TrialRecord"),
    (b"\xff{}", "byte 0 is not UTF-8"),
    (GOOD[:-10], "not JSON"),
    (GOOD + b"x", "not JSON"),
    (b"[" * 100_000, "nested more than 150 levels deep"),
    (with_value("[" * 160 + "]" * 160), "nested more than 150 levels deep"),
    (with_value("[" * 120 + "]" * 120), "agent.configuration: is nested more than 100 levels"),
    (with_value("NaN"), "has NaN; expected a finite number"),
    (with_value("-Infinity"), "has -Infinity; expected a finite number"),
    (with_value("1e999"), "has inf; expected a finite number"),
    (with_value("9" * 5000), "has a number with too many digits"),
    (with_value('"\\ud800"'), "has a lone surrogate, which is not valid text"),
    (GOOD.replace(b"12.0", b"1e999"), "has inf; expected a finite number"),
    (b" " * (LARGEST + 1), "16,777,217 bytes; expected a record of at most 16 MiB"),
    (spelled({"schema_version": 3}), "schema_version is 3; expected 2, or none"),
    (spelled({"schema_version": "2"}), "schema_version is 2; expected 2, or none"),
    (spelled({"schema_version": True}), "schema_version is True; expected 2, or none"),
]


@pytest.mark.parametrize(("data", "message"), HOSTILE, ids=[message[:30] for _, message in HOSTILE])
@pytest.mark.parametrize("salvage", [False, True])
def test_what_no_record_can_hold_is_refused_with_a_sentence(
    data: bytes, message: str, salvage: bool
) -> None:
    with pytest.raises(RecordError) as caught:
        parse_record(data, "r.json", salvage=salvage)
    assert str(caught.value).startswith("r.json: ")
    assert message in str(caught.value)
    assert len(str(caught.value)) < 300


PROBLEMS = [
    ("byte-order-mark", b"\xef\xbb\xbf" + GOOD, "begins with a byte order mark"),
    (
        "duplicate-key",
        GOOD.replace(b'"tokens_in": 1200', b'"tokens_in": 1, "tokens_in": 1200'),
        "has the key 'tokens_in' twice in one object",
    ),
    ("unknown-key", spelled(tree(colour="red")), "colour is not a key of the format"),
    (
        "unknown-key",
        spelled(tree(**{"inputs.input_files": [{"path": "a", "hash": "0" * 64, "size": 3}]})),
        "inputs.input_files[0].size is not a key of the format",
    ),
    (
        "token-algebra",
        spelled(tree(**{"cost.cache_read_tokens": 1201})),
        "cost has 1,201 cached tokens (read 1,201, written unknown) of 1,200 input tokens",
    ),
    ("hollow-complete", read_data("g1-complete-hollow.json"), "which is not a SHA-256"),
    ("bad-addition", spelled(tree(**{"task.visibility": "secret"})), "task.visibility is 'secret'"),
]


@pytest.mark.parametrize(("code", "data", "message"), PROBLEMS)
def test_strict_refuses_what_salvage_gets_over(code: str, data: bytes, message: str) -> None:
    with pytest.raises(RecordError) as caught:
        parse_record(data, "r.json")
    assert str(caught.value).startswith("r.json: ")
    assert message in str(caught.value)
    loaded = parse_record(data, "r.json", salvage=True)
    assert [note.code for note in loaded.diagnostics] == [code]
    assert message in loaded.diagnostics[0].message
    assert loaded.record.trial_id == "trial-001"
    assert loaded.original == data


def test_unknown_keys_are_kept_beside_the_record() -> None:
    loaded = parse_record(spelled(tree(colour={"r": 255})), "x", salvage=True)
    assert [(kept.path, kept.value, kept.is_known) for kept in loaded.kept] == [
        (("colour",), {"r": 255}, False)
    ]
    assert loaded.generation == "G1"


def test_a_wrong_type_is_refused_even_beside_an_unknown_key() -> None:
    document = {**without("task.task_id"), "colour": 1}
    with pytest.raises(RecordError, match=r"task\.task_id is missing"):
        parse_record(spelled(document), "x", salvage=True)


def test_a_rule_between_fields_is_seen_beside_an_unknown_key() -> None:
    document = tree(**{"evaluation.validity.output_parseable": False, "colour": 1})
    with pytest.raises(RecordError, match="output_parseable is false"):
        parse_record(spelled(document), "x", salvage=True)


def test_a_hollow_record_names_every_field_in_order() -> None:
    document = tree(
        **{
            "agent.adapter_revision": None,
            "environment.tool_versions": None,
            "inputs.input_files": None,
        }
    )
    with pytest.raises(IncompleteRecordError) as caught:
        parse_record(spelled(document), "r.json")
    assert caught.value.missing == (
        "agent.adapter_revision",
        "environment.tool_versions",
        "inputs.input_files",
    )
    assert codes(spelled(document)) == ["hollow-complete"] * 3


def test_a_time_without_an_offset_is_a_note() -> None:
    loaded = parse_record(spelled(tree(timestamp="2026-03-13T10:00:00")), "x")
    assert [(note.code, note.is_problem) for note in loaded.diagnostics] == [
        ("naive-timestamp", False)
    ]


@pytest.mark.parametrize(
    ("name", "generation"),
    [("g1-complete.json", "G1"), ("g1-partial.json", "G1"), ("g1x.json", "G1x")],
)
def test_the_generation_is_told(name: str, generation: str) -> None:
    loaded = parse_record(read_data(name), name)
    assert loaded.generation == generation
    assert loaded.diagnostics == ()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"outputs.terminated": True, "outputs.truncated": True}, "are both true"),
        ({"outputs.terminated": 1}, "outputs.terminated is 1; expected true or false"),
        ({"outputs.final_reason": ""}, "expected text that is not blank, or null"),
        ({"cost.model_calls": -1}, "expected a whole number, 0 or more, or null"),
        ({"lifecycle_execution": {}}, "without lifecycle_provenance; expected both or neither"),
        ({"lifecycle_provenance": {}}, "without lifecycle_execution; expected both or neither"),
        ({"outputs.artifacts": [{"kind": "a"}]}, "an artifact is {'kind': 'a'}; expected kind"),
        ({"outputs.artifacts": 7}, "an artifact is 7; expected kind"),
        (
            {
                "episode_artifact": {
                    "kind": "a",
                    "path": "b",
                    "sha256": "A" * 64,
                    "media_type": "c",
                }
            },
            "64 lower-case hex digits",
        ),
    ],
)
def test_added_keys_have_their_rules(changes: Json, message: str) -> None:
    with pytest.raises(RecordError) as caught:
        parse_record(spelled(tree(**changes)), "x")
    assert message in str(caught.value)


@given(st.binary(max_size=60))
def test_no_bytes_break_the_reader(data: bytes) -> None:
    with pytest.raises(RecordError):
        parse_record(data, "x", salvage=True)


@given(st.data())
def test_no_damage_breaks_the_reader(data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(GOOD) - 1))
    damage = data.draw(st.binary(max_size=4))
    cut = data.draw(st.integers(0, 5))
    damaged = GOOD[:at] + damage + GOOD[at + cut :]
    try:
        loaded = parse_record(damaged, "x", salvage=True)
    except RecordError as error:
        assert str(error).startswith("x: ")  # noqa: PT017 - most damage is refused, some is not
    else:
        assert loaded.original == damaged


_NUMBERS = ["0", "-0", "-0.0", "1.0", "1e5", "1E-7", "0.1", "0.10", "5e-324", "9" * 30, "9" * 5000]
_TEXTS = ['"a"', '"é"', '"\\u00e9"', '"\\ud800"', '"\\/"', '"{[["', '"\\n"']
_SCALARS = st.sampled_from([*_NUMBERS, *_TEXTS, "true", "null", "NaN", "1e999", "01"])
_KEYS = st.sampled_from(['"a"', '"b"', '"\\u0061"', '"é"', "1"])


def _nest(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    arrays = st.lists(inner).map(lambda items: f"[{','.join(items)}]")
    pairs = st.lists(st.tuples(_KEYS, inner)).map(
        lambda found: ", ".join(f"{key} :{value}" for key, value in found)
    )
    deep = st.tuples(inner, st.sampled_from([1, 75, 149, 150, 151, 160]))
    return (
        arrays | pairs.map("{{{}}}".format) | deep.map(lambda of: "[" * of[1] + of[0] + "]" * of[1])
    )


@given(st.recursive(_SCALARS, _nest, max_leaves=8).map(lambda text: f'{{"x": {text}}}'.encode()))
def test_plain_documents_are_read_as_all_others_are(data: bytes) -> None:
    def read(data: bytes) -> tuple[str, list[str]]:
        try:
            found = parse_document(data, "x")
        except RecordError as error:
            return str(error).partition(" at ")[0], []
        return repr(found.tree), [note.code for note in found.diagnostics]

    # A document with a mark is never plain.
    value, codes = read(codecs.BOM_UTF8 + data)
    assert (value, codes[1:]) == read(data)


# Files


def test_a_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    path.write_bytes(GOOD)
    assert load_record(path).record == parse_record(GOOD, "x").record


def test_what_cannot_be_read_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match="absent: cannot be read: No such file or directory"):
        load_record(tmp_path / "absent")
    with pytest.raises(RecordError, match="is not a regular file; expected a record"):
        load_record(tmp_path)


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    pipe = tmp_path / "record.json"
    os.mkfifo(pipe)
    with pytest.raises(RecordError, match="is not a regular file; expected a record"):
        load_record(pipe)


def test_a_huge_file_is_refused_unread(tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    with path.open("wb") as file:
        file.truncate(200 << 20)
    with pytest.raises(RecordError, match="209,715,200 bytes; expected a record"):
        load_record(path)


def test_a_message_about_a_file_names_it(tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    path.write_text(json.dumps(tree(colour=1)))
    with pytest.raises(RecordError, match=f"^{path}: colour is not a key of the format$"):
        load_record(path)
