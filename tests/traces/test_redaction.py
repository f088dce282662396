"""Values given as secrets do not reach the file; what was replaced is counted."""

import base64
import hashlib
import json
import re
from pathlib import Path
from typing import Any
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proctor.traces.trajectory import load_trajectory
from proctor.traces.writer import Redactor, TrajectoryWriter
from tests.examples import examples

KEY = 'sk-"abc"\n/+é\\123 !'


def with_small_escapes(encoded: str) -> str:
    """A part of a URL with its escapes in lower case."""
    return re.sub("%..", lambda escape: escape[0].lower(), encoded)


@pytest.mark.parametrize(
    ("secrets", "text", "redacted"),
    [
        ({"A": "hunter22"}, "is hunter22.", "is [redacted:A]."),
        (["hunter22"], "hunter22hunter22", "[redacted][redacted]"),
        ({"A": "abcd", "B": "abcdef"}, "abcdef abcd", "[redacted:B] [redacted:A]"),
        ({"A": "abcd", "B": "cdef"}, "abcdef", "[redacted:A]"),
        ({"A": "aaaa"}, "aaaaaa", "[redacted:A]"),
        ({"A": ""}, "anything", "anything"),
        ({"A": "acted"}, "acted", "***"),
        ({"SECRET": "CRET"}, "CRET", "[redacted]"),
        ({"A": "ab[re", "B": "wxyz"}, "abwxyz", "***"),
        ({"A": "\udc80abc"}, "x\\udc80abc", "x[redacted:A]"),
    ],
)
def test_a_secret_is_replaced(secrets: Any, text: str, redacted: str) -> None:
    assert Redactor(secrets).redact_text(text) == redacted


@pytest.mark.parametrize("before", ["", "u", "us", "user:"])
@pytest.mark.parametrize("after", ["", "@", "@host"])
def test_a_secret_is_found_in_the_forms_it_travels_in(before: str, after: str) -> None:
    whole = before + KEY + after
    forms = [
        whole,
        json.dumps(whole),
        json.dumps(whole, ensure_ascii=False),
        *(
            json.dumps([json.dumps([whole], ensure_ascii=inner)], ensure_ascii=outer)
            for inner in (True, False)
            for outer in (True, False)
        ),
        repr(whole),
        repr(whole + "'"),
        *(
            form
            for encoded in (
                quote(whole, safe=""),
                quote(whole),
                quote(whole, safe="!'()*"),
                quote_plus(whole),
            )
            for form in (encoded, with_small_escapes(encoded))
        ),
        base64.b64encode(whole.encode()).decode(),
        base64.urlsafe_b64encode(whole.encode()).decode(),
    ]
    redactor = Redactor({"KEY": KEY})
    for form in forms:
        redacted = redactor.redact_text(f"<{form}>")
        assert "[redacted:KEY]" in redacted
        assert "123" not in redacted
    assert redactor.report()[0]["count"] == len(forms)


@pytest.mark.parametrize("given", ["hunter2/hunter2\n", " \thunter2/hunter2\r\n\n"])
@pytest.mark.parametrize(
    "text",
    [
        "hunter2/hunter2",
        "hunter2/hunter2\n",
        json.dumps("hunter2/hunter2\n"),
        "hunter2%2Fhunter2",
        "hunter2%2fhunter2%0a",
        base64.b64encode(b"user:hunter2/hunter2").decode(),
        base64.b64encode(b"hunter2/hunter2\n").decode(),
    ],
)
def test_a_secret_is_found_without_the_line_end_it_was_read_with(given: str, text: str) -> None:
    redactor = Redactor({"A": given})
    redacted = redactor.redact_text(f"<{text}>")
    assert "[redacted:A]" in redacted
    assert "unter" not in redacted
    assert redactor.report()[0]["count"] == 1


def test_what_is_left_without_blanks_may_be_too_short_to_look_for() -> None:
    redactor = Redactor({"A": "abc\n"})
    assert redactor.redact_text("abc, abc\n") == "abc, [redacted:A]"


def test_a_secret_without_its_line_end_is_another_where_that_was_given_too() -> None:
    redactor = Redactor({"B": "hunter22", "A": "hunter22\n"})
    assert redactor.redact_text("hunter22") == "[redacted:B]"


@pytest.mark.parametrize(
    ("secret", "shown"),
    [
        ("it's a key", '["it\'s a key"]'),
        ("it's a key", "['\"it\\'s a key\"']"),
        ('a "key" it is', "['a \"key\" it is']"),
        ("both ' and \"", "['both \\' and \"']"),
        ("C:\\key\x07\u200b", "['C:\\\\key\\x07\\u200b']"),
    ],
)
def test_a_secret_is_found_as_python_shows_it(secret: str, shown: str) -> None:
    assert shown in (repr([secret]), repr([f'"{secret}"']))
    redacted = Redactor([secret]).redact_text(shown)
    assert "[redacted]" in redacted
    assert not re.search("key|both", redacted)


def test_a_short_secret_has_no_base64_that_could_be_told_from_text() -> None:
    encoded = base64.b64encode(b"abcdefg").decode()
    assert Redactor(["abcdefg"]).redact_text(encoded) == encoded


@pytest.mark.parametrize(
    ("secrets", "error", "sentence"),
    [
        ({"PIN": "123"}, ValueError, "secret PIN has 3 characters; expected 4 or more"),
        (["long enough", "x"], ValueError, "secret 2 has 1 characters; expected 4 or more"),
        ("hunter22", TypeError, "secrets is one text; expected a mapping"),
        ([1234], TypeError, "secret 1 is int; expected text"),
    ],
)
def test_secrets_that_cannot_be_replaced_are_refused(
    secrets: Any, error: type[Exception], sentence: str
) -> None:
    with pytest.raises(error, match=sentence) as failure:
        Redactor(secrets)
    assert "hunter22" not in str(failure.value)


def test_whoever_knows_the_secret_can_confirm_what_was_replaced() -> None:
    redactor = Redactor({"A": "hunter22", "B": "not seen"}, salt=b"salt")
    redactor.redact({"hunter22": ["hunter22", {"x": "hunter22"}]})
    digest = hashlib.sha256(b"salt" + b"hunter22").hexdigest()
    found = {"name": "A", "count": 3, "salt": b"salt".hex(), "salted_sha256": digest}
    assert redactor.report() == [found]


def test_two_redactors_do_not_share_a_salt() -> None:
    salts = set()
    for _ in range(2):
        redactor = Redactor(["hunter22"])
        redactor.redact_text("hunter22")
        salts.add(redactor.report()[0]["salt"])
    assert len(salts) == 2
    assert {len(salt) for salt in salts} == {32}


def test_overlapping_secrets_are_both_counted_and_nested_ones_once() -> None:
    redactor = Redactor({"A": "abcd", "B": "cdef", "C": "bc" * 2, "D": "aaaa"})
    redactor.redact_text("abcdef")
    redactor.redact_text("aaaaaa")
    assert [(found["name"], found["count"]) for found in redactor.report()] == [
        ("A", 1),
        ("B", 1),
        ("D", 1),
    ]


def test_a_name_that_gives_the_secret_away_is_not_reported() -> None:
    redactor = Redactor({"hunter22": "hunter22"})
    assert redactor.redact_text("hunter22") == "[redacted]"
    assert redactor.report()[0]["name"] is None


def test_keys_numbers_and_every_field_are_redacted(tmp_path: Path) -> None:
    path = tmp_path / "t"
    with TrajectoryWriter(path, secrets={"PIN": "918273", "WORD": "hunter22"}) as trace:
        trace.system("hunter22")
        trace.new_step("hunter22")
        trace.tool_call(
            "hunter22", "echo hunter22", {"hunter22": 918273, "n": [91827364, 0.918273]}
        )
        trace.tool_result(
            "t",
            "hunter22",
            "hunter22",
            media=["hunter22.png"],
            metadata={"a": {"hunter22": b"hunter22"}},
        )
        trace.entry(
            role="hunter22", exit_code="hunter22", timestamp="hunter22", command=["hunter22"]
        )
    written = path.read_bytes()
    assert b"hunter22" not in written
    assert b"918273" not in written
    called = load_trajectory(str(path)).entries[1]
    assert called.arguments == {
        "[redacted:WORD]": "[redacted:PIN]",
        "n": ["[redacted:PIN]64", "0.[redacted:PIN]"],
    }


def test_keys_that_become_one_word_stay_two(tmp_path: Path) -> None:
    redacted = Redactor(["hunter22", "hunter33"]).redact({"hunter22": 1, "hunter33": 2})
    assert redacted == {"[redacted]": 1, "[redacted]#2": 2}


def test_the_words_of_the_format_are_kept_though_they_be_secrets(tmp_path: Path) -> None:
    path = tmp_path / "t"
    with TrajectoryWriter(path, secrets=["user", "main", "role", "step"]) as trace:
        trace.new_step("main")
        trace.user("the role of user main")
    (entry,) = load_trajectory(str(path)).entries
    assert (entry.role, entry.call_type) == ("user", "main")
    assert entry.content == "the [redacted] of [redacted] [redacted]"


def test_a_summary_does_not_show_the_half_of_a_secret(tmp_path: Path) -> None:
    path = tmp_path / "t"
    with TrajectoryWriter(path, secrets={"A": "hunter22"}) as trace:
        trace.tool_result("t", "x" * 195 + "hunter22" + "y" * 50)
    (entry,) = load_trajectory(str(path)).entries
    assert entry.output_summary == "x" * 195 + "[reda…"


def test_one_redactor_serves_several_writers(tmp_path: Path) -> None:
    redactor = Redactor({"A": "hunter22"})
    for name in "ab":
        with TrajectoryWriter(tmp_path / name, secrets=redactor) as trace:
            trace.user("hunter22")
    assert redactor.report()[0]["count"] == 2


def strings_in(value: Any) -> list[str]:
    """Every string of a value, keys too."""
    if isinstance(value, dict):
        return [text for pair in value.items() for item in pair for text in strings_in(item)]
    if isinstance(value, list):
        return [text for item in value for text in strings_in(item)]
    return [value] if isinstance(value, str) else []


SECRETS = st.lists(st.text(st.characters(), min_size=4, max_size=8), min_size=1, max_size=4)
# No character here is one that JSON escapes or that the format's own words are made of.
PLAIN_SECRETS = st.lists(st.text("QXZ#%é[]", min_size=4, max_size=6), min_size=1, max_size=4)


@st.composite
def texts_with(draw: st.DrawFn, secrets: list[str]) -> str:
    """A text made of secrets, halves of secrets, and other things."""
    pieces = [piece for secret in secrets for piece in (secret, secret[:3], secret[-2:])]
    return "".join(
        draw(st.lists(st.sampled_from([*pieces, " ", "[redacted"]) | st.text(max_size=3)))
    )


@settings(max_examples=examples(300))
@given(st.data(), SECRETS | PLAIN_SECRETS, st.booleans())
def test_no_secret_is_left_in_any_string(
    data: st.DataObject, secrets: list[str], named: bool
) -> None:
    redactor = Redactor({f"N{at}": s for at, s in enumerate(secrets)} if named else secrets)
    text = data.draw(texts_with(secrets))
    value = data.draw(st.dictionaries(texts_with(secrets), texts_with(secrets), max_size=2))
    found = [redactor.redact_text(text), *strings_in(redactor.redact({"k": [value]}))]
    assert [s for s in secrets for left in found if s in left] == []


@settings(max_examples=examples(100))
@given(st.data(), PLAIN_SECRETS)
def test_no_secret_is_left_in_the_bytes_of_a_line(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, secrets: list[str]
) -> None:
    path = tmp_path_factory.mktemp("redacted") / "t"
    with TrajectoryWriter(path, secrets=secrets) as trace:
        trace.user(data.draw(texts_with(secrets)))
        text = data.draw(texts_with(secrets))
        trace.tool_call(text, text, {text: [text]})
        trace.tool_result(text, text * 9, text, media=[text], metadata={"a": {text: text}})
    written = path.read_text(encoding="utf-8")
    assert [secret for secret in secrets if secret in written] == []
    assert len(load_trajectory(str(path)).entries) == 3
