"""Calls of the link that are made again, because the connection broke while they were made."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
from ray.exceptions import ActorDiedError, ActorUnavailableError

from proctor.cluster import link
from proctor.cluster.link import Line, Link, call_again


async def begun(*keys: str) -> Link:
    """The actor of a job whose driver runs these trials."""
    actor = Link()
    for key in keys:
        await actor.begin(key)
        # Made again, as the connection broke.
        await actor.begin(key)
    return actor


def test_messages_that_are_sent_again_arrive_once() -> None:
    async def act() -> list[tuple[str, bytes]]:
        actor = await begun("a", "b")
        await actor.send("a", 0, [b"0", b"1"])
        await actor.send("a", 0, [b"0", b"1"])
        await actor.send("b", 0, [b"other"])
        await actor.send("a", 2, [b"2"])
        await actor.send("a", 1, [b"1", b"2", b"3"])
        return await actor.receive(0)

    found = asyncio.run(act())
    assert [data for key, data in found if key == "a"] == [b"0", b"1", b"2", b"3"]
    assert [data for key, data in found if key == "b"] == [b"other"]


def test_a_batch_that_was_lost_on_its_way_is_given_again() -> None:
    async def act() -> None:
        actor = await begun("a")
        # The answer to this call is lost; it still waits when the next one comes.
        lost = asyncio.ensure_future(actor.receive(0))
        again = asyncio.ensure_future(actor.receive(0))
        await asyncio.sleep(0)
        await actor.send("a", 0, [b"0"])
        assert await again == [("a", b"0")]
        assert await lost == [("a", b"0")]
        await actor.send("a", 1, [b"1"])
        assert await actor.receive(1) == [("a", b"1")]
        await actor.send("a", 2, [b"2"])
        # A call that was cut off comes late, and takes nothing.
        await actor.receive(0)
        assert await actor.receive(2) == [("a", b"2")]

    asyncio.run(act())


def test_the_actor_keeps_nothing_of_a_trial_that_has_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(link, "_POLL_SEC", 0.0)

    async def act() -> None:
        actor = await begun("a", "b")
        await actor.send("a", 0, [b"0"])
        await actor.push("a", 0, [b"0"])
        waiting = asyncio.ensure_future(actor.wait_stop("a"))
        await asyncio.sleep(0)
        await actor.stop("a")
        # What it had to say is still wanted.
        await actor.send("a", 1, [b"1"])
        await actor.end("a")
        assert await waiting
        # Its worker may go on for a while, if the driver lost it.
        await actor.send("a", 2, [b"2"])
        await actor.push("a", 1, [b"1"])
        assert await actor.pull("a", 0) == []
        assert await actor.wait_stop("a")
        assert await actor.receive(0) == [("a", b"0"), ("a", b"1")]
        await actor.end("a")
        assert list(actor._trials) == ["b"]

    asyncio.run(act())


class Breaking:
    """Calls of an actor whose every other answer is lost, after the call was carried out."""

    def __init__(self, actor: Link) -> None:
        self._actor = actor
        self._n_calls = 0

    def __getattr__(self, name: str) -> SimpleNamespace:
        async def remote(*arguments: Any) -> Any:
            self._n_calls += 1
            answer = await getattr(self._actor, name)(*arguments)
            if self._n_calls % 2:
                raise ActorUnavailableError("the connection broke", None)
            return answer

        return SimpleNamespace(remote=remote)


def test_what_the_driver_sends_to_a_trial_arrives_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link, "_RETRY_SEC", 0.0)

    async def act() -> list[bytes]:
        actor = await begun("a")
        breaking = Breaking(actor)
        line, found = Line(breaking, "a"), list[bytes]()
        for number in range(3):
            push = partial(breaking.push.remote, "a", number, [b"%d" % number])
            await call_again(push)
            found += await line.pull()
        return found

    assert asyncio.run(act()) == [b"0", b"1", b"2"]


def failing(times: int, error: Exception) -> Callable[[], Awaitable[str]]:
    """A call that fails so often before it answers."""
    left = [error] * times

    async def call() -> str:
        if left:
            raise left.pop()
        return "answer"

    return call


def test_a_connection_that_comes_back_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link, "_RETRY_SEC", 0.0)
    broken = ActorUnavailableError("the connection broke", None)
    assert asyncio.run(call_again(failing(10, broken))) == "answer"
    with pytest.raises(ActorUnavailableError):
        asyncio.run(call_again(failing(11, broken)))
    with pytest.raises(ActorDiedError):
        asyncio.run(call_again(failing(1, ActorDiedError())))
