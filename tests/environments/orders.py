"""Orders for environments, as trials make them."""

import logging
from pathlib import Path

from proctor.harbor.configs import NULL, EnvironmentConfig
from proctor.task.environment import EnvironmentConfig as TaskEnvironment
from proctor.task.network import NetworkMode, NetworkPolicy
from proctor.trial.environment import EnvironmentOrder
from proctor.trial.paths import TrialPaths

NO_NETWORK = NetworkPolicy(NetworkMode.NO_NETWORK)
PUBLIC = NetworkPolicy(NetworkMode.PUBLIC)


def order_of(
    place: Path,
    *,
    config: EnvironmentConfig | None = None,
    task: TaskEnvironment | None = None,
    network: NetworkPolicy = NO_NETWORK,
    env: dict[str, str] | None = None,
    session: str = "trial-1",
    model_port: int | None = None,
) -> EnvironmentOrder:
    """An order of a trial that lies below a directory, with a task that has nothing in it."""
    paths = TrialPaths(place / "job" / session)
    for directory in (paths.agent_dir, paths.verifier_dir, paths.artifacts_dir):
        directory.mkdir(parents=True, exist_ok=True)
    environment = place / "task" / "environment"
    environment.mkdir(parents=True, exist_ok=True)
    logs = ("agent", "verifier", "artifacts")
    return EnvironmentOrder(
        config=config or EnvironmentConfig(),
        environment_dir=environment,
        environment_name="task",
        session_id=session,
        trial_paths=paths,
        task_env_config=task or TaskEnvironment(),
        network=network,
        persistent_env=env or {},
        mounts=[
            {"type": "bind", "source": str(paths.trial_dir / name), "target": f"/logs/{name}"}
            for name in logs
        ],
        logger=logging.getLogger("trial"),
        model_port=model_port,
    )


def null_config(**kwargs: object) -> EnvironmentConfig:
    return EnvironmentConfig(import_path=NULL, kwargs=dict(kwargs))
