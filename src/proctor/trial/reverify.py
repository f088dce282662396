"""Repeat the verification of what an agent left (--verify-again); only the first one counts.

    keep_state     before the verification that counts: freeze the environment's files
    noted          around it: its result is the first one
    verify_again   after it: the same tests, each time from the frozen files

A copy of files has no processes. If processes of the agent are alive, or it left files in memory,
the tests run again in new rooms of the environment itself. That state is `live`, and each
verification sees what the previous one did. Failures here are recorded in verify-again.json and are
never exceptions of the trial.
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
from proctor.trial.environment import Environment, Freezing, Watched
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
from proctor.trial.integrity import keep_tools
from proctor.trial.paths import TrialPaths
from proctor.trial.trial_run import TrialRun
from proctor.trial.verification import find_own_environment, run_verification

_SILENT = logging.Logger("verify-again")
_SILENT.addHandler(logging.NullHandler())


async def keep_state(
    run: TrialRun, environment: Environment, artifacts_dir: Path, step: Step | None = None
) -> Reverification | None:
    """Freeze what the agent left if it is to be verified again; None if it is not."""
    if not run.spec.verify_again or run.spec.config.verifier.disable:
        return None
    reverification = Reverification(step=step, artifacts_dir=artifacts_dir)
    run.reverifications.append(reverification)
    if find_own_environment(run, step) is not None:
        # A separate verifier gets only the collected artifacts, and those are kept already.
        reverification.state = FROZEN
        return reverification
    try:
        with run.phase("freeze", step):
            await _keep(run, environment, reverification)
    except Exception as error:  # noqa: BLE001 - an environment may raise anything, and scores stand
        reverification.reason = (
            f"its state could not be kept: {run.describe(error).exception_message}"
        )
    return reverification


async def _keep(run: TrialRun, environment: Environment, reverification: Reverification) -> None:
    watched = environment if isinstance(environment, Watched) else None
    freezing = environment if isinstance(environment, Freezing) else None
    if watched is None or freezing is None:
        raise TrialError(f"{kind_of(environment)} is an environment that cannot do that")
    moving = None
    if processes := await watched.list_processes():
        moving = f"{count_of(len(processes), 'process', 'processes')} of the agent still ran"
    elif await freezing.holds_memory():
        moving = "files were in /dev, which is memory"
    if moving is None:
        if not run.spec.is_harbor_compatible:
            # In a copy, the image's files cannot be told from the agent's.
            await keep_tools(run, environment)
        await freezing.freeze()
        reverification.state = FROZEN
        return
    if hindrance := _find_hindrance(run, environment, reverification.step):
        raise TrialError(f"{moving}, and {hindrance}")
    reverification.state = LIVE


def _find_hindrance(run: TrialRun, environment: Environment, step: Step | None) -> str | None:
    """Why the tests cannot be repeated in the environment itself; None if they can."""
    if run.spec.is_harbor_compatible:
        return "with --verifier-compat the tests would find what they had left before"
    if is_mounted(environment):
        return "its log directories are the trial's own"
    if step is not None and step is not run.spec.task.steps[-1]:
        return "the next step would begin with what the tests had changed"
    return None


async def noted(
    run: TrialRun,
    reverifications: Sequence[Reverification | None],
    verifying: Awaitable[VerifierResult],
) -> VerifierResult:
    """Await a verification, and record its result in the states that are verified again.

    Raises:
        Exception: raised by the verification.
    """
    began = run.clock.monotonic()
    try:
        verified = await verifying
    except Exception as error:  # noted as a result like another, and raised
        described = run.describe(error)
        seconds = run.clock.monotonic() - began
        for each in filter(None, reverifications):
            each.add(note_exception(described.exception_type, described.exception_message, seconds))
        raise
    for each in filter(None, reverifications):
        each.add(note_rewards(verified.rewards, run.clock.monotonic() - began))
    return verified


async def verify_again(
    run: TrialRun, environment: Environment, reverification: Reverification | None
) -> None:
    """Repeat the tests on a state as often as requested, and record their results.

    Raises:
        CancelledError: the results until then are written.
    """
    if reverification is None or not reverification.verifications:
        return
    try:
        if reverification.state is not None:
            with run.phase("verify-again", reverification.step):
                await _verify_all(run, environment, reverification)
    except asyncio.CancelledError:
        reverification.reason = "the run was stopped"
        raise
    except Exception as error:  # noqa: BLE001 - whatever it is, the score stands
        described = run.describe(error)
        reverification.reason = f"{described.exception_type}: {described.exception_message}"
    finally:
        if reverification.reason is not None:
            text = "not re-verified, or fewer times than requested: %s"
            run.logger.warning(text, reverification.reason)
        _write(run)


async def _verify_all(
    run: TrialRun, environment: Environment, reverification: Reverification
) -> None:
    try:
        for number in range(1, run.spec.verify_again + 1):
            await _verify_once(run, environment, reverification, number)
            _write(run)
    finally:
        if differing := reverification.n_differing:
            n_again = len(reverification.verifications) - 1
            run.add_finding(
                FindingCode.VERIFIER_FLAKY,
                f"the tests gave another result than the one that counts in {differing} of "
                f"{count_of(n_again, 'further verification')} of the same state "
                f"({reverification.state})",
                state=reverification.state,
                results=dict(reverification.results),
            )


async def _verify_once(
    run: TrialRun, environment: Environment, reverification: Reverification, number: int
) -> None:
    place = run.paths.verify_again_dir(
        number, reverification.step.name if reverification.step else None
    )
    place.mkdir(parents=True)
    if is_mounted(environment):
        # The tests may run as any user inside, and write here through a mount.
        place.chmod(0o777)
    paths = TrialPaths(run.paths.trial_dir, place)
    # Only the verification that counts adds findings to the trial.
    again = replace(run, findings=[], logger=_SILENT, paths=paths)
    async with _opened(run, environment, reverification, paths) as where:
        verifying = run_verification(
            again, where, reverification.artifacts_dir, reverification.step
        )
        try:
            await noted(run, (reverification,), verifying)
        except Exception as error:  # noqa: BLE001 - it is a result like another, and noted as one
            run.logger.debug("verification %d again: %s", number, error)


@asynccontextmanager
async def _opened(
    run: TrialRun, environment: Environment, reverification: Reverification, paths: TrialPaths
) -> AsyncIterator[Environment]:
    """Open a frozen copy and stop it on exit, or yield the live environment itself."""
    if reverification.state == LIVE or find_own_environment(run, reverification.step) is not None:
        yield environment
        return
    if not isinstance(environment, Freezing):
        raise TrialError(f"{kind_of(environment)} is an environment that keeps no state")
    async with opened_copy(run, environment.open_frozen(paths)) as copy:
        yield copy


@asynccontextmanager
async def opened_copy(run: TrialRun, opening: Awaitable[Environment]) -> AsyncIterator[Environment]:
    """Open a copy of the environment, such as a clean room, and stop it on exit."""
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
        spec.task.name, spec.digests.task_checksum, spec.verify_again, run.reverifications
    )
    try:
        replace_file(run.paths.verify_again_path, run.clean(text).encode())
    except OSError as error:
        run.logger.warning("verify-again.json cannot be written: %s", error)
