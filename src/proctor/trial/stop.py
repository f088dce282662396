"""Stopping a trial's environment: always, once, and to the end even when the trial is cancelled."""

import asyncio

from proctor.trial.trial_run import TrialRun

_STOPPING: set[asyncio.Task[None]] = set()
"""Stops that go on although nobody waits for them any more; a task that is not held may vanish."""


async def stop_environment(run: TrialRun) -> None:
    """End everything in the environment; what goes wrong is the trial's exception, if the first."""
    environment = run.environment
    if run.is_stopped or environment is None:
        return
    run.is_stopped = True
    delete = run.spec.config.environment.delete
    stopping = asyncio.ensure_future(environment.stop(delete=delete))
    _STOPPING.add(stopping)
    stopping.add_done_callback(_STOPPING.discard)
    try:
        await asyncio.shield(stopping)
    except asyncio.CancelledError:
        run.logger.debug("cancelled while the environment was being stopped; that goes on")
        raise
    except Exception as error:  # noqa: BLE001 - an environment may raise anything
        run.logger.debug("the environment could not be stopped: %s", error)
        run.fail(error)
