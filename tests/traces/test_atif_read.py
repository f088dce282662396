"""ATIF files, good and bad: strict refuses with a sentence, salvage keeps what can be kept."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proctor.errors import TraceError
from proctor.traces.atif.model import UNKNOWN_AGENT, Agent, Atif
from proctor.traces.atif.read import has_doubled_key, load_atif, parse_atif
from proctor.traces.atif.rules import render_atif
from tests.examples import examples
from tests.traces.atif_mutations import DATA, changed, every_field
from tests.traces.atif_values import documents

SMALL = {
    "agent": {"name": "a", "version": "1"},
    "steps": [{"step_id": 1, "source": "user", "message": "x", "extra": {"k": 1}}],
}
TEXT = json.dumps(SMALL).encode()


def put(path: tuple[str | int, ...], value: Any) -> bytes:
    """The small document with another value somewhere, as a file has it."""
    return json.dumps(changed(SMALL, path, value)).encode()


def codes_of(data: bytes) -> list[str]:
    """The codes of what a salvaging reader says."""
    return [each.code for each in parse_atif(data, salvage=True).diagnostics]


# Good documents


def test_a_document_with_every_field_is_read_whole() -> None:
    data = (DATA / "every-field.json").read_bytes()
    read = parse_atif(data)
    assert (read.diagnostics, read.kept) == ((), {})
    document = json.loads(data)
    # A null and no field are the same.
    del document["steps"][2]["observation"]["results"][2]["content"]
    assert json.loads(render_atif(read.atif)) == document


@given(documents())
@settings(max_examples=examples(30))
def test_what_is_written_is_read_again_as_it_was(atif: Atif) -> None:
    data = render_atif(atif)
    assert data.endswith(b"}\n")
    assert parse_atif(data).atif == atif
    # The slow way gives the same.
    assert parse_atif(data.replace(b'"ATIF-v1.7"', b'"ATIF-v1.\\u0037"')).atif == atif


def test_a_document_is_written_with_two_spaces_and_without_escapes() -> None:
    document = changed(SMALL, ("steps", 0, "message"), "é\u2028")
    atif = parse_atif(json.dumps(document).encode()).atif
    written = {"schema_version": "ATIF-v1.7", **document}
    expected = json.dumps(written, indent=2, ensure_ascii=False) + "\n"
    assert render_atif(atif).decode() == expected


def test_values_of_a_neighbouring_type_are_read_with_a_note() -> None:
    read = parse_atif(put(("steps", 0, "step_id"), "1"))
    assert read.atif.steps[0].step_id == 1
    (note,) = read.diagnostics
    assert (note.code, note.is_problem) == ("other-type", False)
    assert note.message == 'steps[0].step_id is "1", read as 1; expected a whole number'


def test_a_whole_number_stays_what_it_was_however_large() -> None:
    atif = parse_atif(put(("steps", 0, "extra"), {"n": 10**300 + 1, "m": -(2**63) - 1})).atif
    assert atif.steps[0].extra == {"n": 10**300 + 1, "m": -(2**63) - 1}
    assert parse_atif(render_atif(atif)).atif == atif


def test_the_verdicts_of_the_validator_that_knows_v1_8_are_ours() -> None:
    given_ = json.loads((DATA / "v1.8-verdicts.json").read_bytes())
    differing = []
    for path, value, taken in given_["verdicts"]:
        data = json.dumps(changed(given_["document"], tuple(path), value)).encode()
        problems = [d for d in parse_atif(data, salvage=True).diagnostics if d.is_problem]
        if taken == bool(problems):
            differing.append((path, value, taken, problems))
    assert differing == []
    assert len(given_["verdicts"]) > 500


def test_audio_is_for_v1_8_alone() -> None:
    sound = [{"type": "audio", "source": {"media_type": "audio/wav", "path": "a.wav"}}]
    data = put(("steps", 0, "message"), sound)
    with pytest.raises(
        TraceError, match=r'steps\[0\]\.message\[0\]\.type is "audio"; expected one'
    ):
        parse_atif(data)
    later = json.dumps({"schema_version": "ATIF-v1.8", **json.loads(data)}).encode()
    assert parse_atif(later).diagnostics == ()


# Bad files


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (b"", "the file is empty; expected an ATIF document, a JSON object"),
        (b" \r\n\t", "the file is empty; expected an ATIF document, a JSON object"),
        (b"[]", "the document is an array; expected a JSON object"),
        (b"5", "the document is a single value; expected a JSON object"),
        (b'{\n"a" 1}', "not JSON at column 5: Expecting ':' delimiter; expected an ATIF"),
        (TEXT + b"x", "not JSON at column"),
        (TEXT[:-5], "not JSON at column"),
        (TEXT.replace(b'"x"', b'"\x01"'), "not JSON at column"),
        (b'{"extra":' * 100_000, "nested too deeply to be read as an ATIF document"),
        (b'{"notes":' + b"9" * 5000 + b"}", "holds a number of too many digits to be read"),
    ],
    ids=lambda each: each[:20] if isinstance(each, str) else "",
)
@pytest.mark.parametrize("salvage", [False, True])
def test_what_is_no_json_object_is_refused_by_both_tempers(
    data: bytes, sentence: str, salvage: bool
) -> None:
    with pytest.raises(TraceError) as caught:
        parse_atif(data, name="t.json", salvage=salvage)
    assert str(caught.value).startswith("t.json:")
    assert sentence in str(caught.value)


@pytest.mark.parametrize(
    ("data", "code", "sentence"),
    [
        (
            b"\xef\xbb\xbf" + TEXT,
            "byte-order-mark",
            "the file starts with a byte order mark; expected none",
        ),
        (
            b"\n" + TEXT.replace(b'"x"', b'"\xff"'),
            "invalid-utf-8",
            "byte 97 is not UTF-8; expected UTF-8 text",
        ),
        (
            TEXT.replace(b'"k": 1', b'"k": 1, "k": 2'),
            "duplicate-key",
            "steps[0].extra.k occurs twice in one object, first as 1; expected once",
        ),
        (
            TEXT.replace(b'"k": 1', b'"k": NaN'),
            "not-a-json-number",
            "steps[0].extra.k is nan; expected a finite number",
        ),
        (
            TEXT.replace(b'"k": 1', b'"k": [-1e999]'),
            "not-a-json-number",
            "steps[0].extra.k[0] is -inf; expected a finite number",
        ),
        (
            TEXT.replace(b'"k": 1', b'"k": "\\ud800"'),
            "half-character",
            "steps[0].extra.k is '\\ud800', with half of a surrogate pair; expected text",
        ),
        (
            TEXT.replace(b'"k": 1', b'"\\udfff": 1'),
            "half-character",
            "a key of steps[0].extra is '\\udfff', with half of a surrogate pair",
        ),
    ],
    ids=lambda each: each[:20] if isinstance(each, str) else "",
)
def test_what_can_be_repaired_is_an_error_or_a_diagnostic(
    data: bytes, code: str, sentence: str
) -> None:
    with pytest.raises(TraceError) as caught:
        parse_atif(data, name="t.json")
    assert sentence in str(caught.value)
    read = parse_atif(data, salvage=True)
    assert [each.code for each in read.diagnostics] == [code]
    assert (read.atif.agent, len(read.atif.steps)) == (Agent(name="a", version="1"), 1)
    assert parse_atif(render_atif(read.atif)).atif == read.atif


def test_the_last_of_doubled_keys_counts_wherever_they_stand() -> None:
    data = TEXT.replace(b'"message": "x"', b'"message": "no", "message": "x"')
    assert codes_of(data) == ["duplicate-key"]
    assert parse_atif(data, salvage=True).atif == parse_atif(TEXT).atif


@pytest.mark.parametrize(
    ("text", "doubled"),
    [
        (b'{"a":1,"b":{"a":2}}', False),
        (b'{"a":1,"a":1}', True),
        (b'{"a":[{"b":1,"b":2}]}', True),
        (b'{"a":"::\\n:","b":":"}', False),
        (b'{"a":1,"a":"\\u003a"}', True),
        (b'{"a":{"x":":"},"a":{"x":":"}}', True),
    ],
)
def test_doubled_keys_are_never_passed_over(text: bytes, doubled: bool) -> None:
    assert has_doubled_key(text) is doubled


def test_a_file_is_read_from_disk_and_called_by_its_name(tmp_path: Path) -> None:
    path = tmp_path / "trajectory.json"
    path.write_bytes(TEXT)
    assert load_atif(path).atif == parse_atif(TEXT).atif
    path.write_bytes(TEXT + b"]")
    with pytest.raises(TraceError, match=rf"^{path}:1: not JSON"):
        load_atif(path)


def test_what_is_no_file_is_refused_with_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="cannot be read: No such file"):
        load_atif(tmp_path / "none.json")
    with pytest.raises(TraceError, match="cannot be read: Is a directory"):
        load_atif(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(TraceError, match=r"pipe: (cannot be read|the file is empty)"):
        load_atif(tmp_path / "pipe")


# Salvage


def test_an_unknown_key_is_kept_beside_the_document() -> None:
    read = parse_atif(put(("steps", 0, "mood"), ["calm"]), salvage=True)
    assert read.kept == {"steps[0].mood": ["calm"]}
    assert read.atif == parse_atif(TEXT).atif
    assert [str(d) for d in read.diagnostics] == [
        "steps[0].mood is not a field of ATIF; expected only those"
    ]


def test_a_field_of_a_wrong_type_is_kept_beside_and_the_rest_goes_on() -> None:
    document = changed(every_field(), ("steps", 2, "metrics", "prompt_tokens"), "many")
    document["steps"][2]["tool_calls"][0] = "bash"
    document["steps"][1] = 7
    document["agent"]["version"] = None
    read = parse_atif(json.dumps(document).encode(), salvage=True)
    assert {"steps[2].metrics.prompt_tokens", "steps[2].tool_calls[0]", "steps[1]"} < set(read.kept)
    assert [step.step_id for step in read.atif.steps] == [1, 3, 4, 5]
    assert (read.atif.agent.name, read.atif.agent.version) == ("walker", "unknown")
    metrics = read.atif.steps[1].metrics
    assert metrics is not None
    assert (metrics.prompt_tokens, metrics.completion_tokens) == (None, 20)


def test_nothing_but_an_object_still_is_a_document_to_salvage() -> None:
    read = parse_atif(b'{"hello": 1}', salvage=True)
    assert (read.atif, read.kept) == (Atif(agent=UNKNOWN_AGENT, steps=()), {"hello": 1})
    assert codes_of(b'{"hello": 1}') == [
        "missing-field",
        "missing-field",
        "unknown-key",
        "no-steps",
    ]


# Rules


@pytest.mark.parametrize(
    ("path", "value", "code", "message"),
    [
        (("schema_version",), "2", "version", 'schema_version is "2"; expected one of ATIF-v1.0'),
        (("steps",), [], "no-steps", "steps is empty; expected at least one step"),
        (
            ("steps", 3, "step_id"),
            9,
            "step-order",
            "steps[3].step_id is 9; expected 4, as steps are counted from 1",
        ),
        (
            ("steps", 3, "source"),
            "tool",
            "source",
            'steps[3].source is "tool"; expected system, user or agent',
        ),
        (
            ("steps", 3, "timestamp"),
            "noon",
            "timestamp",
            'steps[3].timestamp is "noon"; expected an ISO 8601 time',
        ),
        (
            ("steps", 3, "metrics"),
            {},
            "agent-only",
            'steps[3].metrics is in a step whose source is "user"; only agent steps have it',
        ),
        (
            ("steps", 4, "metrics"),
            {},
            "no-model-call",
            "steps[4].metrics is in a step whose llm_call_count is 0; "
            "expected none without a model call",
        ),
        (
            ("steps", 4, "llm_call_count"),
            -1,
            "negative-count",
            "steps[4].llm_call_count is -1; expected 0 or more",
        ),
        (
            ("final_metrics", "total_steps"),
            -1,
            "negative-count",
            "final_metrics.total_steps is -1; expected 0 or more",
        ),
        (
            ("steps", 2, "tool_calls", 0, "tool_call_id"),
            "z",
            "call-id",
            'steps[2].observation.results[1].source_call_id is "a"; expected the tool_call_id of',
        ),
        (
            ("steps", 1, "message", 1, "source", "media_type"),
            "image/bmp",
            "content-part",
            'steps[1].message[1].source.media_type is "image/bmp"; expected one of image/jpeg',
        ),
        (
            ("steps", 1, "message", 1, "source", "duration_sec"),
            None,
            "content-part",
            "steps[1].message[1].source.duration_sec is not an image's",
        ),
        (
            ("steps", 2, "observation", "results", 0, "subagent_trajectory_ref", 0),
            {"session_id": "s"},
            "subagent-ref",
            "steps[2].observation.results[0].subagent_trajectory_ref[0] has neither",
        ),
        (
            ("subagent_trajectories", 0, "trajectory_id"),
            None,
            "subagent-id",
            "subagent_trajectories[0].trajectory_id is missing; an embedded trajectory needs one",
        ),
        (
            ("subagent_trajectories", 0, "steps", 0, "step_id"),
            0,
            "step-order",
            "subagent_trajectories[0].steps[0].step_id is 0; expected 1",
        ),
    ],
)
def test_a_broken_rule_is_named_with_its_place(
    path: tuple[str | int, ...], value: Any, code: str, message: str
) -> None:
    data = json.dumps(changed(every_field(), path, value)).encode()
    (found,) = parse_atif(data, salvage=True).diagnostics
    assert found.code == code
    assert found.message.startswith(message)
    with pytest.raises(TraceError) as caught:
        parse_atif(data, name="t.json")
    assert str(caught.value) == f"t.json: {found.message}"


def test_a_document_that_breaks_a_rule_is_not_written() -> None:
    broken = parse_atif(put(("steps", 0, "step_id"), 3), salvage=True).atif
    with pytest.raises(TraceError, match=r"cannot be written: steps\[0\]\.step_id is 3"):
        render_atif(broken)
    later = parse_atif(json.dumps({"schema_version": "ATIF-v1.8", **SMALL}).encode()).atif
    with pytest.raises(TraceError, match=r"the document is ATIF-v1\.8; expected ATIF-v1\.7"):
        render_atif(later)


@settings(max_examples=examples(150))
@given(st.data())
def test_no_bytes_make_the_reader_crash(data: st.DataObject) -> None:
    text = bytearray((DATA / "every-field.json").read_bytes())
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, len(text) - 1))
        text[place : place + data.draw(st.integers(0, 4))] = data.draw(st.binary(max_size=4))
    try:
        read = parse_atif(bytes(text), salvage=True)
    except TraceError:
        read = None
    if read is not None and not any(each.is_problem for each in read.diagnostics):
        assert parse_atif(bytes(text)) == read
    else:
        with pytest.raises(TraceError, match=r"^trajectory\.json:"):
            parse_atif(bytes(text))
