"""One verification of a trial or of a step, wherever its verifier runs."""

from pathlib import Path

from proctor.errors import VerifierTimeoutError
from proctor.harbor.trial_result import VerifierResult
from proctor.task.directory import Step
from proctor.task.environment import EnvironmentConfig
from proctor.trial.environment import Environment
from proctor.trial.separate import verify_separately
from proctor.trial.sitting import Sitting
from proctor.trial.verify import verify_shared


def find_own_environment(sitting: Sitting, step: Step | None = None) -> EnvironmentConfig | None:
    """What the verifier's own environment is; None where it verifies in the agent's."""
    config = sitting.plan.task.config
    return config.find_verifier_environment(step.config if step else None)


async def run_verification(
    sitting: Sitting, environment: Environment, artifacts_dir: Path, step: Step | None = None
) -> VerifierResult:
    """Run the verifier, and read what it gave; `artifacts_dir` is for one that is apart.

    Raises:
        VerifierTimeoutError: it took too long; of a step, plain TimeoutError, as in harbor.
        Exception: the first thing that went wrong.
    """
    own = find_own_environment(sitting, step)
    try:
        if own is not None:
            return await verify_separately(sitting, own, artifacts_dir, step)
        return await verify_shared(sitting, environment, step)
    except TimeoutError as error:
        if step is not None:
            raise
        seconds = sitting.timeouts.verifier
        message = f"Verifier execution timed out after {seconds} seconds"
        raise VerifierTimeoutError(message) from error
