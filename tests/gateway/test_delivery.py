"""What is taken out of an answer on its way: keys, and the usage that was not asked for."""

import json
from tempfile import TemporaryDirectory

from hypothesis import given
from hypothesis import strategies as st

from proctor.gateway.delivery import KeyFilter, UsageFilter
from proctor.gateway.recording import Call, CallWriter, read_calls

KEYS = [b"sk-aab-aab-aac", b"aab-aabb"]
TEXTS = st.lists(st.sampled_from([*KEYS, b"sk-", b"aab", b"-", b"a", b"x\n", KEYS[0][:9]])).map(
    b"".join
)


def cut(data: bytes, at: list[int]) -> list[bytes]:
    ends = sorted({min(each, len(data)) for each in at} | {len(data)})
    return [data[start:end] for start, end in zip([0, *ends], ends, strict=False)]


@given(TEXTS, st.lists(st.integers(0, 60)))
def test_no_key_passes_wherever_the_chunks_end(text: bytes, at: list[int]) -> None:
    hidden = KeyFilter(KEYS)
    passed = b"".join([*map(hidden.feed, cut(text, at)), hidden.finish()])
    assert len(passed) == len(text)
    assert not any(key in passed for key in KEYS)
    if not any(key in text for key in KEYS):
        assert passed == text


EVENT = b'data: {"choices": [{"delta": "x"}], "usage": null}\n\n'
USAGE = b'data: {"choices": [], "usage": {"prompt_tokens": 1}}\n\n'
LONG = b'data: {"choices": [], "usage": {"x": "' + b"y" * 20_000 + b'"}}\r\n\r\n'
PARTS = st.lists(st.sampled_from([EVENT, USAGE, LONG, b": ping\r\n\r\n", b"data: [DONE]\n\n"]))


@given(PARTS, st.lists(st.integers(0, 90_000)), st.sampled_from([b"", b"data: no end", USAGE[:-2]]))
def test_only_the_usage_is_held_back_wherever_the_chunks_end(
    events: list[bytes], at: list[int], rest: bytes
) -> None:
    usage = UsageFilter()
    chunks = cut(b"".join(events) + rest, at)
    passed = b"".join([*map(usage.feed, chunks), usage.finish()])
    expected = b"".join(event for event in events if event is not USAGE)
    assert passed == expected + (b"" if rest == USAGE[:-2] else rest)


MESSAGES = st.lists(st.sampled_from(["a" * 300, "ü" * 200, "b", "\N{OLD ITALIC LETTER A}" * 90]))


@given(
    st.lists(st.tuples(MESSAGES, st.sampled_from(["s" * 400, "t" * 900])), min_size=1, max_size=25)
)
def test_bodies_are_read_back_to_the_byte_in_any_order(
    bodies: list[tuple[list[str], str]],
) -> None:
    with TemporaryDirectory() as directory:
        path = f"{directory}/calls"
        sent = [json.dumps(body, ensure_ascii=False).encode() for body in bodies]
        writer = CallWriter(path)
        for number, body in enumerate(sent):
            call = Call(number=number, at="", provider="", address="", method="", path="")
            writer.append(call, body, b"")
        writer.close()
        assert [each.request for each in read_calls(path)] == sent
