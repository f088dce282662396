"""Wait until an environment is healthy, by harbor's rules (which follow Docker's)."""

import asyncio
import time

from proctor.errors import HealthcheckError
from proctor.task.environment import Healthcheck
from proctor.trial.environment import Environment


async def run_healthcheck(environment: Environment, check: Healthcheck) -> None:
    """Repeat a command until it succeeds; failures within the start period do not count.

    Raises:
        HealthcheckError: it failed too often in a row.
        RuntimeError: a single try timed out.
    """
    grace_ends = time.monotonic() + check.start_period_sec
    failures = 0
    while True:
        is_starting = time.monotonic() < grace_ends
        tried = await environment.exec(command=check.command, timeout_sec=int(check.timeout_sec))
        if tried.return_code == 0:
            return
        if is_starting:
            await asyncio.sleep(check.start_interval_sec)
            continue
        failures += 1
        if failures >= check.retries:
            raise HealthcheckError(
                f"Healthcheck failed after {check.retries} consecutive retries: {check.command}"
            )
        await asyncio.sleep(check.interval_sec)
