"""A runner that has two sandboxes, one made ahead and a layer for images, and waits to be killed.

python -m tests.environments.left_behind PLACE [STORAGE_MB]
"""

import asyncio
import sys
from pathlib import Path

from proctor.environments.sandbox.box import shared_zygote
from proctor.environments.sandbox.pool import pool_of
from proctor.environments.sandbox.roots.host_base import load_furnishing
from proctor.task.environment import EnvironmentConfig as TaskEnvironment
from tests.environments.orders import order_of
from tests.environments.sandboxes import running


async def main(place: Path, storage_mb: int | None = None) -> None:
    """Say on standard output when everything is there."""
    zygote = await shared_zygote()
    load_furnishing(pool_of(zygote).run.directory)
    task = TaskEnvironment(storage_mb=storage_mb)
    async with (
        running(order_of(place, session="one", task=task)) as one,
        running(order_of(place, session="two", task=task)),
    ):
        await one.exec("echo evidence > /logs/agent/left.txt")
        while len(zygote._boxes) < 3:
            await asyncio.sleep(0.005)
        for box in list(zygote._boxes.values()):
            await box.wait_until_up()
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), *map(int, sys.argv[2:])))
