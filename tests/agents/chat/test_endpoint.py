"""An endpoint that misbehaves: what is tried again, what is an error, and which."""

import gzip
import socket
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from proctor.errors import (
    ModelAnswerError,
    ModelAuthError,
    ModelContextError,
    ModelError,
    ModelNotFoundError,
    ModelRateLimitError,
    ModelRequestError,
    ModelServerError,
    ModelTimeoutError,
    ModelUnreachableError,
)
from proctor.record.reasons import FINAL, RETRYABLE, reason_for_exception
from tests.agents.chat.server import (
    Reply,
    answers,
    babbles,
    chunk,
    completion,
    drips,
    floods,
    hangs_up,
    refuses,
    runs,
    says,
    sends,
    serving,
    streams,
    tool_call,
    waits,
)
from tests.agents.chat.talks import KEY, fail, talk


@cache
def bomb() -> bytes:
    """A body that takes thousands of times as much room as on the wire."""
    return gzip.compress(bytes(64 << 20))


def packed(status: int) -> Reply:
    """Such a body as the answer."""
    return lambda connection: connection.send(status, bomb(), {"content-encoding": "gzip"})


CUT_BODY = sends(b'{"choices": [{"message": {"cont', length=900)
CUT_STREAM = streams(chunk({"content": "Do"}), ending="")
EVENTS = "text/event-stream"
HALF_CALL = streams(chunk({"tool_calls": [{"index": 0, **tool_call('{"command": "r')}]}), ending="")


@pytest.mark.parametrize(
    "bad",
    [
        refuses(500),
        refuses(503),
        refuses(529, "overloaded"),
        refuses(408),
        refuses(429, "slow down", code="rate_limit_exceeded"),
        refuses(429, "too many tokens per minute"),
        hangs_up(),
        CUT_BODY,
        CUT_STREAM,
        HALF_CALL,
        sends(b"<html>a proxy</html>"),
        sends(b'{"choices": [], "model": "x"}'),
        sends(b'{"choices": [{"message": null}]}'),
        sends(b'{"choices": [{"message": {"content": "\\ud800"}}]}'),
        sends(b"[" * 100_000),
        sends(b"data: {oops}\n\n", "text/event-stream"),
        sends(b"what?\n\n", "text/event-stream"),
        sends(b"data: [DONE]\n\n", "text/event-stream"),
        answers({"error": {"message": "upstream is gone"}}),
        answers({"error": {"message": "upstream is gone", "code": 502}}),
        streams({"error": {"message": "upstream is gone"}}),
        streams(chunk({"content": "Half"}, "error")),
        answers({"choices": [{"message": {"content": "Half"}, "finish_reason": "error"}]}),
        answers({"choices": [{"message": {"content": "Half"}, "error": {"code": 502}}]}),
        # A limit of a minute, for all that it says of billing.
        refuses(429, "You exceeded your current quota, please check your plan and billing details"),
    ],
)
def test_what_may_pass_is_tried_again(tmp_path: Path, bad: Reply) -> None:
    with serving(bad, bad, says("Done.")) as up:
        run = talk(tmp_path, up, stream=True)
    assert len(up.asked) == 3
    assert run.waits == [0.75, 1.5]
    assert (run.told["retries"], run.told["turns"], run.told["ended"]) == (2, 1, "answer")
    (said,) = run.of("assistant")
    assert said.metadata is not None
    assert said.metadata["atif"]["llm_call_count"] == 3
    assert run.commands == []


@pytest.mark.parametrize(
    ("bad", "kind", "sentence"),
    [
        (refuses(429, "slow"), ModelRateLimitError, "HTTP 429: slow; fewer trials at once"),
        (refuses(502, "bad gateway"), ModelServerError, "HTTP 502: bad gateway"),
        (hangs_up(), ModelUnreachableError, "the connection was interrupted: Server disconnected"),
        (CUT_BODY, ModelUnreachableError, "the connection was interrupted: peer closed connection"),
        (CUT_STREAM, ModelUnreachableError, "the stream ended before the answer did"),
        (
            sends(b"<html>"),
            ModelAnswerError,
            "the answer is not a chat completion: JSON is malformed",
        ),
        (sends(b"{}"), ModelAnswerError, "the answer contains no choice with a message"),
    ],
)
def test_what_does_not_pass_is_an_error_of_its_kind(
    tmp_path: Path, bad: Reply, kind: type[ModelError], sentence: str
) -> None:
    with serving(bad) as up:
        error, run = fail(tmp_path, up, retries=1)
        shown = f"{up.url}/chat/completions: {sentence}"
    assert type(error) is kind
    assert str(error).startswith(shown)
    assert str(error).endswith(" (asked 2 times)")
    assert len(up.asked) == 2
    assert (run.told["ended"], run.told["retries"]) == ("error", 1)
    assert run.entries[-1].content == f"proctor ended the run: {error}"
    assert run.context.n_input_tokens is None


@pytest.mark.parametrize("slow", [waits(), drips()])
def test_an_answer_that_is_not_whole_in_time_is_tried_again_and_then_an_error(
    tmp_path: Path, slow: Reply
) -> None:
    with serving(slow) as up:
        error, run = fail(tmp_path, up, retries=1, request_timeout_sec=0.2)
    assert type(error) is ModelTimeoutError
    said = "no complete answer after 0.2 s (request_timeout_sec) (asked 2 times)"
    assert str(error) == f"{up.url}/chat/completions: {said}"
    assert len(run.waits) == 1


@pytest.mark.parametrize(
    ("bad", "kind", "sentence"),
    [
        (refuses(401, "bad key"), ModelAuthError, "HTTP 401: bad key; is OPENAI_API_KEY the key"),
        (refuses(403, "not yours"), ModelAuthError, "HTTP 403: not yours; may the key"),
        (refuses(404, "no model x"), ModelNotFoundError, "HTTP 404: no model x; is base_url right"),
        (refuses(400, "bad top_p"), ModelRequestError, "HTTP 400: bad top_p"),
        (
            refuses(400, "This model takes 8 tokens", code="context_length_exceeded"),
            ModelContextError,
            "HTTP 400: This model takes 8 tokens; the conversation exceeds",
        ),
        (
            refuses(500, "the request exceeds the available context size"),
            ModelContextError,
            "HTTP 500: the request exceeds",
        ),
        (
            answers({"error": {"message": "maximum context length is 8"}}),
            ModelContextError,
            "an error instead of an answer: maximum context length is 8",
        ),
        (
            refuses(429, "You are out of money", code="insufficient_quota"),
            ModelRateLimitError,
            "HTTP 429: You are out of money",
        ),
        (
            refuses(503, "retried already", {"x-should-retry": "false"}),
            ModelServerError,
            "HTTP 503: retried already",
        ),
        (
            refuses(302, "", {"location": "http://elsewhere/v1"}),
            ModelRequestError,
            "HTTP 302: redirects to http://elsewhere/v1; set that as base_url",
        ),
        (
            sends(b'[{"error": {"code": 400, "message": "no thought_signature"}}]', status=400),
            ModelRequestError,
            "HTTP 400: no thought_signature",
        ),
        (
            refuses(400, "The input token count exceeds the maximum number of tokens allowed"),
            ModelContextError,
            "HTTP 400: The input token count",
        ),
        (
            packed(200),
            ModelAnswerError,
            "the answer is compressed (gzip), although the request accepts only plain ones",
        ),
        (packed(400), ModelRequestError, "HTTP 400: no reason given"),
        (floods(50 << 20), ModelAnswerError, "the answer has more than 33,554,432 bytes"),
        (
            floods(50 << 20, "text/event-stream"),
            ModelAnswerError,
            "the answer has more than 33,554,432 bytes",
        ),
    ],
)
def test_what_would_fail_again_is_not_asked_again(
    tmp_path: Path, bad: Reply, kind: type[ModelError], sentence: str
) -> None:
    with serving(bad) as up:
        error, run = fail(tmp_path, up)
        shown = f"{up.url}/chat/completions: {sentence}"
    assert type(error) is kind
    assert str(error).startswith(shown)
    assert (len(up.asked), run.waits) == (1, [])


def test_nobody_at_the_address_is_an_error_of_its_own(tmp_path: Path) -> None:
    with socket.socket() as taken:
        # Bound and not listening: connections are refused, and nobody else gets the port.
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        error, run = fail(tmp_path, url, retries=2)
    assert type(error) is ModelUnreachableError
    assert "no connection: Connection refused; is the endpoint up" in str(error)
    assert len(run.waits) == 2


def test_a_failure_later_on_leaves_what_was_done_and_spent(tmp_path: Path) -> None:
    with serving(runs("touch f"), refuses(401)) as up:
        error, run = fail(tmp_path, up)
    assert type(error) is ModelAuthError
    assert (run.place.root / "work" / "f").exists()
    assert (run.context.n_input_tokens, run.told["turns"]) == (100, 1)


def test_words_of_an_endpoint_are_one_line_without_the_key(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rude = refuses(500, f"key {KEY}\n\x1b[2J{'x' * 5000}")
    with serving(rude) as up:
        error, run = fail(tmp_path, up, retries=1)
    assert "key [redacted:OPENAI_API_KEY] [2Jxxx" in str(error)
    assert len(str(error)) < 700
    trace = (run.place.trial_paths.agent_dir / "trajectory.jsonl").read_text()
    assert KEY not in str(error) + trace + caplog.text
    assert "retrying in 0.8 s (1 of 1)" in caplog.text


@pytest.mark.parametrize("n_before", [455, 484, 492])
@pytest.mark.parametrize(
    "say",
    [
        lambda text: refuses(500, text),
        lambda text: refuses(302, headers={"location": text}),
        lambda text: answers({"error": {"message": text}}),
        lambda text: sends(text.encode() + b"\n", EVENTS),
        babbles,
    ],
)
def test_no_part_of_a_key_is_left_where_words_are_cut(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, say: Callable[[str], Reply], n_before: int
) -> None:
    rude = say("x" * n_before + KEY)
    with serving(rude) as up:
        error, run = fail(tmp_path, up, retries=1)
    trace = (run.place.trial_paths.agent_dir / "trajectory.jsonl").read_text()
    assert "xxx" in str(error)
    assert KEY[:4] not in str(error) + trace + caplog.text


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("ALL_PROXY", "gopher://me:secret@h", "Unknown scheme for proxy URL"),
        ("HTTP_PROXY", "http://me:secret@h:port", "Invalid port: 'port'"),
        ("SSL_CERT_FILE", "/gone", "No such file or directory"),
    ],
)
def test_variables_that_cannot_be_used_are_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, value: str, said: str
) -> None:
    monkeypatch.setenv(name, value)
    error, _ = fail(tmp_path, "http://127.0.0.1:1/v1")
    assert type(error) is ModelRequestError
    assert said in str(error)
    assert "are the variables for proxies (such as ALL_PROXY)" in str(error)
    assert "secret" not in str(error)


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "7"}, 7.0),
        ({"retry-after-ms": "250", "retry-after": "7"}, 0.25),
        ({"retry-after": "100000"}, 300.0),
        ({"retry-after": "soon"}, 0.75),
        ({"retry-after": "-1"}, 0.75),
    ],
)
def test_the_endpoint_is_given_the_time_it_asks_for(
    tmp_path: Path, headers: dict[str, str], seconds: float
) -> None:
    with serving(refuses(429, headers=headers), says("Done.")) as up:
        run = talk(tmp_path, up)
    assert run.waits == [seconds]


def test_reason_codes_tell_what_may_pass_from_what_will_not() -> None:
    passing: list[type[ModelError]] = [
        *(ModelUnreachableError, ModelTimeoutError, ModelServerError, ModelRateLimitError)
    ]
    lasting: list[type[ModelError]] = [
        *(ModelAuthError, ModelNotFoundError, ModelContextError),
        *(ModelRequestError, ModelAnswerError),
    ]
    assert {reason_for_exception(kind.__name__) for kind in passing} <= RETRYABLE
    assert {reason_for_exception(kind.__name__) for kind in lasting} <= FINAL
    # One that was in time itself must not be taken for an agent that was not.
    assert not issubclass(ModelTimeoutError, TimeoutError)


def test_a_stream_without_a_last_word_is_whole_once_the_model_has_stopped(tmp_path: Path) -> None:
    with serving(streams(chunk({"content": "Done."}, "stop"), ending="")) as up:
        assert talk(tmp_path, up, stream=True).told["ended"] == "answer"


def test_calls_that_all_have_the_number_0_are_told_apart(tmp_path: Path) -> None:
    begun = [{"index": 0, **tool_call({"command": f"echo {n}"}, call_id=f"c{n}")} for n in (1, 2)]
    whole = [chunk({"tool_calls": [call]}) for call in begun]
    with serving(streams(*whole, chunk({}, "tool_calls")), says("Done.")) as up:
        run = talk(tmp_path, up, stream=True)
    assert run.commands == ["echo 1", "echo 2"]


def test_a_call_whose_pieces_have_ids_of_their_own_is_one_call(tmp_path: Path) -> None:
    begun = {"index": 0, **tool_call('{"command": "ec', call_id="c1")}
    more = {"index": 0, "id": "c2", "function": {"arguments": 'ho 1"}'}}
    pieces = [chunk({"tool_calls": [piece]}) for piece in (begun, more)]
    with serving(streams(*pieces, chunk({}, "tool_calls")), says("Done.")) as up:
        run = talk(tmp_path, up, stream=True)
    assert run.commands == ["echo 1"]


@pytest.mark.parametrize("stream", [False, True])
def test_no_end_of_calls_is_no_answer_and_keeps_nobody_waiting(
    tmp_path: Path, stream: bool
) -> None:
    many = {"tool_calls": [{"index": n} for n in range(30_000)]}
    endless = streams(chunk(many, "stop")) if stream else answers(completion(many))
    with serving(endless) as up:
        error, run = fail(tmp_path, up, retries=0)
    assert type(error) is ModelAnswerError
    assert "the answer has 30,000 calls; expected 1,000 at most" in str(error)
    assert run.of("tool_call") == []


def test_no_two_calls_have_one_id(tmp_path: Path) -> None:
    begun = [tool_call({"command": "true"}, call_id=given) for given in ("call_2", "", "call_2")]
    with serving(answers(completion({"tool_calls": begun})), says("Done.")) as up:
        talk(tmp_path, up)
    told = up.asked[1].body["messages"][-3:]
    assert [message["tool_call_id"] for message in told] == ["call_2", "call_1", "call_3"]


def test_calls_without_ids_or_numbers_are_told_apart(tmp_path: Path) -> None:
    begun: list[dict[str, Any]] = [tool_call({"command": f"echo {n}"}) for n in (1, 2)]
    with serving(
        streams(chunk({"tool_calls": begun}), chunk({}, "tool_calls")), says("Done.")
    ) as up:
        run = talk(tmp_path, up, stream=True)
    told = up.asked[1].body["messages"][-2:]
    assert [message["tool_call_id"] for message in told] == ["c1", "call_1"]
    assert run.commands == ["echo 1", "echo 2"]
