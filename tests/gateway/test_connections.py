"""Connections to providers: TLS, proxies, and providers that hang or close at the wrong moment."""

import asyncio
import ssl
from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Address
from pathlib import Path

import httpx
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from proctor.gateway import server
from proctor.gateway.connections import Connections, _Stream
from tests.gateway.conftest import OpenIt, OpenRaw
from tests.gateway.providers import Provider, Reply, render
from tests.gateway.raw import CHAT, chunked, hang, says, sized, until

pytestmark = pytest.mark.process

EVENTS = render(CHAT, {"stream": True}, Reply(text="some words"), "gpt-4o")[1]
# Larger than what is kept unread, and not a multiple of any buffer.
LARGE = bytes(range(256)) * 4096 + b"end"


@pytest.fixture
def tls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ssl.SSLContext:
    """A server's certificate for the loopback address, which this process trusts."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "a provider")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(minutes=1))
        .not_valid_after(now + timedelta(hours=1))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(IPv4Address("127.0.0.1"))]), critical=False
        )
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    file = tmp_path / "certificate.pem"
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    file.write_bytes(made.public_bytes(Encoding.PEM) + private)
    monkeypatch.setenv("SSL_CERT_FILE", str(file))
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(file)
    return context


@pytest.mark.parametrize("body", [EVENTS, LARGE])
def test_answers_over_tls_are_delivered_to_the_byte(
    opened_raw: OpenRaw, tls: ssl.SSLContext, body: bytes
) -> None:
    async def run() -> None:
        pieces = [body[start : start + 999] for start in range(0, len(body), 999)]
        async with opened_raw(says(chunked(*pieces)), tls) as (at, raw):
            answers = [await at.post() for _ in range(3)]
            assert [each.content for each in answers] == [body] * 3
            assert [each.response for each in at.calls] == [body] * 3
            assert len(raw.writers) == 1

    asyncio.run(run())


def test_a_certificate_that_is_not_trusted_is_an_outage_with_the_reason(
    opened_raw: OpenRaw, tls: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SSL_CERT_FILE")

    async def run() -> None:
        async with opened_raw(says(sized(b"{}")), tls) as (at, raw):
            assert (await at.post()).status_code == 502
            assert "CERTIFICATE_VERIFY_FAILED" in (at.calls[0].call.note or "")
            assert not raw.asked

    asyncio.run(run())


def test_a_provider_that_does_not_speak_tls_is_an_outage(
    opened_raw: OpenRaw, opened: OpenIt, provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(server._TIMEOUT, "connect", 0.3)

    async def run() -> None:
        async with opened_raw(hang) as (plain, _):
            provider.scheme = "https"
            async with opened() as at:
                at.account.n_retries = 0
                assert (await at.post()).status_code == 502
                assert "ConnectTimeout" in (at.calls[0].call.note or "")
            assert plain.account.n_calls == 0

    asyncio.run(run())


def test_a_proxy_of_the_host_is_used_for_tls(
    opened_raw: OpenRaw, provider: Provider, tls: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[bytes] = []

    async def tunnel(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await reader.readuntil(b"\r\n\r\n"))
        there, back = await asyncio.open_connection("127.0.0.1", provider.port)
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        await asyncio.gather(_copy(reader, back), _copy(there, writer))

    async def run() -> None:
        proxy = await asyncio.start_server(tunnel, "127.0.0.1", 0)
        port = proxy.sockets[0].getsockname()[1]
        monkeypatch.setenv("https_proxy", f"http://127.0.0.1:{port}")
        monkeypatch.setenv("no_proxy", "")
        async with opened_raw(says(chunked(EVENTS)), tls) as (at, _):
            assert (await at.post()).content == EVENTS
            assert len(asked) == 1
            assert asked[0].startswith(f"CONNECT 127.0.0.1:{provider.port} ".encode())
        proxy.close()

    asyncio.run(run())


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(1 << 16):
            writer.write(data)
    except ConnectionError:
        pass
    finally:
        writer.close()


def test_a_provider_that_says_nothing_is_given_up(
    opened_raw: OpenRaw, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(server._TIMEOUT, "read", 0.2)

    async def run() -> None:
        async with opened_raw(hang) as (at, _):
            assert (await at.post()).status_code == 502
            assert "ReadTimeout" in (at.calls[0].call.note or "")

    asyncio.run(run())


def test_a_provider_that_hangs_in_a_stream_ends_it_as_cut(
    opened_raw: OpenRaw, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(server._TIMEOUT, "read", 0.2)
    begun = chunked(EVENTS).removesuffix(b"0\r\n\r\n")

    async def run() -> None:
        async with opened_raw(says(begun)) as (at, _):
            with pytest.raises(httpx.RemoteProtocolError):
                await at.post()
            await until(lambda: len(at.calls) == 1)
            assert (at.calls[0].call.ended, at.calls[0].response) == ("cut", EVENTS)

    asyncio.run(run())


def test_a_provider_that_does_not_read_is_given_up(
    opened: OpenIt, provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(server._TIMEOUT, "write", 0.3)
    monkeypatch.setitem(server._TIMEOUT, "read", 0.3)

    async def run() -> None:
        stop = asyncio.Event()

        async def never_read(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.transport.pause_reading()  # type: ignore[attr-defined]  # no other way
            await stop.wait()
            writer.transport.abort()

        deaf = await asyncio.start_server(never_read, "127.0.0.1", 0)
        provider.port = deaf.sockets[0].getsockname()[1]
        async with opened() as at:
            at.account.n_retries = 0
            assert (await at.post(b"x" * 30_000_000)).status_code == 502
            await at.account.settle()
            assert "Timeout" in (at.calls[0].call.note or "")
        stop.set()
        deaf.close()
        await asyncio.sleep(0.01)

    asyncio.run(run())


@pytest.mark.parametrize(
    "late", [b"", b"HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\n\r\n"]
)
def test_a_connection_that_the_provider_gave_up_is_not_used_again(
    opened_raw: OpenRaw, late: bytes
) -> None:
    async def run() -> None:
        async with opened_raw(says(sized(b"{}"))) as (at, raw):
            assert (await at.post()).status_code == 200
            raw.writers[0].write(late)
            if not late:
                raw.writers[0].close()
            await asyncio.sleep(0.05)
            assert (await at.post()).status_code == 200
            assert len(raw.writers) == 2

    asyncio.run(run())


def test_the_streams_of_connections_are_those_of_the_gateway() -> None:
    async def run() -> None:
        async with Connections() as connections:
            listening = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0)
            port = listening.sockets[0].getsockname()[1]
            network = connections._direct._pool._network_backend
            stream = await network.connect_tcp("127.0.0.1", port)
            assert isinstance(stream, _Stream)
            assert await stream.read(1) == b""
            await stream.aclose()
            listening.close()

    asyncio.run(run())
