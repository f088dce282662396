"""Clients that misbehave: nothing is sent on that should not be, and others do not notice."""

import asyncio
import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from proctor.gateway import account, gateway, server
from proctor.gateway.account import Account
from proctor.gateway.budget import Limits
from proctor.harbor.configs import AgentConfig
from tests.gateway.conftest import Opened, OpenIt, OpenRaw
from tests.gateway.providers import KEY, Provider, Reply
from tests.gateway.raw import CHAT, SSE, chunked, hang, says, sized, until

pytestmark = pytest.mark.process

ANSWER = sized(b"{}")


@pytest.mark.parametrize(
    "path",
    [
        "/openai/v1/%2e%2e/admin",
        "/openai/v1/%2E%2e%2fadmin",
        "/openai/v1/..%2fadmin",
        "/openai/v1/%252e%252e/admin",
        "/openai/v1/..%5cadmin",
        "/openai/v1/..;x/admin",
        "/openai/v1/a%0d%0ahost:%20evil",
        "/openai//v1/models",
        "//openai/v1/models",
        "/openai/V1/models",
        "/openai/v1models",
        "/openai@127.0.0.1:1/v1/models",
        "/t/openai/v1/models",
        "/%6fpenai/v1/models",
    ],
)
def test_no_spelling_of_a_path_leads_elsewhere(opened_raw: OpenRaw, path: str) -> None:
    async def run() -> bytes:
        async with opened_raw(says(ANSWER)) as (at, raw):
            said = await at.talk(at.make_request(f"GET {path}"))
            assert not raw.asked
            return said

    assert asyncio.run(run()).split()[1] in (b"401", b"404")


@pytest.mark.parametrize(
    "query",
    [
        "key=T",
        "KEY=T",
        "k%65y=T",
        "api_key=T",
        "Api-Key=T",
        "access_token=T&x=1",
        "x=1&%6b%65%79=T",
    ],
)
def test_a_credential_of_the_query_is_neither_sent_on_nor_recorded(
    opened_raw: OpenRaw, query: str
) -> None:
    async def run() -> None:
        async with opened_raw(says(ANSWER)) as (at, raw):
            token = at.account.token
            target = f"/gemini/v1beta/models?pageToken=7&{query.replace('T', token)}"
            line = f"GET {target} HTTP/1.1\r\nHost: x\r\n\r\n"
            assert b"200 OK" in await at.talk(line.encode())
            await until(lambda: at.account.n_held == 0)
            [sent] = raw.asked
            assert token.encode() not in sent
            assert b"pageToken=7" in sent
            assert token not in at.calls[0].call.path

    asyncio.run(run())


def test_headers_of_the_connection_and_credentials_are_not_sent_on(opened_raw: OpenRaw) -> None:
    more = [
        *(b"Connection: keep-alive, X-Own", b"X-Own: 1", b"TE: trailers", b"Cookie: a=b"),
        *(b"X-Api-Key: mine", b"Api-Key: mine", b"X-HTTP-Method-Override: DELETE"),
        *(b"Proxy-Authorization: mine", b"X-Odd: \xc3\x28\xff", b"X-Twice: 1", b"X-Twice: 2"),
    ]

    async def run() -> bytes:
        async with opened_raw(says(ANSWER)) as (at, raw):
            request = at.make_request(f"POST {CHAT}", b"{}", *more)
            assert b"200 OK" in await at.talk(request)
            return raw.asked[0]

    sent = asyncio.run(run())
    assert sent.lower().count(b"authorization:") == 1
    assert f"Bearer {KEY}".encode() in sent
    assert b"X-Odd: \xc3\x28\xff".lower() in sent.lower()
    assert sent.lower().count(b"x-twice:") == 2
    for name in (b"x-own", b"te:", b"cookie", b"mine", b"override", b"proctor-"):
        assert name not in sent.lower()


def test_a_request_with_two_lengths_is_one_request(opened_raw: OpenRaw) -> None:
    smuggled = b"GET /openai/v1/secret HTTP/1.1\r\nHost: x\r\n\r\n"

    async def run() -> None:
        async with opened_raw(says(ANSWER)) as (at, raw):
            both = at.make_request(f"POST {CHAT}", b"", b"Transfer-Encoding: chunked")
            await at.talk(both + b"0\r\n\r\n" + smuggled)
            twice = at.make_request(f"POST {CHAT}", b"x" * 50, b"Content-Length: 3")
            assert b" 400 " in await at.talk(twice)
            await asyncio.gather(*at.account.under_way, return_exceptions=True)
            assert all(b"secret" not in each for each in raw.asked)
            assert len(raw.asked) <= 1

    asyncio.run(run())


@pytest.mark.parametrize("method", ["HEAD", "OPTIONS", "PUT", "PATCH", "TRACE", "PROPFIND"])
def test_other_methods_are_refused(opened_raw: OpenRaw, method: str) -> None:
    async def run() -> bytes:
        async with opened_raw(says(ANSWER)) as (at, raw):
            said = await at.talk(at.make_request(f"{method} {CHAT}"))
            assert not raw.asked
            return said

    assert b" 405 " in asyncio.run(run())


def test_a_client_may_wait_for_continue(opened_raw: OpenRaw) -> None:
    async def run() -> bytes:
        async with opened_raw(says(ANSWER)) as (at, raw):
            request = at.make_request(f"POST {CHAT}", b"{}", b"Expect: 100-continue")
            said = await at.talk(request, seconds=0.5)
            assert b"expect" not in raw.asked[0].lower()
            return said

    assert b"200 OK" in asyncio.run(run())


STAGES = ["line", "head", "no-body", "half-body", "waiting", "first-chunk"]


@pytest.mark.parametrize("stage", STAGES)
def test_a_client_that_vanishes_leaves_a_usable_gateway(
    opened_raw: OpenRaw, provider: Provider, stage: str
) -> None:
    async def answer(writer: asyncio.StreamWriter) -> None:
        if stage == "first-chunk":
            writer.write(SSE + b"3\r\nabc\r\n")
        await hang(writer)

    async def run() -> None:
        async with opened_raw(answer) as (at, raw):
            whole = at.make_request(f"POST {CHAT}", b"x" * 1000)
            ends = dict(zip(STAGES, [9, 60, len(whole) - 1000, len(whole) - 500], strict=False))
            reader, writer = await asyncio.open_connection("127.0.0.1", at.gateway.port)
            writer.write(whole[: ends.get(stage, len(whole))])
            await writer.drain()
            if stage not in ends:
                await until(lambda: len(raw.asked) == 1)
            if stage == "first-chunk":
                await reader.readuntil(b"abc")
            writer.transport.abort()
            await until(lambda: not at.account.under_way)
            assert (len(raw.asked) == 1) == (stage not in ends)
            if stage not in ends:
                assert [each.call.ended for each in at.calls] == ["client-gone"]
            assert at.account.n_held == 0
            await check_usable(at, provider)

    asyncio.run(run())


async def check_usable(at: Opened, provider: Provider) -> None:
    models = await at.talk(at.make_request("GET /openai/elsewhere", b""))
    assert b" 404 " in models


def test_a_request_that_never_ends_is_refused_in_time(
    opened_raw: OpenRaw, provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "REQUEST_SEC", 0.1)

    async def run() -> None:
        async with opened_raw(says(ANSWER)) as (at, raw):
            said = await at.talk(at.make_request(f"POST {CHAT}", b"x" * 100)[:-1])
            assert b" 408 " in said
            assert not raw.asked
            await check_usable(at, provider)

    asyncio.run(run())


def test_a_connection_without_a_request_is_closed(
    opened_raw: OpenRaw, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gateway, "_FIRST_SEC", 0.05)

    async def run() -> None:
        async with opened_raw(says(ANSWER)) as (at, _):
            reader, writer = await asyncio.open_connection("127.0.0.1", at.gateway.port)
            writer.write(b"GET / HTTP/1.1\r\nX: ")
            assert await asyncio.wait_for(reader.read(), 5) == b""
            writer.close()

    asyncio.run(run())


def test_requests_of_one_trial_are_held_in_bounded_memory(
    opened_raw: OpenRaw, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(account, "MOST_HELD", 1_000_000)

    async def run() -> None:
        async with opened_raw(hang) as (at, raw):
            asking = [asyncio.create_task(at.post(b"x" * 400_000)) for _ in range(2)]
            await until(lambda: len(raw.asked) == 2)
            assert (await at.post(b"x" * 400_000)).status_code == 429
            for task in asking:
                task.cancel()
            await until(lambda: at.account.n_held == 0)

    asyncio.run(run())


def test_a_token_used_twenty_times_at_once_is_recorded_twenty_times(
    opened: OpenIt, provider: Provider
) -> None:
    provider.script = [Reply(text="hi", wait_sec=0.05)]

    async def run() -> None:
        async with opened() as at:
            bodies = [json.dumps({"messages": ["x" * 99, n]}).encode() for n in range(20)]
            answers = await asyncio.gather(*(at.post(body) for body in bodies))
            assert {each.status_code for each in answers} == {200}
            assert sorted(each.request for each in at.calls) == sorted(bodies)
            assert at.account.summarize().n_requests == 20

    asyncio.run(run())


def test_a_token_counts_for_its_own_trial_only(
    opened: OpenIt, provider: Provider, tmp_path: Path
) -> None:
    async def run() -> None:
        async with opened(trial_limits=Limits(requests=1)) as at:
            config = AgentConfig(name="command", model_name="gpt-4o")
            other = at.gateway.open_agent("other", str(tmp_path / "other"), config, {})
            assert isinstance(other, Account)
            # Not yet open, then open, then closed.
            there = Opened(at.gateway, other, tmp_path / "other")
            assert (await there.post()).status_code == 401
            async with other.opened():
                assert (await there.post()).status_code == 200
                assert (await at.post()).status_code == 200
                assert (await there.post()).status_code == 403
            assert (await there.post()).status_code == 401
            assert len(at.calls) == 1
            assert [each.call.ended for each in there.calls] == ["complete", "refused"]

    asyncio.run(run())


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/openai/v1/completions", 403),
        ("/openai/v1/chat//completions", 403),
        ("/openai/v1/embeddings", 403),
        ("/openai/v1/chat%2fcompletions", 200),
        ("/anthropic/v1/messages/count_tokens", 200),
    ],
)
def test_a_limit_on_cost_cannot_be_bypassed_by_another_path(
    opened: OpenIt, provider: Provider, path: str, status: int
) -> None:
    async def run() -> int:
        async with opened(trial_limits=Limits(cost_usd=1.0)) as at:
            return (await at.post(path=path)).status_code

    assert asyncio.run(run()) == status


PIECES = st.sampled_from(
    [
        *(b"GET ", b"POST ", b"CONNECT ", b" HTTP/1.1\r\n", b" HTTP/1.0\r\n", b"\r\n", b"\r\n\r\n"),
        *(b"/openai/v1/chat/completions", b"/openai/v1/models", b"/t/x/openai/v1/models", b"/"),
        *(b"http://127.0.0.1:1/", b"Host: x\r\n", b"Content-Length: 2\r\n", b"{}", b"0\r\n\r\n"),
        *(
            b"Transfer-Encoding: chunked\r\n",
            b"Authorization: Bearer ",
            b"x-api-key: proctor-x\r\n",
        ),
        *(b"Connection: Upgrade\r\nUpgrade: websocket\r\n", b"Expect: 100-continue\r\n", b"\0\xff"),
        *(b"Content-Length: 99999999999\r\n", b"X: " + b"y" * 70_000, b"PRI * HTTP/2.0\r\n\r\nSM"),
    ]
)
SAID = st.lists(st.one_of(PIECES, st.binary(max_size=20)), max_size=12).map(b"".join)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=10)
@given(spoken=st.lists(SAID, min_size=8, max_size=20))
def test_no_bytes_without_a_token_reach_a_provider_or_end_the_gateway(
    opened_raw: OpenRaw, spoken: list[bytes]
) -> None:
    check_withstands(opened_raw, spoken)


@pytest.mark.soak
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=200)
@given(spoken=st.lists(SAID, min_size=8, max_size=40))
def test_no_bytes_without_a_token_reach_a_provider_in_many_more_tries(
    opened_raw: OpenRaw, spoken: list[bytes]
) -> None:
    check_withstands(opened_raw, spoken)


def check_withstands(opened_raw: OpenRaw, spoken: list[bytes]) -> None:
    async def run() -> None:
        async with opened_raw(says(chunked(b"data: {}\n\n"))) as (at, raw):
            await asyncio.gather(*(at.talk(data, seconds=0.05) for data in spoken))
            assert not raw.asked
            assert (await at.post()).status_code == 200
            assert len(raw.asked) == 1

    asyncio.run(run())
