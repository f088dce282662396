"""A task of several steps: harbor's rules, oddities included.

An exception of a step stays on the step: the trial has none. A step that failed and was not
verified ends the trial, and so does a reward under the step's minimum; the trial's rewards are the
mean of the steps that were verified, or the last step's.
"""

import shlex
from pathlib import Path

from proctor.errors import HealthcheckError
from proctor.harbor.trial_result import StepResult, TimingInfo, VerifierResult
from proctor.reward.steps import DEFAULT_STRATEGY, Strategy, Verdict, find_stop, trial_verdict
from proctor.reward.steps import Step as MarkedStep
from proctor.task.directory import Step
from proctor.trial.account import note_changes, note_late_changes
from proctor.trial.again import keep_state, noted, verify_again
from proctor.trial.agent import Agent
from proctor.trial.agent_phase import find_agent_user, run_agent
from proctor.trial.artifacts import collect_artifacts, move_contents
from proctor.trial.clean_room import keep_for_clean_room, verify_in_clean_room
from proctor.trial.collect import collect_agent_output, upload_agent_logs
from proctor.trial.environment import Environment
from proctor.trial.flakes import Kept
from proctor.trial.healthcheck import run_healthcheck
from proctor.trial.inside import acting_as, empty_directories, is_mounted
from proctor.trial.paths import INSIDE
from proctor.trial.pausing import paused
from proctor.trial.sitting import Sitting
from proctor.trial.stop import stop_environment
from proctor.trial.verification import find_own_environment, run_verification


async def run_steps(sitting: Sitting, agent: Agent, environment: Environment) -> None:
    """Run the steps of a task until one ends the trial, and put their rewards together.

    Raises:
        Exception: what broke between the parts of a step; the trial then has no rewards.
    """
    steps = sitting.plan.task.steps
    results: list[StepResult] = []
    sitting.result.step_results = results
    executed: list[MarkedStep] = []
    for number, step in enumerate(steps, 1):
        sitting.logger.debug(f"Starting step {number}/{len(steps)}: {step.name}")
        result = StepResult(step_name=step.name)
        results.append(result)
        await _run_step(sitting, agent, environment, step, result)
        executed.append(_mark(step, result))
        stop = find_stop(executed[-1], verifying=not sitting.plan.config.verifier.disable)
        if stop is not None:
            log = sitting.logger.warning if stop.level == "warning" else sitting.logger.debug
            log(stop.message)
            break
    verdict = trial_verdict(executed, _find_strategy(sitting))
    sitting.result.verifier_result = VerifierResult(rewards=verdict.rewards) if verdict else None


def _find_strategy(sitting: Sitting) -> Strategy:
    told = sitting.plan.task.config.multi_step_reward_strategy
    return told.value if told else DEFAULT_STRATEGY


def _mark(step: Step, result: StepResult) -> MarkedStep:
    verified, error = result.verifier_result, result.exception_info
    return MarkedStep(
        name=step.name,
        verdict=Verdict(verified.rewards) if verified else None,
        exception=error.exception_type if error else None,
        min_reward=step.config.min_reward,
    )


async def _run_step(
    sitting: Sitting, agent: Agent, environment: Environment, step: Step, result: StepResult
) -> None:
    sitting.paths.step_agent_dir(step.name).mkdir(parents=True, exist_ok=True)
    sitting.paths.step_verifier_dir(step.name).mkdir(parents=True, exist_ok=True)
    with sitting.phase("setup", step):
        await _prepare(sitting, environment, step, result)
    if result.exception_info is None:
        with sitting.phase("agent", step):
            await _run_agent(sitting, agent, environment, step, result)
        with sitting.phase("collect", step):
            await upload_agent_logs(sitting, environment)
            artifacts_dir = await _collect(sitting, environment, step)
        async with paused(sitting, environment):
            await note_changes(sitting, environment, step)
            kept = await keep_state(sitting, environment, artifacts_dir, step)
            await keep_for_clean_room(sitting, environment, artifacts_dir, step)
        with sitting.phase("verify", step):
            await _verify(sitting, environment, step, result, artifacts_dir, kept)
        await verify_in_clean_room(sitting, environment)
        await verify_again(sitting, environment, kept)
    archive_step(sitting, step)


async def _prepare(
    sitting: Sitting, environment: Environment, step: Step, result: StepResult
) -> None:
    """Bring the step's files in and see that all is well; what fails stands on the step."""
    sitting.has_logs = False
    if not is_mounted(environment):
        await empty_directories(environment, [INSIDE.agent_dir], open_to_all=True)
    with acting_as(environment, find_agent_user(sitting, step)):
        told = await environment.exec(command="pwd")
        workdir = (told.stdout or "/").strip()
        if step.workdir.exists():
            await environment.upload_dir(source_dir=step.workdir, target_dir=workdir)
        if (step.workdir / "setup.sh").exists():
            await _run_setup(sitting, environment, step, result, workdir)
        check = step.config.healthcheck
        if check is not None and result.exception_info is None:
            try:
                await run_healthcheck(environment, check)
            except HealthcheckError as error:
                sitting.logger.warning(f"Step '{step.name}' healthcheck failed: {error}")
                result.exception_info = sitting.describe(error)


async def _run_setup(
    sitting: Sitting, environment: Environment, step: Step, result: StepResult, workdir: str
) -> None:
    script = shlex.quote(f"{workdir.rstrip('/')}/setup.sh")
    try:
        ran = await environment.exec(command=f"bash {script}")
        if ran.return_code != 0:
            _refuse_setup(step, ran.return_code, ran.stderr)
    except Exception as error:  # noqa: BLE001 - the step's boundary: it stands on the step
        sitting.logger.warning(f"Step '{step.name}' setup.sh failed: {error}")
        result.exception_info = sitting.describe(error)


def _refuse_setup(step: Step, code: int, stderr: str | None) -> None:
    raise RuntimeError(f"Step '{step.name}' setup.sh exited with code {code}: {stderr}")


async def _run_agent(
    sitting: Sitting, agent: Agent, environment: Environment, step: Step, result: StepResult
) -> None:
    try:
        await run_agent(sitting, agent, environment, result, step)
    except Exception as error:  # noqa: BLE001 - the step's boundary: it stands on the step
        result.exception_info = sitting.describe(error)
    finally:
        await collect_agent_output(sitting, result)


async def _collect(sitting: Sitting, environment: Environment, step: Step) -> Path:
    """Fetch the step's artifacts; where a mount shows them, they are moved when the step ends."""
    paths = sitting.paths
    mounted = is_mounted(environment)
    directory = paths.artifacts_dir if mounted else paths.step_artifacts_dir(step.name)
    await collect_artifacts(sitting, environment, directory, step.config.artifacts)
    return directory


async def _verify(
    sitting: Sitting,
    environment: Environment,
    step: Step,
    result: StepResult,
    artifacts_dir: Path,
    kept: Kept | None,
) -> None:
    if find_own_environment(sitting, step) is not None and step is sitting.plan.task.steps[-1]:
        await stop_environment(sitting)
    if sitting.plan.config.verifier.disable:
        return
    timing = result.verifier = TimingInfo()
    with sitting.timed(timing):
        try:
            verifying = run_verification(sitting, environment, artifacts_dir, step)
            both = (kept, sitting.clean_room.kept if sitting.clean_room else None)
            result.verifier_result = await noted(sitting, both, verifying)
        except Exception as error:  # noqa: BLE001 - the step's boundary: it stands on the step
            if result.exception_info is None:
                result.exception_info = sitting.describe(error)
    if not sitting.is_stopped:
        await note_late_changes(sitting, environment, step)


def archive_step(sitting: Sitting, step: Step) -> None:
    """Move what lies in the trial's own directories into the step's."""
    paths = sitting.paths
    move_contents(paths.verifier_dir, paths.step_verifier_dir(step.name))
    move_contents(paths.agent_dir, paths.step_agent_dir(step.name))
    move_contents(paths.artifacts_dir, paths.step_artifacts_dir(step.name))


def remove_empty(sitting: Sitting) -> None:
    """Remove the directories that the steps left empty."""
    paths = sitting.paths
    for directory in (paths.agent_dir, paths.verifier_dir, paths.artifacts_dir):
        if directory.is_dir() and not any(directory.iterdir()):
            directory.rmdir()
