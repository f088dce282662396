"""Holding the agent's processes still while its changes are recorded and its files are kept.

So the digests in changes.jsonl are those of the files that a clean room begins with. The processes
go on before the verification: the tests may need a service.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Protocol, TypeGuard, runtime_checkable

from proctor.sentence import count_of
from proctor.trial.environment import Environment
from proctor.trial.finding import FindingCode
from proctor.trial.trial_run import TrialRun


@runtime_checkable
class Pausing(Protocol):
    """An environment whose processes can be stopped for a while, and go on afterwards."""

    async def pause(self) -> int:
        """Stop every process of the agent; how many could not be stopped.

        Meanwhile no command is run in it; its files can be looked at and kept. `resume` follows.

        Raises:
            Exception: none was stopped.
        """
        ...

    async def resume(self) -> None:
        """Continue what `pause` stopped; what was stopped before it stays so."""
        ...


def can_pause(environment: object) -> TypeGuard[Pausing]:
    """Whether the processes in an environment can be stopped for a while."""
    return isinstance(environment, Pausing)


@asynccontextmanager
async def paused(run: TrialRun, environment: Environment) -> AsyncIterator[None]:
    """Stop the agent's processes meanwhile; a finding where that cannot be done.

    With `--verifier-compat` they run on, as they do in harbor.
    """
    if not can_pause(environment) or run.spec.is_harbor_compatible:
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
