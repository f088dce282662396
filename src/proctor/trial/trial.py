"""One trial, from the first moment to its record. Whatever breaks, its files say where.

    setup, healthcheck, skills, agent-setup, agent, collect, verify, record

Before verify the files are frozen for the clean-room after it, in which the tests run once more;
where it is to be verified again, verify-again follows.

Exceptions are harbor's, with its messages; the first one counts. An agent that took too long or
that failed is verified all the same; after anything else there is no verification.
"""

import asyncio

from proctor.errors import EnvironmentStartTimeoutError
from proctor.harbor.trial_result import TimingInfo, TrialResult
from proctor.trial.account import begin_account, note_changes, note_late_changes
from proctor.trial.again import keep_state, noted, verify_again
from proctor.trial.agent import Agent
from proctor.trial.agent_phase import STILL_VERIFIED, run_agent, set_up_agent
from proctor.trial.artifacts import collect_artifacts
from proctor.trial.clean_room import keep_for_clean_room, verify_in_clean_room
from proctor.trial.clock import SYSTEM, Clock
from proctor.trial.closing import close_files
from proctor.trial.collect import collect_agent_output, upload_agent_logs
from proctor.trial.environment import Environment
from proctor.trial.flakes import Kept
from proctor.trial.healthcheck import run_healthcheck
from proctor.trial.making import make_agent, make_environment
from proctor.trial.opening import open_files, opened
from proctor.trial.order import Kinds
from proctor.trial.pausing import paused
from proctor.trial.plan import Plan
from proctor.trial.sitting import Sitting, Watch
from proctor.trial.skills import upload_skills
from proctor.trial.steps import remove_empty, run_steps
from proctor.trial.stop import stop_environment
from proctor.trial.verification import find_own_environment, run_verification


async def run_trial(plan: Plan, kinds: Kinds, watch: Watch, clock: Clock = SYSTEM) -> TrialResult:
    """Run one agent at one task; a trial that fails is a result like any other.

    Raises:
        CancelledError: it was cancelled; everything is stopped and written.
    """
    cancelled = None
    with opened(plan, kinds, watch, clock) as sitting:
        # Each part gets its turn, whatever became of those before it.
        for part in (_sit, _recover, _verify_once_more, stop_environment, close_files):
            if part is _verify_once_more and cancelled is not None:
                continue
            try:
                await part(sitting)
            except asyncio.CancelledError as error:
                cancelled = error
                if part is _sit:
                    sitting.fail(error)
            except (Exception, SystemExit) as error:  # noqa: BLE001 - the trial's boundary
                sitting.fail(error)
    if cancelled is not None:
        raise cancelled
    return sitting.result


async def _sit(sitting: Sitting) -> None:
    task, config = sitting.plan.task, sitting.plan.task.config
    open_files(sitting)
    with sitting.phase("setup"):
        agent = await make_agent(sitting)
        environment = make_environment(sitting)
        await _start(sitting, environment)
    if config.environment.healthcheck is not None:
        with sitting.phase("healthcheck"):
            await run_healthcheck(environment, config.environment.healthcheck)
    if sitting.skills:
        with sitting.phase("skills"):
            await upload_skills(environment, sitting.skills, sitting.skills_dir)
    with sitting.phase("agent-setup"):
        await set_up_agent(sitting, agent, environment)
        await begin_account(sitting, environment)
    if task.steps:
        await run_steps(sitting, agent, environment)
        await stop_environment(sitting)
        remove_empty(sitting)
    else:
        await _run_single(sitting, agent, environment)
    sitting.is_done = True


async def _run_single(sitting: Sitting, agent: Agent, environment: Environment) -> None:
    with sitting.phase("agent"):
        await _run_agent(sitting, agent, environment)
    with sitting.phase("collect"):
        await upload_agent_logs(sitting, environment)
        await _collect_artifacts(sitting, environment)
    async with paused(sitting, environment):
        await note_changes(sitting, environment)
        # Neither does anything where the verifier is disabled.
        kept = await keep_state(sitting, environment, sitting.paths.artifacts_dir)
        await keep_for_clean_room(sitting, environment, sitting.paths.artifacts_dir)
    if not sitting.plan.config.verifier.disable:
        with sitting.phase("verify"):
            await _verify(sitting, environment, kept)


async def _start(sitting: Sitting, environment: Environment) -> None:
    timeout = sitting.timeouts.environment
    timing = sitting.result.environment_setup = TimingInfo()
    start = environment.start(force_build=sitting.plan.config.environment.force_build)
    with sitting.timed(timing):
        try:
            await asyncio.wait_for(start, timeout)
        except TimeoutError as error:
            message = f"Environment start timed out after {timeout} seconds"
            raise EnvironmentStartTimeoutError(message) from error
    sitting.is_started = True


async def _run_agent(sitting: Sitting, agent: Agent, environment: Environment) -> None:
    try:
        await run_agent(sitting, agent, environment, sitting.result)
    except Exception as error:
        if type(error).__name__ not in STILL_VERIFIED:
            raise
        sitting.fail(error)
    finally:
        await collect_agent_output(sitting, sitting.result)


async def _collect_artifacts(sitting: Sitting, environment: Environment) -> None:
    if not sitting.has_artifacts:
        await collect_artifacts(sitting, environment, sitting.paths.artifacts_dir)
        sitting.has_artifacts = True


async def _verify(sitting: Sitting, environment: Environment, kept: Kept | None) -> None:
    if find_own_environment(sitting) is not None:
        await stop_environment(sitting)
    timing = sitting.result.verifier = TimingInfo()
    verifying = run_verification(sitting, environment, sitting.paths.artifacts_dir)
    both = (kept, sitting.clean_room.kept if sitting.clean_room else None)
    try:
        with sitting.timed(timing):
            sitting.result.verifier_result = await noted(sitting, both, verifying)
    except Exception:
        # An agent that spoils the verification is found out as well.
        await _note_late_changes(sitting, environment)
        raise
    await _note_late_changes(sitting, environment)


async def _note_late_changes(sitting: Sitting, environment: Environment) -> None:
    if not sitting.is_stopped:
        await note_late_changes(sitting, environment)


async def _recover(sitting: Sitting) -> None:
    """Fetch what a trial that broke off left in its environment."""
    environment = sitting.environment
    if sitting.is_done or environment is None or not sitting.is_started or sitting.is_stopped:
        return
    await collect_agent_output(sitting, sitting.result)
    if not sitting.plan.task.steps:
        await _collect_artifacts(sitting, environment)
        if sitting.account is not None and not sitting.account.is_noted:
            await note_changes(sitting, environment)


async def _verify_once_more(sitting: Sitting) -> None:
    """Verify what is kept; of a task of several steps that was done after each of them."""
    environment = sitting.environment
    if sitting.plan.task.steps or environment is None:
        return
    # How long it took is how long it took to be scored.
    sitting.result.finished_at = sitting.clock.now()
    await verify_in_clean_room(sitting, environment)
    for kept in sitting.kept:
        await verify_again(sitting, environment, kept)
