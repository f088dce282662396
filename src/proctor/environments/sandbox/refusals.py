"""Rejects options that a sandbox does not support, before anything is built."""

from collections.abc import Iterator

from proctor.environments.sandbox.host_ports import KWARG, host_ports_of
from proctor.environments.sandbox.limits import limits_of
from proctor.environments.sandbox.roots.builders import BUILDERS, RootOptions
from proctor.errors import UnsupportedError
from proctor.harbor.configs import HOST_BASE, EnvironmentConfig
from proctor.task.environment import EnvironmentConfig as TaskEnvironment
from proctor.task.environment import TaskOS
from proctor.trial.environment import EnvironmentOrder
from proctor.trial.paths import INSIDE

_WHO = "the sandbox"
_COMPOSE = "docker-compose.yaml"
_LOGS = frozenset(map(str, (INSIDE.agent_dir, INSIDE.verifier_dir, INSIDE.artifacts_dir)))


def check_order(order: EnvironmentOrder) -> RootOptions:
    """Check the options of a trial, and return them.

    Raises:
        UnsupportedError: the sandbox does not support one; the message names the field.
    """
    options = check_options(order.config)
    for refusal in find_refusals(order, _WHO):
        raise UnsupportedError(refusal)
    return options


def check_options(config: EnvironmentConfig) -> RootOptions:
    """Check the options of a job, and return them."""
    check_hardware(config, _WHO)
    host_ports_of(config.kwargs)
    unknown = sorted(set(config.kwargs) - {"base", "builder", KWARG})
    if unknown:
        raise UnsupportedError(
            f"--ek {unknown[0]}: the sandbox takes only base, builder and {KWARG}"
        )
    base = config.kwargs.get("base", HOST_BASE)
    if not isinstance(base, str) or not base:
        raise UnsupportedError(
            f"--ek base={base}: expected {HOST_BASE}, or the name of an imported image"
        )
    builder = config.kwargs.get("builder", BUILDERS[0])
    if builder not in BUILDERS:
        raise UnsupportedError(f"--builder {builder}: expected one of {', '.join(BUILDERS)}")
    return RootOptions(base, str(builder))


def check_hardware(config: EnvironmentConfig, who: str) -> None:
    """Check that a job asks for no hardware that our environments do not have.

    Raises:
        UnsupportedError: it does; the message names the option.
    """
    if config.override_gpus:
        raise UnsupportedError(
            f"--override-gpus {config.override_gpus}: {who} has no graphics processors"
        )
    if tpu := config.override_tpu:
        raise UnsupportedError(f"--override-tpu {tpu.type}={tpu.topology}: {who} has no TPU chips")
    if config.extra_docker_compose:
        raise UnsupportedError(f"--extra-docker-compose: {who} does not support Docker Compose")
    limits_of(config, TaskEnvironment())


def find_refusals(order: EnvironmentOrder, who: str) -> Iterator[str]:
    """Yield messages for what a trial requires and our environments do not support."""
    task, config = order.task_env_config, order.config
    gpus = task.gpus if config.override_gpus is None else config.override_gpus
    if gpus:
        yield f"gpus = {gpus}: {who} has no graphics processors"
    if task.gpu_types and gpus != 0:
        yield f"gpu_types = {list(task.gpu_types)}: {who} has no graphics processors"
    if task.tpu is not None:
        yield f"tpu = {task.tpu.type} {task.tpu.topology}: {who} has no TPU chips"
    if task.os is TaskOS.WINDOWS:
        yield f"os = windows: {who} is Linux"
    compose = order.environment_dir / _COMPOSE
    if compose.exists():
        yield f"{compose}: {who} does not support Docker Compose"
    for mount in order.mounts:
        if str(mount.get("target")) not in _LOGS:
            yield (
                f"--mounts {mount.get('source')} on {mount.get('target')}: {who} shares no "
                "directory of the host; put the files into the task's environment instead"
            )
