"""Pause the agent's processes while its changes are recorded and its files are kept.

This way the digests in changes.jsonl match the files that a clean room starts from. The processes
are resumed before the verification: the tests may need a service.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Protocol, runtime_checkable

from proctor.sentence import count_of
from proctor.trial.environment import Environment
from proctor.trial.finding import FindingCode
from proctor.trial.trial_run import TrialRun


@runtime_checkable
class Pausing(Protocol):
    """An environment whose processes can be paused and resumed."""

    async def pause(self) -> int:
        """Stop every process of the agent; return how many could not be stopped.

        Until `resume`, no command runs in it, but its files can be read and kept.

        Raises:
            Exception: no process was stopped.
        """
        ...

    async def resume(self) -> None:
        """Continue the processes that `pause` stopped, and no others."""
        ...


@asynccontextmanager
async def paused(run: TrialRun, environment: Environment) -> AsyncIterator[None]:
    """Pause the agent's processes inside the context; add a finding if that fails.

    With `--verifier-compat` they keep running, as in harbor.
    """
    if not isinstance(environment, Pausing) or run.spec.is_harbor_compatible:
        yield
        return
    try:
        if n_running := await environment.pause():
            _find(run, f"{count_of(n_running, 'process', 'processes')} could not be stopped")
    except Exception as error:  # noqa: BLE001 - an environment may raise anything; the trial goes on
        _find(run, run.describe(error).exception_message)
    try:
        yield
    finally:
        await environment.resume()


def _find(run: TrialRun, reason: str) -> None:
    run.add_finding(
        FindingCode.AGENT_NOT_PAUSED,
        f"the agent's processes ran on while its changes were recorded: {reason}",
        reason=reason,
    )
