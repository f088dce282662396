"""Connections of a client to a server that ends them, refuses early or answers with less."""

import socket
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from proctor.errors import DamageError, LedgerError
from proctor.ledger.remote.client import LedgerClient, check_url
from proctor.ledger.remote.connections import Connections, UnreachableError

_OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi"


@contextmanager
def answering(*connections: Sequence[bytes]) -> Iterator[str]:
    """A server that answers the requests of each connection with these bytes, then ends it.

    Which connection gets which answers is not known.
    """
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve(answers: Sequence[bytes]) -> None:
            connection, _ = listening.accept()
            # A client that has read enough ends the connection first.
            with connection, suppress(OSError):
                for answer in answers:
                    connection.recv(1 << 16)
                    connection.sendall(answer)
                _end(connection)

        threads = [threading.Thread(target=serve, args=(each,)) for each in connections]
        for thread in threads:
            thread.start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        for thread in threads:
            thread.join()


def _end(connection: socket.socket) -> None:
    connection.shutdown(socket.SHUT_WR)
    # What is in flight is read, else the kernel takes the answer back.
    while connection.recv(1 << 16):
        pass


def ask(connections: Connections, body: bytes | None = None) -> tuple[int, bytes]:
    with connections.ask("POST" if body else "GET", "/x", body) as response:
        return response.status, b"".join(connections.read(response))


def test_a_connection_is_used_again_and_another_opened_when_it_has_ended() -> None:
    with answering([_OK, _OK], [_OK, _OK]) as url:
        connections = Connections(url, {})
        assert [ask(connections) for _ in range(4)] == [(200, b"hi")] * 4
        connections.close()


def test_a_request_on_a_connection_that_ends_unanswered_is_sent_on_another() -> None:
    with answering([_OK, b""], [_OK, b""]) as url:
        connections = Connections(url, {})
        assert [ask(connections) for _ in range(2)] == [(200, b"hi")] * 2
        connections.close()


def test_two_answers_at_a_time_have_a_connection_each() -> None:
    with answering([_OK], [_OK]) as url:
        connections = Connections(url, {})
        with connections.ask("GET", "/") as first:
            assert ask(connections) == (200, b"hi")
            assert b"".join(connections.read(first)) == b"hi"
        connections.close()


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nhi",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhi",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nmany\r\nhi",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n-5\r\nhi",
        b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 200 + b"\r\n",
        b"HTTP/1.1 200 OK\r\nx: " + b"y" * 100_000,
        b"SSH-2.0-OpenSSH_9.6\r\n",
        b"",
    ],
    ids=[
        "short",
        "cut chunk",
        "no chunk",
        "negative chunk",
        "many headers",
        "long header",
        "not HTTP",
        "nothing",
    ],
)
def test_an_answer_that_breaks_off_is_no_answer(answer: bytes) -> None:
    with answering([answer]) as url, pytest.raises(UnreachableError, match=f"^{url}: ."):
        ask(Connections(url, {}))


def test_no_chunk_is_larger_than_an_answer_may_be() -> None:
    head = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
    answers = [[head + size + b"\r\n" + b"x" * (9 << 20)] for size in (b"-1", b"fffffffff")]
    with answering(*answers) as url:
        for _ in answers:
            with pytest.raises(LedgerError, match="more than 8,388,608 bytes"):
                LedgerClient(url, None).missing(["0" * 64])


@pytest.mark.parametrize("body", [b'{"missing":[[1]]}', b'{"missing":{}}', b"[" * 20_000])
def test_an_answer_of_another_form_is_none(body: bytes) -> None:
    head = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n"
    with answering([head % len(body) + body]) as url, pytest.raises(LedgerError, match="not an an"):
        LedgerClient(url, None).missing(["0" * 64])


def test_a_refusal_of_another_form_is_one_too() -> None:
    head = b"HTTP/1.1 418 No\r\ncontent-length: 20000\r\n\r\n"
    with answering([head + b"[" * 20_000]) as url, pytest.raises(LedgerError, match="HTTP 418"):
        LedgerClient(url, None).checkpoint()


def test_the_port_of_an_ipv6_address_is_not_its_last_group() -> None:
    with pytest.raises(UnreachableError, match=r"http://\[::1\]: .*refused"):
        ask(Connections("http://[::1]", {}))


@pytest.mark.parametrize("url", ["https://exa mple.org", "https://a\x00b", "https://[fe80::a"])
def test_an_address_without_a_host_is_refused(url: str) -> None:
    with pytest.raises(LedgerError, match="not the address of a ledger"):
        check_url(url)


def test_a_server_may_refuse_a_body_before_it_has_read_it() -> None:
    refusal = b"HTTP/1.1 413 Too Large\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            connection, _ = listening.accept()
            with connection:
                connection.recv(100)
                connection.sendall(refusal)
                _end(connection)

        thread = threading.Thread(target=serve)
        thread.start()
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        assert ask(Connections(url, {}), b"x" * (8 << 20)) == (413, b"")
        thread.join()


def test_a_full_disk_is_not_the_servers_fault() -> None:
    with (
        answering([_OK]) as url,
        Path("/dev/full").open("wb", buffering=0) as full,
        pytest.raises(OSError, match="No space left"),
    ):
        LedgerClient(url, None).save_artifact("0" * 64, full, 2)


@pytest.mark.parametrize("header", [b"content-length: 1000000000000", b"connection: close"])
def test_no_more_of_an_artifact_is_written_than_it_may_have(header: bytes, tmp_path: Path) -> None:
    answer = b"HTTP/1.1 200 OK\r\n" + header + b"\r\n\r\n" + b"x" * (3 << 20)
    with answering([answer]) as url, (tmp_path / "artifact").open("wb") as file:
        with pytest.raises(DamageError, match=f"^{url}/artifacts/.*: more than 2,000,000 bytes"):
            LedgerClient(url, None).save_artifact("0" * 64, file, 2_000_000)
        assert file.tell() <= 2_000_000


@contextmanager
def trickling(head: bytes) -> Iterator[str]:
    """A server that goes on sending a few bytes at a time after this, until the client leaves."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            connection, _ = listening.accept()
            with connection, suppress(OSError):
                connection.recv(1 << 16)
                connection.sendall(head)
                while True:
                    connection.sendall(b"x")
                    time.sleep(0.01)

        thread = threading.Thread(target=serve)
        thread.start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        thread.join()


@pytest.mark.parametrize(
    "head",
    [
        b"HTTP/1.1 200 OK\r\ncontent-length: 1000000\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nfffff\r\n",
        b"HTTP/1.1 200 OK\r\nx: ",
    ],
    ids=["body", "chunk", "headers"],
)
def test_a_server_that_trickles_is_unreachable(
    head: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"{Connections.__module__}._WINDOW_SEC", 0.3)
    with trickling(head) as url, pytest.raises(UnreachableError, match=r"too slow: \d+ bytes in"):
        ask(Connections(url, {}))


def test_a_slow_server_that_ends_its_answer_is_heard(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{Connections.__module__}._WINDOW_SEC", 0.0)
    monkeypatch.setattr(f"{Connections.__module__}._LEAST_BYTES", 2)
    with answering([b"HTTP/1.1 200 OK\r\n\r\nhi"]) as url:
        assert ask(Connections(url, {})) == (200, b"hi")


@pytest.mark.parametrize("token", ["a\nb: c", "schlüssel", "\x00"])
def test_a_token_that_no_header_can_hold_is_refused(token: str) -> None:
    with pytest.raises(LedgerError, match="its token has characters that no token has"):
        LedgerClient("http://127.0.0.1:9", token)


def test_a_host_that_cannot_be_named_is_unreachable() -> None:
    with pytest.raises(UnreachableError, match="127"):
        ask(Connections("http://127.0.0.1:1", {}))
    with pytest.raises(UnreachableError):
        ask(Connections(f"http://{'ü' * 100}.example", {}))
