"""Stop a trial's environment: always, once, and completely even if the trial is cancelled."""

import asyncio

from proctor.trial.trial_run import TrialRun

# Stops whose trial was cancelled. asyncio keeps only weak references to tasks, so they are held
# here until they finish.
_STOPPING: set[asyncio.Task[None]] = set()


async def stop_environment(run: TrialRun) -> None:
    """Stop the environment; a failure becomes the trial's exception unless it has one."""
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
