"""Waiting for what must end: a cancellation meanwhile is not lost."""

import asyncio

import pytest

from proctor.environments.sandbox.link import settled


@pytest.mark.parametrize("has_failed", [False, True])
async def test_a_timeout_during_a_wait_is_raised_after_it(has_failed: bool) -> None:
    loop = asyncio.get_running_loop()
    future: asyncio.Future[None] = loop.create_future()
    if has_failed:
        loop.call_later(0.05, future.set_exception, OSError("it failed"))
    else:
        loop.call_later(0.05, future.set_result, None)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await settled(future)
    assert future.done()
    await settled(future)
