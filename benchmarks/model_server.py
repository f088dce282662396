"""A scripted model on loopback; prints its address as JSON, and answers until ended.

    python -m benchmarks.model_server

It speaks OpenAI's chat completions: an answer comes after 20 ms, a stream in chunks at an even
pace. It does as little as it can, because what is measured is the way to it.
"""

import asyncio
import contextlib
import json
import time

WAIT_SEC = 0.02
"""Time after which an answer begins."""
_ANSWER = {
    "id": "chatcmpl-1",
    "object": "chat.completion",
    "model": "gpt-4o-2024-08-06",
    "choices": [
        {
            "index": 0,
            "message": {"role": "assistant", "content": "A sentence of the model. " * 20},
            "finish_reason": "stop",
        }
    ],
    "usage": {"prompt_tokens": 500, "completion_tokens": 100, "total_tokens": 600},
}
_USAGE = b'data: {"id":"chatcmpl-1","choices":[],"usage":{"prompt_tokens":9,"completion_tokens":9}}'
DONE = b"data: [DONE]\n\n"


def make_event(stream: int, number: int, stamp: float = 0.0) -> bytes:
    """Return an event of a stream; streams and events differ."""
    delta = {"content": f" token-{stream}-{number}"}
    choice = {"index": 0, "delta": delta, "finish_reason": None}
    event = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "stamp": stamp}
    return f"data: {json.dumps({**event, 'choices': [choice]})}\n\n".encode()


async def _serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
        while True:
            head = (await reader.readuntil(b"\r\n\r\n")).lower()
            size = int(head.split(b"content-length:")[1].split(b"\r\n")[0])
            asked = json.loads(await reader.readexactly(size))
            await asyncio.sleep(WAIT_SEC)
            if asked.get("stream"):
                await _stream(writer, asked)
            else:
                body = json.dumps(_ANSWER).encode()
                length = f"content-length: {len(body)}\r\n\r\n".encode()
                kind = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n"
                writer.write(kind + length + body)
            await writer.drain()
    writer.close()


async def _stream(writer: asyncio.StreamWriter, asked: dict[str, object]) -> None:
    kind = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"
    writer.write(kind + b"transfer-encoding: chunked\r\n\r\n")
    n_chunks, every = int(str(asked["n_chunks"])), float(str(asked["every"]))
    loop = asyncio.get_running_loop()
    start = loop.time()
    for number in range(n_chunks):
        stamp = time.perf_counter() if asked.get("is_stamped") else 0.0
        _write_chunk(writer, make_event(int(str(asked["number"])), number, stamp))
        await writer.drain()
        await asyncio.sleep(max(start + (number + 1) * every - loop.time(), 0))
    if asked.get("stream_options"):
        _write_chunk(writer, _USAGE + b"\n\n")
    _write_chunk(writer, DONE)
    writer.write(b"0\r\n\r\n")


def _write_chunk(writer: asyncio.StreamWriter, data: bytes) -> None:
    writer.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")


async def main() -> None:
    """Answer until ended."""
    server = await asyncio.start_server(_serve, "127.0.0.1", 0, backlog=1024)
    port = server.sockets[0].getsockname()[1]
    print(json.dumps({"address": f"http://127.0.0.1:{port}"}), flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
