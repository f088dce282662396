"""Run one trial, from its first file to its final record.

The phases, in order:

    setup, healthcheck, skills, agent-setup, agent, collect, verify, record

The agent's files are frozen before verify. After verify, the tests run once more in a clean room
that starts from those files; with --verify-again, verify-again follows.

Exceptions have harbor's types and messages, and the first one counts. A trial whose agent timed out
or exited with an error is still verified; after any other exception it is not.
"""

import asyncio
import os
import shlex
from pathlib import Path

from pydantic import ValidationError
from pydantic_core import PydanticSerializationError

from proctor.errors import EnvironmentStartTimeoutError, HealthcheckError, RecordError, TrialError
from proctor.files import read_small
from proctor.harbor.trial_result import (
    StepResult,
    TimingInfo,
    TrialResult,
    VerifierResult,
    render_trial_result,
)
from proctor.reward.steps import DEFAULT_STRATEGY, Verdict, find_stop, trial_verdict
from proctor.reward.steps import Step as MarkedStep
from proctor.task.directory import Step
from proctor.traces.commands import Likeness, find_likeness, read_commands
from proctor.traces.trace import Trace
from proctor.trial.account import begin_account, note_changes, note_late_changes, paused
from proctor.trial.agent import Agent, Kinds
from proctor.trial.agent_phase import STILL_VERIFIED, find_agent_user, run_agent, set_up_agent
from proctor.trial.clean_room import keep_for_clean_room, verify_in_clean_room
from proctor.trial.clock import SYSTEM, Clock
from proctor.trial.collect import (
    collect_agent_output,
    collect_artifacts,
    move_contents,
    upload_agent_logs,
)
from proctor.trial.environment import Environment
from proctor.trial.finding import FindingCode
from proctor.trial.flakes import Reverification
from proctor.trial.inside import acting_as, empty_directories, is_mounted, run_healthcheck
from proctor.trial.making import make_agent, make_environment, upload_skills
from proctor.trial.model_use import compare_trace, note_unasked
from proctor.trial.opening import open_files, opened
from proctor.trial.paths import INSIDE
from proctor.trial.recording import (
    LONGEST_TRACE,
    find_overlong,
    find_traces,
    load_step_uses,
    load_trace,
)
from proctor.trial.reverify import keep_state, noted, verify_again
from proctor.trial.spec import TrialSpec
from proctor.trial.trial_run import TrialRun, Watch, stop_environment
from proctor.trial.verification import find_own_environment, run_verification

# Tasks of several steps, by harbor's rules, oddities included
#
# An exception in a step is recorded on the step, not on the trial. A step that failed and was not
# verified ends the trial, and so does a reward below the step's minimum. The trial's rewards are
# the mean over the verified steps, or those of the last step.


async def run_steps(run: TrialRun, agent: Agent, environment: Environment) -> None:
    """Run the steps of a task until one of them ends the trial, then combine their rewards."""
    steps = run.spec.task.steps
    results: list[StepResult] = []
    run.result.step_results = results
    executed: list[MarkedStep] = []
    for number, step in enumerate(steps, 1):
        run.logger.debug(f"Starting step {number}/{len(steps)}: {step.name}")
        result = StepResult(step_name=step.name)
        results.append(result)
        await _run_step(run, agent, environment, step, result)
        verified, error = result.verifier_result, result.exception_info
        executed.append(
            MarkedStep(
                name=step.name,
                verdict=Verdict(verified.rewards) if verified else None,
                exception=error.exception_type if error else None,
                min_reward=step.config.min_reward,
            )
        )
        stop = find_stop(executed[-1], verifying=not run.spec.config.verifier.disable)
        if stop is not None:
            log = run.logger.warning if stop.level == "warning" else run.logger.debug
            log(stop.message)
            break
    strategy = run.spec.task.config.multi_step_reward_strategy
    verdict = trial_verdict(executed, strategy.value if strategy else DEFAULT_STRATEGY)
    run.result.verifier_result = VerifierResult(rewards=verdict.rewards) if verdict else None


async def _run_step(
    run: TrialRun, agent: Agent, environment: Environment, step: Step, result: StepResult
) -> None:
    run.paths.step_agent_dir(step.name).mkdir(parents=True, exist_ok=True)
    run.paths.step_verifier_dir(step.name).mkdir(parents=True, exist_ok=True)
    with run.phase("setup", step):
        await _prepare(run, environment, step, result)
    if result.exception_info is None:
        with run.phase("agent", step):
            try:
                await run_agent(run, agent, environment, result, step)
            except Exception as error:  # noqa: BLE001 - the step's boundary: it stands on the step
                result.exception_info = run.describe(error)
            finally:
                await collect_agent_output(run, result)
        with run.phase("collect", step):
            await upload_agent_logs(run, environment)
            # Mounted ones are moved when the step ends.
            artifacts_dir = (
                run.paths.artifacts_dir
                if is_mounted(environment)
                else run.paths.step_artifacts_dir(step.name)
            )
            await collect_artifacts(run, environment, artifacts_dir, step.config.artifacts)
        async with paused(run, environment):
            await note_changes(run, environment, step)
            reverification = await keep_state(run, environment, artifacts_dir, step)
            await keep_for_clean_room(run, environment, artifacts_dir, step)
        with run.phase("verify", step):
            await _verify_step(run, environment, step, result, artifacts_dir, reverification)
        await verify_in_clean_room(run, environment)
        await verify_again(run, environment, reverification)
    paths = run.paths
    move_contents(paths.verifier_dir, paths.step_verifier_dir(step.name))
    move_contents(paths.agent_dir, paths.step_agent_dir(step.name))
    move_contents(paths.artifacts_dir, paths.step_artifacts_dir(step.name))


async def _prepare(run: TrialRun, environment: Environment, step: Step, result: StepResult) -> None:
    """Upload the step's files and run its healthcheck; failures are recorded on the step."""
    run.has_logs = False
    if not is_mounted(environment):
        await empty_directories(environment, [INSIDE.agent_dir], open_to_all=True)
    with acting_as(environment, find_agent_user(run, step)):
        pwd = await environment.exec(command="pwd")
        workdir = (pwd.stdout or "/").strip()
        if step.workdir.exists():
            await environment.upload_dir(source_dir=step.workdir, target_dir=workdir)
        if (step.workdir / "setup.sh").exists():
            script = shlex.quote(f"{workdir.rstrip('/')}/setup.sh")
            try:
                ran = await environment.exec(command=f"bash {script}")
                if ran.return_code != 0:
                    _refuse_setup(step, ran.return_code, ran.stderr)
            except Exception as error:  # noqa: BLE001 - the step's boundary: it stands on the step
                run.logger.warning(f"Step '{step.name}' setup.sh failed: {error}")
                result.exception_info = run.describe(error)
        check = step.config.healthcheck
        if check is not None and result.exception_info is None:
            try:
                await run_healthcheck(environment, check)
            except HealthcheckError as error:
                run.logger.warning(f"Step '{step.name}' healthcheck failed: {error}")
                result.exception_info = run.describe(error)


def _refuse_setup(step: Step, code: int, stderr: str | None) -> None:
    raise RuntimeError(f"Step '{step.name}' setup.sh exited with code {code}: {stderr}")


async def _verify_step(
    run: TrialRun,
    environment: Environment,
    step: Step,
    result: StepResult,
    artifacts_dir: Path,
    reverification: Reverification | None,
) -> None:
    if find_own_environment(run, step) is not None and step is run.spec.task.steps[-1]:
        await stop_environment(run)
    if run.spec.config.verifier.disable:
        return
    timing = result.verifier = TimingInfo()
    with run.timed(timing):
        try:
            verifying = run_verification(run, environment, artifacts_dir, step)
            both = (reverification, run.clean_room.reverification if run.clean_room else None)
            result.verifier_result = await noted(run, both, verifying)
        except Exception as error:  # noqa: BLE001 - the step's boundary: it stands on the step
            if result.exception_info is None:
                result.exception_info = run.describe(error)
    if not run.is_stopped:
        await note_late_changes(run, environment, step)


# Comparing the agent's commands with the task's solution, which it must not have seen
#
# A match becomes a finding and never changes the score. The oracle is exempt because it runs the
# solution. Tasks of several steps are skipped: their solutions and traces come in parts.


_ORACLE = "oracle"


async def compare_with_solution(run: TrialRun, trace: Trace) -> bool:
    """Add a finding if most of the solution appears in the agent's commands.

    Returns whether it does.
    """
    spec = run.spec
    if spec.config.agent.name == _ORACLE:
        return False
    script = None if spec.task.steps else spec.task.find_solution_script()
    try:
        solution = None if script is None else read_small(str(script)).decode(errors="replace")
    except OSError:
        solution = None
    if solution is None:
        return False
    # In a thread: comparing a long trace would block the event loop.
    found = await asyncio.to_thread(_compare, trace, solution)
    if found is None or not found.is_close:
        return False
    run.add_finding(
        FindingCode.COMMANDS_LIKE_SOLUTION,
        f"the agent's commands hold {found} of the task's own solution",
        share=round(found.share, 3),
        parts=found.parts,
        of=found.of,
    )
    return True


def _compare(trace: Trace, solution: str) -> Likeness | None:
    return find_likeness(read_commands(trace.all_entries), solution)


async def close_files(run: TrialRun) -> None:
    """Write the trial's final files. result.json is written whole or not at all."""
    run.watch("record")
    if run.is_started and not os.path.lexists(run.paths.config_path):
        run.fail(
            TrialError(
                f"{run.paths.trial_dir}: removed while the trial ran; what it contained until "
                "then is lost"
            )
        )
    traces = find_traces(run.place)
    for name in find_overlong(traces):
        size = traces[name]
        run.add_finding(
            FindingCode.FILES_REFUSED,
            f"{name} has {size:,} bytes: it is kept, but not read for the record, because it has "
            f"more than {LONGEST_TRACE:,}",
            file=name,
            size=size,
        )
    if run.result.finished_at is None:
        run.result.finished_at = run.clock.now()
    try:
        note_unasked(run)
        run.write_findings()
        trace = await load_trace(run.place, traces)
        if trace is not None and await _check_trace(run, trace):
            run.write_findings()
        names = [step.step_name for step in run.result.step_results or ()]
        steps = await load_step_uses(run.place, names) if trace is None else []
        models = run.models.summarize().models if run.models else ()
        run.recording.finish(run.result, run.find_watched(), trace, steps, models)
    except (RecordError, ValidationError) as error:
        run.logger.warning("the record stays as it was in the last phase: %s", error)
    except OSError as error:
        run.fail(error)
    finally:
        try:
            try:
                text = render_trial_result(run.result, run.config_text)
            except PydanticSerializationError as error:
                # An agent's metadata is the only part of the result that may be unserializable.
                run.fail(error)
                for context in run.result.contexts:
                    context.rollout_details = context.metadata = None
                text = render_trial_result(run.result, run.config_text)
            if run.redactor is not None:
                # On the rendered text, because exceptions and metadata may quote a secret anywhere.
                text = run.redactor.redact_text(text.decode()).encode()
            run.recording.file.write_by_renaming(f"{run.place}/result.json", text)
        finally:
            run.recording.file.close()


async def _check_trace(run: TrialRun, trace: Trace) -> bool:
    """Compare a trace with what else is known; return whether there are new findings."""
    is_close = await compare_with_solution(run, trace)
    return await compare_trace(run, trace) or is_close


async def run_trial(
    spec: TrialSpec, directory: Path, kinds: Kinds, watch: Watch, clock: Clock = SYSTEM
) -> TrialResult:
    """Run one agent on one task once, in its own directory.

    A failed or cancelled trial also returns a result: everything is stopped and written before this
    returns.
    """
    is_cancelled = False
    with opened(spec, directory, kinds, watch, clock) as run:
        # Each part runs even if an earlier one raised: the environment must always be stopped and
        # the files closed.
        for part in (_run_phases, _recover, _verify_once_more, stop_environment, close_files):
            # Repeated verifications take as long as the tests; a user who stops the job does not
            # wait for them.
            if part is _verify_once_more and is_cancelled:
                continue
            try:
                await part(run)
            except asyncio.CancelledError as error:
                is_cancelled = True
                # A cancellation during clean-up is not what ended the trial.
                if part is _run_phases:
                    run.fail(error)
            except (Exception, SystemExit) as error:  # noqa: BLE001 - the trial's boundary
                run.fail(error)
    return run.result


async def _run_phases(run: TrialRun) -> None:
    task, config = run.spec.task, run.spec.task.config
    open_files(run)
    with run.phase("setup"):
        agent = await make_agent(run)
        environment = make_environment(run)
        timeout = run.timeouts.environment
        timing = run.result.environment_setup = TimingInfo()
        start = environment.start(force_build=run.spec.config.environment.force_build)
        with run.timed(timing):
            try:
                await asyncio.wait_for(start, timeout)
            except TimeoutError as error:
                message = f"Environment start timed out after {timeout} seconds"
                raise EnvironmentStartTimeoutError(message) from error
        run.is_started = True
    if config.environment.healthcheck is not None:
        with run.phase("healthcheck"):
            await run_healthcheck(environment, config.environment.healthcheck)
    if run.skills:
        with run.phase("skills"):
            await upload_skills(environment, run.skills, run.skills_dir)
    with run.phase("agent-setup"):
        await set_up_agent(run, agent, environment)
        # After the agent's set-up, so that its installation is not taken for the agent's work.
        await begin_account(run, environment)
    if task.steps:
        await run_steps(run, agent, environment)
        await stop_environment(run)
        paths = run.paths
        for directory in (paths.agent_dir, paths.verifier_dir, paths.artifacts_dir):
            if directory.is_dir() and not any(directory.iterdir()):
                directory.rmdir()
    else:
        with run.phase("agent"):
            try:
                await run_agent(run, agent, environment, run.result)
            except Exception as error:  # an agent may raise anything; most of it is raised again
                if type(error).__name__ not in STILL_VERIFIED:
                    raise
                run.fail(error)
            finally:
                await collect_agent_output(run, run.result)
        with run.phase("collect"):
            await upload_agent_logs(run, environment)
            await _collect_artifacts(run, environment)
        async with paused(run, environment):
            await note_changes(run, environment)
            # Both do nothing where the verifier is disabled.
            reverification = await keep_state(run, environment, run.paths.artifacts_dir)
            await keep_for_clean_room(run, environment, run.paths.artifacts_dir)
        if not run.spec.config.verifier.disable:
            with run.phase("verify"):
                await _verify(run, environment, reverification)
    run.is_done = True


async def _collect_artifacts(run: TrialRun, environment: Environment) -> None:
    if not run.has_artifacts:
        await collect_artifacts(run, environment, run.paths.artifacts_dir)
        run.has_artifacts = True


async def _verify(
    run: TrialRun, environment: Environment, reverification: Reverification | None
) -> None:
    # The artifacts are collected, and nothing else of the agent may reach a separate verifier.
    if find_own_environment(run) is not None:
        await stop_environment(run)
    timing = run.result.verifier = TimingInfo()
    verifying = run_verification(run, environment, run.paths.artifacts_dir)
    both = (reverification, run.clean_room.reverification if run.clean_room else None)
    try:
        with run.timed(timing):
            run.result.verifier_result = await noted(run, both, verifying)
    except Exception:
        # Also after a failed verification: an agent may have made it fail.
        await _note_late_changes(run, environment)
        raise
    await _note_late_changes(run, environment)


async def _note_late_changes(run: TrialRun, environment: Environment) -> None:
    if not run.is_stopped:
        await note_late_changes(run, environment)


async def _recover(run: TrialRun) -> None:
    """Fetch what an interrupted trial left in its environment."""
    environment = run.environment
    if run.is_done or environment is None or not run.is_started or run.is_stopped:
        return
    await collect_agent_output(run, run.result)
    if not run.spec.task.steps:
        await _collect_artifacts(run, environment)
        if run.account is not None and not run.account.is_noted:
            await note_changes(run, environment)


async def _verify_once_more(run: TrialRun) -> None:
    """Verify the kept state again; for tasks of several steps this was done after each step."""
    environment = run.environment
    if run.spec.task.steps or environment is None:
        return
    # Repeated verifications do not count towards the trial's duration.
    run.result.finished_at = run.clock.now()
    await verify_in_clean_room(run, environment)
    for reverification in run.reverifications:
        await verify_again(run, environment, reverification)
