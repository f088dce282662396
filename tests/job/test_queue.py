"""So many at once, in order, and an end to all of it when one fails or somebody wants to stop."""

import asyncio

import pytest

from proctor.job.job import Queue


def test_items_are_begun_in_order_and_never_too_many_at_once() -> None:
    begun: list[int] = []
    busy = 0
    most = 0

    async def run(item: int) -> None:
        nonlocal busy, most
        begun.append(item)
        busy += 1
        most = max(most, busy)
        await asyncio.sleep(0.001 * (item % 3))
        busy -= 1

    asyncio.run(Queue(range(50)).work(run, 4))
    assert begun == list(range(50))
    assert most == 4


def test_an_item_is_asked_for_only_when_a_worker_is_free() -> None:
    asked: list[int] = []

    def items() -> "object":
        for item in range(100):
            asked.append(item)
            yield item

    async def run(item: int) -> None:
        assert len(asked) <= item + 2
        await asyncio.sleep(0)

    asyncio.run(Queue(items()).work(run, 2))  # type: ignore[arg-type]
    assert len(asked) == 100


def test_stop_begins_nothing_more_and_waits_for_what_runs_to_clean_up() -> None:
    begun: list[int] = []
    cleaned: list[int] = []

    async def run(item: int) -> None:
        begun.append(item)
        if item == 3:
            queue.stop()
        try:
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(0.01)
            cleaned.append(item)

    async def go() -> None:
        await queue.work(run, 4)

    queue = Queue(range(100))
    asyncio.run(go())
    assert begun == cleaned == [0, 1, 2, 3]


def test_one_that_will_not_be_cancelled_is_the_last_of_its_worker() -> None:
    begun: list[int] = []

    async def run(item: int) -> None:
        begun.append(item)
        queue.stop()
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            await asyncio.sleep(0.001)

    queue = Queue(range(100))
    asyncio.run(queue.work(run, 1))
    assert begun == [0]


def test_what_an_item_raises_ends_the_others_and_comes_out() -> None:
    ended: list[int] = []

    async def run(item: int) -> None:
        if item == 2:
            raise LookupError("no more")
        try:
            await asyncio.sleep(60)
        finally:
            ended.append(item)

    with pytest.raises(LookupError, match="no more"):
        asyncio.run(Queue(range(100)).work(run, 3))
    assert ended == [0, 1]


def test_whoever_waits_for_it_may_be_cancelled() -> None:
    ended: list[int] = []

    async def run(item: int) -> None:
        try:
            await asyncio.sleep(60)
        finally:
            ended.append(item)

    async def go() -> None:
        working = asyncio.create_task(Queue(range(100)).work(run, 2))
        await asyncio.sleep(0.01)
        working.cancel()
        with pytest.raises(asyncio.CancelledError):
            await working

    asyncio.run(go())
    assert sorted(ended) == [0, 1]


def test_ten_thousand_that_never_wait_leave_others_their_turn() -> None:
    turns = 0

    async def run(item: int) -> None:
        pass

    async def look_on() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async def go() -> None:
        other = asyncio.create_task(look_on())
        await Queue(range(10_000)).work(run, 4)
        other.cancel()

    asyncio.run(go())
    assert turns > 1000
