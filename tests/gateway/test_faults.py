"""Providers and disks that fail: the client gets what there is, and the record says what was."""

import asyncio
import gzip
import json
import logging
import os
import resource
import time
import zlib
from pathlib import Path
from typing import Any

import httpx
import pytest

from proctor.gateway import server
from proctor.gateway.recording import Call, CallWriter, read_calls
from tests.gateway.conftest import OpenIt, OpenRaw
from tests.gateway.providers import KEY, Provider, Reply, render
from tests.gateway.raw import CHAT, HEAD, SSE, chunked, hang, says, sized, until

pytestmark = pytest.mark.process

GOOD = render(CHAT, {}, Reply(text="hi", input_tokens=5, output_tokens=3), "gpt-4o")[1]
EVENTS = render(CHAT, {"stream": True}, Reply(text="some words"), "gpt-4o")[1]


def test_an_account_with_requests_in_flight_ends_at_once(
    opened_raw: OpenRaw, opened: OpenIt
) -> None:
    async def run() -> float:
        async with opened_raw(hang) as (at, raw):
            asking = [asyncio.create_task(at.post()) for _ in range(20)]
            await until(lambda: len(raw.asked) == 20)
            start = time.monotonic()
            async with at.account.opened():
                pass
            took = time.monotonic() - start
            await asyncio.wait(asking, timeout=5)
            assert {each.call.ended for each in at.calls} == {"stopped"}
            assert sorted(each.call.number for each in at.calls) == list(range(1, 21))
            return took

    assert asyncio.run(run()) < 2


def test_a_client_that_reads_nothing_does_not_keep_an_account_open(
    opened_raw: OpenRaw, opened: OpenIt
) -> None:
    async def run() -> float:
        async with opened_raw(says(sized(b"x" * 8_000_000))) as (at, raw):
            reader, writer = await asyncio.open_connection("127.0.0.1", at.gateway.port)
            reader._transport.pause_reading()  # type: ignore[attr-defined]  # no other way
            writer.write(at.make_request() + at.make_request())
            await until(lambda: len(raw.asked) >= 1 and at.account.n_held > 1_000_000)
            start = time.monotonic()
            async with at.account.opened():
                pass
            writer.close()
            return time.monotonic() - start

    assert asyncio.run(run()) < 2


@pytest.mark.parametrize("is_stream", [False, True])
def test_an_answer_cut_anywhere_is_never_taken_for_whole(
    opened_raw: OpenRaw, is_stream: bool
) -> None:
    whole = chunked(*(part + b"\n\n" for part in EVENTS.split(b"\n\n")[:-1]))
    whole = whole if is_stream else sized(GOOD)
    points = [0, 1, 16, len(SSE) - 1, *range(len(SSE), len(whole) - 1, len(whole) // 12)]
    points += [len(whole) - 1]
    at_point = iter(points)

    async def cut(writer: asyncio.StreamWriter) -> None:
        writer.write(whole[: next(at_point)])
        writer.close()

    async def run() -> None:
        async with opened_raw(cut) as (at, _):
            for point in points:
                try:
                    answer = await at.post(json.dumps({"stream": is_stream}).encode())
                    assert answer.status_code == 502, point
                except httpx.RemoteProtocolError:
                    pass
            await until(lambda: len(at.calls) == len(points))
            assert {each.call.ended for each in at.calls} <= {"cut", "failed"}
            assert at.account.summarize().outage is not None

    asyncio.run(run())


@pytest.mark.parametrize("encoding", ["br", "zstd"])
def test_no_encoding_is_asked_for_and_one_that_cannot_be_read_is_noted(
    opened_raw: OpenRaw, encoding: str
) -> None:
    answer = sized(b"\x28\xb5\x2f\xfd", f"Content-Encoding: {encoding}".encode())

    async def run() -> None:
        async with opened_raw(says(answer)) as (at, raw):
            asked = at.make_request(f"POST {CHAT}", b"{}", b"Accept-Encoding: br, zstd")
            assert (await at.talk(asked)).endswith(b"\x28\xb5\x2f\xfd")
            assert raw.asked[0].lower().count(b"accept-encoding: identity") == 1
            assert b"zstd" not in raw.asked[0]
            await until(lambda: len(at.calls) == 1)
            assert at.calls[0].response == b"\x28\xb5\x2f\xfd"
            assert f"encoded ({encoding}) and cannot be read" in (at.calls[0].call.note or "")
            use = at.account.summarize()
            assert use.usage.input is None
            assert use.basis is not None
            assert use.basis.kind == "unknown"

    asyncio.run(run())


def test_an_endless_answer_passes_through_in_bounded_memory(
    opened_raw: OpenRaw, monkeypatch: pytest.MonkeyPatch
) -> None:
    size, block = 200_000_000, b"x" * 65_536

    async def pour(writer: asyncio.StreamWriter) -> None:
        writer.write(HEAD + f"Content-Length: {size}\r\n\r\n".encode())
        for start in range(0, size, len(block)):
            writer.write(block[: size - start])
            await writer.drain()

    async def run() -> tuple[int, int]:
        async with opened_raw(pour) as (at, _):
            before, count = reset_peak(), 0
            async with httpx.AsyncClient(timeout=60) as client:
                url = f"http://127.0.0.1:{at.gateway.port}{CHAT}"
                key = {"authorization": f"Bearer {at.account.token}"}
                async with client.stream("POST", url, json={}, headers=key) as answer:
                    async for chunk in answer.aiter_raw():
                        count += len(chunk)
            await at.account.settle()
            grown = read_peak() - before
            [recorded] = at.calls
            assert len(recorded.response) + recorded.call.response.n_cut == size
            assert at.account.n_held == 0
            return count, grown

    count, grown = asyncio.run(run())
    assert count == size
    assert grown < 100_000_000


def reset_peak() -> int:
    """Forget the most memory that was held, and return it anew."""
    Path("/proc/self/clear_refs").write_text("5")
    return read_peak()


def read_peak() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))


def test_a_client_that_does_not_read_stops_the_provider_and_nobody_else(
    opened_raw: OpenRaw, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "_SLOW_SEC", 0.05)
    sent = [0]

    async def pour(writer: asyncio.StreamWriter) -> None:
        writer.write(SSE)
        while True:
            writer.write(b"10000\r\n" + b"x" * 65_536 + b"\r\n")
            await writer.drain()
            sent[0] += 65_536

    async def run() -> None:
        async with opened_raw(pour) as (at, raw):
            _, writer = await asyncio.open_connection("127.0.0.1", at.gateway.port, limit=1024)
            writer.write(at.make_request())
            [weather] = await weathers(at.gateway.server)
            # The turn is given back, though the answer is still on its way.
            await until(lambda: weather.n_under_way == 0 and bool(raw.asked))
            taken = sent[0]
            await asyncio.sleep(0.1)
            assert sent[0] == taken < 30_000_000
            writer.close()

    asyncio.run(run())


async def weathers(gateway: server.Server) -> list[Any]:
    await until(lambda: bool(gateway._weather))
    return list(gateway._weather.values())


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "raw", "lie", "br"])
def test_a_compressed_answer_is_delivered_and_read_where_that_is_possible(
    opened_raw: OpenRaw, encoding: str
) -> None:
    raw_deflate = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    bodies = {
        "gzip": gzip.compress(GOOD),
        "deflate": zlib.compress(GOOD),
        "raw": raw_deflate.compress(GOOD) + raw_deflate.flush(),
        "lie": GOOD,
        "br": b"\x0b\x02\x80\x03",
    }
    name = {"raw": "deflate", "lie": "gzip"}.get(encoding, encoding)
    sent = sized(bodies[encoding], f"Content-Encoding: {name}".encode())

    async def run() -> None:
        async with opened_raw(says(sent)) as (at, _):
            said = await at.talk(at.make_request())
            assert said.endswith(bodies[encoding])
            await until(lambda: at.account.summarize().n_requests == 1)
            [recorded] = at.calls
            assert recorded.response == bodies[encoding]
            is_read = encoding in ("gzip", "deflate", "raw")
            assert (at.account.summarize().usage.input == 5) is is_read
            assert is_read or "cannot be read" in (recorded.call.note or "")

    asyncio.run(run())


ODD = {
    "informational": b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\n\r\n" + sized(GOOD),
    "chunked": chunked(EVENTS),
    "trailer": chunked(EVENTS)[:-2] + b"X-Trailer: 1\r\n\r\n",
    "two-lengths": SSE[:-2] + b"Content-Length: 3\r\n\r\n" + chunked(EVENTS)[len(SSE) :],
    "not-utf8": sized(GOOD, b"X-Odd: \xff\xfe"),
    "long-header": sized(GOOD, b"X-Long: " + b"y" * 30_000),
    "too-much": sized(GOOD) + b"more than was said",
    "no-content": b"HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\n",
    "unknown-events": chunked(b": ping\n\n", b"event: new\ndata: {1}\n\n", b"data: {\n\n", EVENTS),
}
NO_ANSWERS = {
    "upgrade": b"HTTP/1.1 101 Switching\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n",
    "status": b"HTTP/1.1 799 Odd\r\nContent-Length: 0\r\n\r\n",
    "contradiction": b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabcd",
    "negative": b"HTTP/1.1 200 OK\r\nContent-Length: -3\r\n\r\nabcd",
    "coding": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, x\r\n\r\nabcd",
    "text": b"not http at all\r\n\r\n",
    "endless-header": b"HTTP/1.1 200 OK\r\nX: " + b"y" * 300_000 + b"\r\n\r\n",
    "redirect": b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n",
}


@pytest.mark.parametrize("name", ODD)
def test_an_odd_answer_is_delivered(opened_raw: OpenRaw, name: str) -> None:
    async def run() -> None:
        async with opened_raw(says(ODD[name])) as (at, _):
            answer = await at.post()
            assert answer.status_code in (200, 204)
            assert answer.content in (GOOD, EVENTS, b"") or answer.content.endswith(EVENTS)
            assert [each.call.ended for each in at.calls] == ["complete"]

    asyncio.run(run())


@pytest.mark.parametrize("name", NO_ANSWERS)
def test_what_is_no_answer_is_an_error_in_the_clients_form(opened_raw: OpenRaw, name: str) -> None:
    async def run() -> None:
        answering = says(NO_ANSWERS[name], is_closed=True)
        async with opened_raw(answering) as (at, raw):
            answer = await at.post()
            assert answer.status_code == 502
            assert answer.json()["error"]["message"]
            assert len(raw.asked) == 1
            assert [each.call.ended for each in at.calls] == ["failed"]

    asyncio.run(run())


@pytest.mark.parametrize("is_stream", [False, True])
def test_a_mirror_does_not_give_the_key_away(
    opened_raw: OpenRaw, tmp_path: Path, is_stream: bool
) -> None:
    text = f'{{"authorization": "Bearer {KEY}", "sk": "sk-real", "last": "{KEY[:9]}'.encode()
    pieces = [text[at : at + 3] for at in range(0, len(text), 3)]
    sent = chunked(*pieces) if is_stream else sized(text, f"X-Echo: {KEY}".encode())

    async def run() -> httpx.Response:
        async with opened_raw(says(sent)) as (at, _):
            answer = await at.post()
            assert "key" in (at.calls[0].call.note or "")
            return answer

    answer = asyncio.run(run())
    assert answer.content == text.replace(KEY.encode(), b"*" * len(KEY))
    assert KEY not in str(answer.headers)
    for file in tmp_path.rglob("*"):
        assert not file.is_file() or KEY.encode() not in file.read_bytes()


def test_a_compressed_answer_with_the_key_is_not_recorded(opened_raw: OpenRaw) -> None:
    body = gzip.compress(json.dumps({"model": KEY}).encode())

    async def run() -> None:
        sent = sized(body, b"Content-Encoding: gzip")
        async with opened_raw(says(sent)) as (at, _):
            await at.post()
            [recorded] = at.calls
            assert (recorded.response, recorded.call.response.n_cut) == (b"", len(body))
            assert KEY not in at.account.summarize().models

    asyncio.run(run())


@pytest.mark.parametrize("fault", ["gone", "file", "pipe", "link"])
def test_a_client_gets_its_answer_when_nothing_can_be_recorded(
    opened_raw: OpenRaw,
    provider: Provider,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    fault: str,
) -> None:
    caplog.set_level(logging.WARNING)

    async def run() -> httpx.Response:
        async with opened_raw(says(sized(GOOD))) as (at, _):
            calls = tmp_path / "model-calls.jsonl"
            match fault:
                case "gone":
                    at.account.directory = str(tmp_path / "a/b")
                case "file":
                    (tmp_path / "file").touch()
                    at.account.directory = str(tmp_path / "file")
                case "pipe":
                    os.mkfifo(calls)
                case _:
                    calls.symlink_to("/etc/passwd")
            answer = await at.post()
            assert at.account.summarize().usage.input == 5
            return answer

    assert asyncio.run(run()).content == GOOD
    assert "an exchange is not recorded" in caplog.text


def test_a_full_disk_leaves_no_part_of_a_line(tmp_path: Path) -> None:
    path = tmp_path / "calls"
    call = Call(number=1, at="", provider="openai", address="", method="POST", path="/")
    writer = CallWriter(str(path))
    writer.append(call, b"first " * 100, b"")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 50, limits[1]))
    try:
        with pytest.raises(OSError, match="large"):
            writer.append(call, b"lost " * 100, b"")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    writer.append(call, b"lost " * 101, b"")
    writer.close()
    assert [each.request for each in read_calls(str(path))] == [b"first " * 100, b"lost " * 101]


@pytest.mark.parametrize(
    "tokens",
    ["1e308", "-5", *(pytest.param("1" + "0" * n, id=f"1e{n}") for n in (300, 5000)), "NaN", "[]"],
)
def test_absurd_usage_fails_nothing(opened_raw: OpenRaw, tokens: str) -> None:
    body = GOOD.replace(b'"prompt_tokens": 5', f'"prompt_tokens": {tokens}'.encode())

    async def run() -> httpx.Response:
        async with opened_raw(says(sized(body))) as (at, _):
            answer = await at.post(b'{"model": "gpt-4o"}')
            assert at.account.summarize().n_requests == 1
            return answer

    assert asyncio.run(run()).content == body


def test_exchanges_that_overtake_each_other_are_read_back(opened_raw: OpenRaw) -> None:
    """The later request is like the earlier one, and is recorded first."""

    async def run() -> None:
        others = asyncio.Event()

        async def answer(writer: asyncio.StreamWriter) -> None:
            if len(raw.asked) == 1:
                await others.wait()
            writer.write(sized(GOOD))

        bodies = [json.dumps({"messages": ["m" * 500] * n}).encode() for n in (2, 3, 4)]
        async with opened_raw(answer) as (at, raw):
            slow = asyncio.create_task(at.post(bodies[0]))
            await until(lambda: len(raw.asked) == 1)
            await at.post(bodies[1])
            await at.post(bodies[2])
            others.set()
            await slow
            assert [each.request for each in at.calls] == [bodies[1], bodies[2], bodies[0]]
            assert [each.call.number for each in at.calls] == [2, 3, 1]

    asyncio.run(run())


def test_a_large_exchange_is_recorded_before_those_after_it(opened_raw: OpenRaw) -> None:
    async def run() -> None:
        async with opened_raw(says(sized(GOOD))) as (at, _):
            large = json.dumps({"messages": [{"role": "user", "content": "x" * 9_000_000}]})
            await at.post(large.encode())
            await asyncio.gather(*(at.post() for _ in range(5)))
            await at.account.settle()
            assert [len(each.request) for each in at.calls] == [len(large), 2, 2, 2, 2, 2]
            assert at.account.summarize().n_requests == 6
            assert at.account.n_held == 0

    asyncio.run(run())
