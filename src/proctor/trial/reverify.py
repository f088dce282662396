"""Verifying again what an agent left, as often as the job asks for; the first time alone counts.

    keep_state     before the verification that counts: the environment keeps its files as they are
    noted          around it: what it gave is the first result
    verify_again   after it: the same tests, each time where the files are as they were kept

Processes are in no copy of files. Where some of the agent's were alive, or where it left files in
memory, the tests are run again in new rooms of the environment itself: the state is `live`, and
what one verification does there the next one meets. Whatever goes wrong here is written down in
verify-again.json; nothing of it is an exception of the trial.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

from proctor.errors import TrialError
from proctor.files import replace_file
from proctor.harbor.trial_result import VerifierResult
from proctor.sentence import count_of
from proctor.task.directory import Step
from proctor.trial.environment import Environment, Freezing, Watched, can_freeze, is_watched
from proctor.trial.finding import FindingCode
from proctor.trial.flakes import (
    FROZEN,
    LIVE,
    Reverification,
    note_exception,
    note_rewards,
    render_verified_again,
)
from proctor.trial.inside import is_mounted, kind_of
from proctor.trial.paths import TrialPaths
from proctor.trial.tools import keep_tools
from proctor.trial.trial_run import TrialRun
from proctor.trial.verification import find_own_environment, run_verification

_SILENT = logging.Logger("verify-again")
_SILENT.addHandler(logging.NullHandler())


async def keep_state(
    run: TrialRun, environment: Environment, artifacts_dir: Path, step: Step | None = None
) -> Reverification | None:
    """Keep what the agent left, if it is to be verified again; None where it is not."""
    if not run.spec.verify_again or run.spec.config.verifier.disable:
        return None
    kept = Reverification(step=step, artifacts_dir=artifacts_dir)
    run.kept.append(kept)
    if find_own_environment(run, step) is not None:
        # Of the agent's work such a verifier gets what was collected, and that is kept already.
        kept.state = FROZEN
        return kept
    try:
        with run.phase("freeze", step):
            await _keep(run, environment, kept)
    except Exception as error:  # noqa: BLE001 - an environment may raise anything, and scores stand
        kept.reason = f"its state could not be kept: {run.describe(error).exception_message}"
    return kept


async def _keep(run: TrialRun, environment: Environment, kept: Reverification) -> None:
    watched = environment if is_watched(environment) else None
    freezing = environment if can_freeze(environment) else None
    if watched is None or freezing is None:
        raise TrialError(f"{kind_of(environment)} is an environment that cannot do that")
    moving = await _find_moving(watched, freezing)
    if moving is None:
        if not run.spec.is_harbor_compatible:
            # In a copy nobody could tell what the image has from what the agent put there.
            await keep_tools(run, environment)
        await freezing.freeze()
        kept.state = FROZEN
        return
    if hindrance := _find_hindrance(run, environment, kept.step):
        raise TrialError(f"{moving}, and {hindrance}")
    kept.state = LIVE


async def _find_moving(watched: Watched, freezing: Freezing) -> str | None:
    """What the agent left that is in no copy of its files."""
    if processes := await watched.list_processes():
        return f"{count_of(len(processes), 'process', 'processes')} of the agent still ran"
    if await freezing.holds_memory():
        return "files lay in /dev, which is memory"
    return None


def _find_hindrance(run: TrialRun, environment: Environment, step: Step | None) -> str | None:
    """Why the tests cannot be run once more in the environment itself."""
    if run.spec.is_harbor_compatible:
        return "with --verifier-compat the tests would find what they had left before"
    if is_mounted(environment):
        return "its log directories are the trial's own"
    if step is not None and step is not run.spec.task.steps[-1]:
        return "the next step would begin with what the tests had changed"
    return None


async def noted(
    run: TrialRun, kept: Sequence[Reverification | None], verifying: Awaitable[VerifierResult]
) -> VerifierResult:
    """What a verification gives, written down where the state is verified again.

    Raises:
        Exception: what the verification raises.
    """
    began = run.clock.monotonic()
    try:
        verified = await verifying
    except Exception as error:
        told = run.describe(error)
        seconds = run.clock.monotonic() - began
        for each in filter(None, kept):
            each.add(note_exception(told.exception_type, told.exception_message, seconds))
        raise
    for each in filter(None, kept):
        each.add(note_rewards(verified.rewards, run.clock.monotonic() - began))
    return verified


async def verify_again(
    run: TrialRun, environment: Environment, kept: Reverification | None
) -> None:
    """Run the tests on a state as often as was asked for, and write down what they gave.

    Raises:
        CancelledError: what was verified until then is written.
    """
    if kept is None or not kept.verifications:
        return
    try:
        if kept.state is not None:
            with run.phase("verify-again", kept.step):
                await _verify_all(run, environment, kept)
    except asyncio.CancelledError:
        kept.reason = "the run was stopped"
        raise
    except Exception as error:  # noqa: BLE001 - whatever it is, the score stands
        told = run.describe(error)
        kept.reason = f"{told.exception_type}: {told.exception_message}"
    finally:
        if kept.reason is not None:
            run.logger.warning("not verified again, or not so often: %s", kept.reason)
        _write(run)


async def _verify_all(run: TrialRun, environment: Environment, kept: Reverification) -> None:
    try:
        for number in range(1, run.spec.verify_again + 1):
            await _verify_once(run, environment, kept, number)
            _write(run)
    finally:
        if differing := kept.n_differing:
            n_again = len(kept.verifications) - 1
            run.add_finding(
                FindingCode.VERIFIER_FLAKY,
                f"the tests gave another result than the one that counts in {differing} of "
                f"{count_of(n_again, 'further verification')} of the same state ({kept.state})",
                state=kept.state,
                results=dict(kept.results),
            )


async def _verify_once(
    run: TrialRun, environment: Environment, kept: Reverification, number: int
) -> None:
    place = run.paths.verify_again_dir(number, kept.step.name if kept.step else None)
    place.mkdir(parents=True)
    if is_mounted(environment):
        # Whoever the tests run as inside writes there through a mount.
        place.chmod(0o777)
    paths = TrialPaths(run.paths.trial_dir, place)
    # What is found is found by the verification that counts.
    again = replace(run, findings=[], logger=_SILENT, paths=paths)
    async with _opened(run, environment, kept, paths) as where:
        verifying = run_verification(again, where, kept.artifacts_dir, kept.step)
        try:
            await noted(run, (kept,), verifying)
        except Exception as error:  # noqa: BLE001 - it is a result like another, and noted as one
            run.logger.debug("verification %d again: %s", number, error)


@asynccontextmanager
async def _opened(
    run: TrialRun, environment: Environment, kept: Reverification, paths: TrialPaths
) -> AsyncIterator[Environment]:
    """Where a state is verified: a copy that is stopped whatever happens, or what is there."""
    if kept.state == LIVE or find_own_environment(run, kept.step) is not None:
        yield environment
        return
    if not can_freeze(environment):
        raise TrialError(f"{kind_of(environment)} is an environment that keeps no state")
    opening = environment.open_frozen(paths)
    copy = await asyncio.wait_for(opening, run.timeouts.environment)
    try:
        yield copy
    finally:
        try:
            await asyncio.shield(copy.stop(delete=True))
        except Exception as error:  # noqa: BLE001 - an environment may raise anything; the score stands
            run.logger.debug("a copy of the environment could not be stopped: %s", error)


def _write(run: TrialRun) -> None:
    spec = run.spec
    text = render_verified_again(
        spec.task.name, spec.digests.task_checksum, spec.verify_again, run.kept
    )
    try:
        replace_file(run.paths.verify_again_path, run.clean(text).encode())
    except OSError as error:
        run.logger.warning("verify-again.json cannot be written: %s", error)
