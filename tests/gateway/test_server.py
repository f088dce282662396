"""The gateway between real clients and a provider: what passes, is recorded, is refused."""

import asyncio
import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from proctor import backoff
from proctor.gateway import server
from proctor.gateway.budget import Limits
from tests.gateway.conftest import Opened, OpenIt
from tests.gateway.providers import KEY, Provider, Reply
from tests.gateway.raw import until
from tests.lazy_imports import LazyModule

OPENAI = LazyModule("openai")

# The clients ask `uname` what they run on.
pytestmark = pytest.mark.process

HELLO: list[Any] = [{"role": "user", "content": "hello"}]


def make_client(at: Opened, **more: Any) -> Any:
    return OPENAI.AsyncOpenAI(
        base_url=at.env["OPENAI_BASE_URL"], api_key=at.env["OPENAI_API_KEY"], **more
    )


async def ask(at: Opened, **more: Any) -> Any:
    async with make_client(at, max_retries=0) as client:
        return await client.chat.completions.create(model="gpt-4o", messages=HELLO, **more)


async def stream(at: Opened) -> list[Any]:
    async with make_client(at, max_retries=0) as client:
        answer = await client.chat.completions.create(model="gpt-4o", messages=HELLO, stream=True)
        return [chunk async for chunk in answer]


def test_an_answer_is_delivered_recorded_and_priced(opened: OpenIt, provider: Provider) -> None:
    provider.script = [Reply(text="hi", input_tokens=1000, output_tokens=100, cached_tokens=400)]

    async def run() -> None:
        async with opened() as at:
            answer = await ask(at)
            use = at.account.summarize()
            [recorded] = at.calls
        assert answer.choices[0].message.content == "hi"
        assert (use.n_requests, use.usage.input, use.usage.output) == (1, 1000, 100)
        assert use.usage.cache_read == 400
        assert use.models == (provider.model,)
        assert use.basis is not None
        assert use.basis.amount_usd == pytest.approx(0.003)
        assert json.loads(recorded.request)["messages"] == HELLO
        assert json.loads(recorded.response)["model"] == provider.model
        assert (recorded.call.status, recorded.call.ended) == (200, "complete")

    asyncio.run(run())


def test_the_provider_gets_the_key_and_the_agent_a_token(
    opened: OpenIt, provider: Provider, tmp_path: Path
) -> None:
    async def run() -> None:
        async with opened() as at:
            await ask(at)
            assert KEY not in json.dumps(at.env)
            assert at.env["OPENAI_API_KEY"].startswith("proctor-")

    asyncio.run(run())
    assert provider.asked[0].headers["authorization"] == f"Bearer {KEY}"
    for file in tmp_path.rglob("*"):
        assert not file.is_file() or KEY.encode() not in file.read_bytes()


def test_a_stream_is_delivered_as_it_is_without_the_usage_that_was_added(
    opened: OpenIt, provider: Provider
) -> None:
    provider.script = [Reply(text="a longer answer in pieces", input_tokens=7, output_tokens=9)]

    async def run() -> None:
        async with opened() as at:
            chunks = await stream(at)
            use, [recorded] = at.account.summarize(), at.calls
        said = "".join(c.choices[0].delta.content or "" for c in chunks)
        assert said == "a longer answer in pieces"
        assert all(chunk.choices for chunk in chunks)
        assert (use.usage.input, use.usage.output) == (7, 9)
        assert recorded.call.edits == ("stream_options.include_usage",)
        assert "stream_options" not in json.loads(recorded.request)
        assert b'"choices": []' in recorded.response

    asyncio.run(run())
    assert provider.asked[0].body["stream_options"] == {"include_usage": True}


@pytest.mark.parametrize("where", ["x", "wrong", "proctor-" + "x" * 32])
def test_a_wrong_token_is_refused(opened: OpenIt, provider: Provider, where: str) -> None:
    async def run() -> None:
        async with opened() as at, httpx.AsyncClient() as client:
            url = f"{at.env['OPENAI_BASE_URL']}/chat/completions"
            answer = await client.post(url, headers={"authorization": f"Bearer {where}"}, json={})
        assert answer.status_code == 401
        assert "token" in answer.json()["error"]["message"]

    asyncio.run(run())
    assert not provider.asked


def test_a_token_works_only_while_its_phase_runs(opened: OpenIt, provider: Provider) -> None:
    async def run() -> None:
        async with opened() as at:
            token, other = at.env["OPENAI_API_KEY"], at.gateway
            async with at.account.opened():
                pass
            async with httpx.AsyncClient() as client:
                url = f"{other.base}/openai/v1/models"
                answer = await client.get(url, headers={"authorization": f"Bearer {token}"})
        assert answer.status_code == 401
        assert "its phase is over" in answer.text

    asyncio.run(run())
    assert not provider.asked


@pytest.mark.parametrize(
    "line",
    [
        "GET http://example.com/ HTTP/1.1",
        "CONNECT example.com:443 HTTP/1.1",
        "GET /openai/../secret HTTP/1.1",
        "GET /openai/v1/../../secret HTTP/1.1",
        "GET /openai/v2/models HTTP/1.1",
        "PUT /openai/v1/models HTTP/1.1",
        "GET /elsewhere/v1/models HTTP/1.1",
    ],
)
def test_it_is_no_proxy_to_anything_else(opened: OpenIt, provider: Provider, line: str) -> None:
    async def run() -> bytes:
        async with opened() as at:
            reader, writer = await asyncio.open_connection("127.0.0.1", at.gateway.port or 0)
            token = at.env["OPENAI_API_KEY"]
            head = f"{line}\r\nHost: example.com\r\nAuthorization: Bearer {token}\r\n\r\n"
            writer.write(head.encode())
            status = await asyncio.wait_for(reader.readline(), 5)
            writer.close()
            return status

    assert asyncio.run(run()).split()[1] in (b"400", b"401", b"404", b"405")
    assert not provider.asked


def test_a_limit_refuses_the_next_request_and_says_so(opened: OpenIt, provider: Provider) -> None:
    async def run() -> None:
        async with opened(trial_limits=Limits(requests=2)) as at:
            await ask(at)
            await ask(at)
            with pytest.raises(OPENAI.PermissionDeniedError, match="limit reached: requests"):
                await ask(at)
            assert at.account.summarize().limit is not None
            assert [each.call.ended for each in at.calls] == ["complete", "complete", "refused"]

    asyncio.run(run())
    assert len(provider.asked) == 2


def test_a_limit_on_cost_holds_with_requests_in_flight(opened: OpenIt, provider: Provider) -> None:
    # $0.0025 each: 1,000 input tokens of gpt-4o.
    provider.script = [Reply(text="x", input_tokens=1000, output_tokens=0)]

    async def run() -> float:
        async with opened(trial_limits=Limits(cost_usd=0.01)) as at:
            for _ in range(10):
                asked = await asyncio.gather(ask(at), ask(at), return_exceptions=True)
                if any(isinstance(each, OPENAI.PermissionDeniedError) for each in asked):
                    break
            return at.account.budgets[0].spent.cost_usd

    # At most one request more than the limit: the other one was in flight.
    assert 0.01 <= asyncio.run(run()) <= 0.0125 + 1e-9


def test_a_limit_on_cost_without_a_price_is_refused_after_one_answer(
    opened: OpenIt, provider: Provider
) -> None:
    provider.model = "a-model-nobody-prices"

    async def run() -> None:
        async with opened(trial_limits=Limits(cost_usd=1.0)) as at, make_client(at) as client:
            await client.chat.completions.create(model="unpriced", messages=HELLO)
            with pytest.raises(OPENAI.PermissionDeniedError, match="cannot be enforced"):
                await client.chat.completions.create(model="unpriced", messages=HELLO)

    asyncio.run(run())


def test_a_failure_that_passes_is_retried_and_recorded(
    opened: OpenIt, provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backoff, "_FIRST_WAIT", 0.01)
    wait = (("retry-after-ms", "20"),)
    provider.script = [Reply(status=429, headers=wait), Reply(status=503), Reply(text="at last")]

    async def run() -> None:
        async with opened() as at:
            answer = await ask(at)
            [recorded] = at.calls
        assert answer.choices[0].message.content == "at last"
        assert [retry.status for retry in recorded.call.retries] == [429, 503]
        assert recorded.call.retries[0].waited == 0.02

    asyncio.run(run())


def test_a_provider_that_stays_down_is_an_outage(
    opened: OpenIt, provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backoff, "_FIRST_WAIT", 0.001)
    provider.script = [Reply(status=503, error=f"down, {KEY}")]

    async def run() -> None:
        async with opened() as at:
            at.account.n_retries = 2
            with pytest.raises(OPENAI.InternalServerError) as raised:
                await ask(at)
            outage = at.account.summarize().outage
        assert KEY not in str(raised.value)
        assert outage is not None
        assert "503" in outage
        assert KEY not in outage

    asyncio.run(run())
    # The client honours x-should-retry, and asks once.
    assert len(provider.asked) == 3


def test_a_used_up_account_is_not_retried(opened: OpenIt, provider: Provider) -> None:
    provider.script = [Reply(status=429, error="insufficient_quota: buy more")]

    async def run() -> None:
        async with opened() as at:
            with pytest.raises(OPENAI.RateLimitError, match="insufficient_quota"):
                await ask(at)

    asyncio.run(run())
    assert len(provider.asked) == 1


def test_an_answer_that_breaks_off_is_cut_for_the_client_too(
    opened: OpenIt, provider: Provider
) -> None:
    provider.script = [Reply(text="an answer that is cut", cut_after=150)]

    async def run() -> None:
        async with opened() as at:
            with pytest.raises((OPENAI.APIError, httpx.HTTPError)):
                await stream(at)
            await asyncio.sleep(0.05)
            [recorded] = at.calls
        assert recorded.call.ended == "cut"

    asyncio.run(run())


def test_a_client_that_vanishes_is_recorded(opened: OpenIt, provider: Provider) -> None:
    provider.script = [Reply(text="late", wait_sec=0.5)]

    async def run() -> None:
        async with opened() as at:
            with pytest.raises(OPENAI.APITimeoutError):
                await ask(at, timeout=0.1)
            await asyncio.sleep(0.2)
            [recorded] = at.calls
            assert at.account.summarize().basis is None
            await ask(at)
            basis = at.account.summarize().basis
            assert basis is not None
            assert basis.amount_usd is not None
            assert basis.notes[-1].startswith("a request ended before its answer")
        assert recorded.call.ended == "client-gone"

    asyncio.run(run())


def test_a_redirect_is_not_followed(opened: OpenIt, provider: Provider) -> None:
    provider.script = [Reply(status=307, headers=(("location", "http://127.0.0.1:1/evil"),))]

    async def run() -> None:
        async with opened() as at:
            with pytest.raises(OPENAI.APIStatusError, match="not followed"):
                await ask(at)

    asyncio.run(run())
    assert len(provider.asked) == 1


@pytest.mark.parametrize("body", [b"", b"{", b"\xff\xfe\x00", b"[1, 2", b'"text"', b"{}" * 9])
def test_bytes_that_cannot_be_understood_are_delivered(
    opened: OpenIt, provider: Provider, body: bytes
) -> None:
    provider.script = [Reply(raw=body)]

    async def run() -> bytes:
        async with opened() as at, httpx.AsyncClient() as client:
            token = at.env["OPENAI_API_KEY"]
            url = f"{at.env['OPENAI_BASE_URL']}/chat/completions"
            answer = await client.post(url, headers={"authorization": f"Bearer {token}"}, json={})
            await until(lambda: len(at.calls) == 1)
            assert at.calls[0].response == body
            return answer.content

    assert asyncio.run(run()) == body


def test_a_request_that_is_too_large_is_refused(
    opened: OpenIt, provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "LARGEST_REQUEST", 1000)

    async def run() -> None:
        async with opened() as at:
            with pytest.raises(OPENAI.APIStatusError, match="more than 1,000 bytes"):
                await ask(at, user="x" * 2000)

    asyncio.run(run())
    assert not provider.asked


def test_a_long_conversation_grows_linearly(opened: OpenIt, provider: Provider) -> None:
    async def run() -> int:
        async with opened() as at, make_client(at) as client:
            messages: list[Any] = [{"role": "system", "content": "s" * 2000}]
            for turn in range(40):
                messages.append({"role": "user", "content": f"{turn} " + "u" * 1000})
                await client.chat.completions.create(model="gpt-4o", messages=messages)
            bodies = [json.loads(each.request)["messages"] for each in at.calls]
            assert [len(each) for each in bodies] == list(range(2, 42))
            return (at.directory / "model-calls.jsonl").stat().st_size

    # 40 kB were said; sent as they are, the requests would be 900 kB.
    assert asyncio.run(run()) < 120_000
