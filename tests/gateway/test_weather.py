"""How requests to a busy provider wait: fairly, and without anyone being forgotten."""

import asyncio
import random

from hypothesis import given
from hypothesis import strategies as st

from proctor.gateway.weather import Weather


def test_a_burst_of_failures_halves_once() -> None:
    async def run() -> int:
        weather = Weather()
        async with asyncio.TaskGroup() as group:
            for _ in range(40):
                group.create_task(fail(weather))
        return weather._room

    async def fail(weather: Weather) -> None:
        async with weather.turn() as turn:
            await asyncio.sleep(0.01)
            weather.note_failure(429, 0.0, turn)

    assert asyncio.run(run()) == 20


def test_those_that_wait_are_served_in_order() -> None:
    async def run() -> list[int]:
        weather, served = Weather(_most=1), list[int]()

        async def ask(number: int) -> None:
            async with weather.turn():
                served.append(number)
                await asyncio.sleep(0)

        async with asyncio.TaskGroup() as group:
            for number in range(30):
                group.create_task(ask(number))
        assert weather.n_under_way == 0
        return served

    assert asyncio.run(run()) == list(range(30))


def test_a_wait_that_the_provider_asked_for_can_be_cancelled() -> None:
    async def run() -> None:
        weather = Weather()
        async with weather.turn() as turn:
            weather.note_failure(429, 300.0, turn)
        waiting = asyncio.create_task(wait_for(weather))
        await asyncio.sleep(0.01)
        waiting.cancel()
        await asyncio.wait({waiting}, timeout=1)
        assert waiting.cancelled()
        assert weather.n_under_way == 0

    asyncio.run(run())


async def wait_for(weather: Weather) -> None:
    async with weather.turn():
        pass


def test_a_turn_that_was_given_back_is_not_given_back_twice() -> None:
    async def run() -> int:
        weather = Weather()
        async with weather.turn() as turn, weather.turn():
            turn.end()
            turn.end()
            return weather.n_under_way

    assert asyncio.run(run()) == 1


@given(st.randoms(use_true_random=False), st.integers(1, 4))
def test_no_place_is_lost_whoever_is_cancelled(chance: random.Random, most: int) -> None:
    async def run() -> None:
        weather = Weather(_most=most)

        async def ask() -> None:
            async with weather.turn():
                for _ in range(chance.randrange(3)):
                    await asyncio.sleep(0)

        tasks = [asyncio.create_task(ask()) for _ in range(20)]
        while not all(task.done() for task in tasks):
            await asyncio.sleep(0)
            assert 0 <= weather.n_under_way <= most
            chance.choice(tasks).cancel()
        assert weather.n_under_way == 0
        # Whoever comes next is served at once.
        await asyncio.wait_for(wait_for(weather), 1)

    asyncio.run(run())
