"""Verify a trial or a step once, in the agent's environment or in a separate one."""

import asyncio
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec

from proctor.digest import sha1_hex
from proctor.errors import VerifierTimeoutError
from proctor.harbor.env import resolve_env
from proctor.harbor.trial_result import VerifierResult
from proctor.task.directory import Step
from proctor.task.environment import EnvironmentConfig
from proctor.trial.collect import Asked, upload_artifacts
from proctor.trial.environment import Environment, EnvironmentOrder, Watched
from proctor.trial.inside import acting_as, empty_directories, kind_of
from proctor.trial.making import bind
from proctor.trial.network import check_policy, model_port_open, network_of_phase
from proctor.trial.paths import INSIDE
from proctor.trial.trial_run import TrialRun, host_variables
from proctor.trial.verify import find_verifier_user, run_verifier_in_time, verify_shared

# Verification in a separate environment, built from the tests
#
# The agent's environment is stopped first, unless another step follows. The image contains /tests;
# of the agent's work it gets only the artifacts, at their original paths.


_LONGEST_SESSION = 63


async def verify_separately(
    run: TrialRun, own: EnvironmentConfig, artifacts_dir: Path, step: Step | None = None
) -> VerifierResult:
    """Run the verifier in a separate environment and read its rewards."""
    timeout = (run.step_timeouts(step) if step else run.timeouts).verifier
    further: Sequence[Asked] = step.config.artifacts if step else ()
    network = run.network(step)
    async with _started(run, own, step) as environment:
        with acting_as(environment, find_verifier_user(run, step)):
            await empty_directories(environment, [INSIDE.verifier_dir], open_to_all=True)
            await upload_artifacts(run, environment, artifacts_dir, further)
            async with (
                model_port_open(environment),
                network_of_phase(environment, network.verifier_baseline, network.verifier),
            ):
                return await run_verifier_in_time(run, environment, step, timeout, has_tests=True)


@asynccontextmanager
async def _started(
    run: TrialRun, own: EnvironmentConfig, step: Step | None
) -> AsyncIterator[Environment]:
    """Start the verifier's environment and stop it on exit."""
    config, task, paths = run.spec.config, run.spec.task, run.paths
    order = EnvironmentOrder(
        # The job's compose files describe the agent's environment, as in harbor.
        config=config.environment.model_copy(update={"extra_docker_compose": []}),
        environment_dir=_find_context(run, step),
        environment_name=task.short_name,
        session_id=name_session(config.trial_name, step.name if step else "trial"),
        trial_paths=paths,
        task_env_config=own,
        network=run.network(step).verifier_baseline,
        persistent_env=resolve_env({**own.env, **config.environment.env}, host_variables()),
        mounts=(bind(os.path.realpath(paths.verifier_dir), INSIDE.verifier_dir),),
        logger=run.logger,
        model_port=run.kinds.model_port,
    )
    environment = run.kinds.make_environment(order)
    check_policy(order.network, environment.capabilities, kind_of(environment))
    try:
        start = environment.start(force_build=False)
        await asyncio.wait_for(start, run.timeouts.environment)
        yield environment
    finally:
        try:
            # Shielded: a cancelled trial must not leave a container running.
            await asyncio.shield(environment.stop(delete=run.spec.config.environment.delete))
        except Exception as error:  # noqa: BLE001 - an environment may raise anything; the score stands
            run.logger.debug("Failed to stop verifier env %r: %s", order.session_id, error)
        if isinstance(environment, Watched):
            # The environment does not know the trial's phases and labels its findings as set-up.
            run.findings += [
                msgspec.structs.replace(finding, phase=run.phase_name)
                for finding in environment.findings
            ]


def _find_context(run: TrialRun, step: Step | None) -> Path:
    """Build context of the verifier's environment: the step's tests, else the task's."""
    own = step.directory / "tests" if step else None
    return own if own and own.exists() else run.spec.task.directory / "tests"


def name_session(trial: str, key: str) -> str:
    """Name a verifier's environment after the trial and what it verifies, cut if too long."""
    name = "".join(
        each if each.isalnum() or each in "-._" else "_" for each in f"{trial}__verifier__{key}"
    )
    if len(name) <= _LONGEST_SESSION:
        return name
    # A digest keeps names unique that differ only after the cut.
    suffix = f"__{sha1_hex(name.encode())[:8]}"
    return f"{name[: _LONGEST_SESSION - len(suffix)].rstrip('-._')}{suffix}"


def find_own_environment(run: TrialRun, step: Step | None = None) -> EnvironmentConfig | None:
    """Configuration of a separate verifier environment; None if it shares the agent's."""
    config = run.spec.task.config
    return config.find_verifier_environment(step.config if step else None)


async def run_verification(
    run: TrialRun, environment: Environment, artifacts_dir: Path, step: Step | None = None
) -> VerifierResult:
    """Run the verifier and read its rewards; `artifacts_dir` is for a separate environment.

    Raises:
        VerifierTimeoutError: it timed out; in a step, plain TimeoutError, as in harbor.
        Exception: the first failure.
    """
    own = find_own_environment(run, step)
    try:
        if own is not None:
            return await verify_separately(run, own, artifacts_dir, step)
        return await verify_shared(run, environment, step)
    except TimeoutError as error:
        if step is not None:
            raise
        seconds = run.timeouts.verifier
        message = f"Verifier execution timed out after {seconds} seconds"
        raise VerifierTimeoutError(message) from error
