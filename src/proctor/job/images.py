"""Determine the images of a job's environments before any is started.

An imported image is part of a slot's key: another image under the same name makes new slots. The
host's own files, `--base host`, are not part of it because a machine's packages change from day to
day. If they changed since the job was begun, that is reported, and each record has its own pin.
Third-party environments report nothing in advance.
"""

from importlib import import_module

from proctor.environments.kinds import environment_name_for
from proctor.errors import ImageError, SandboxError
from proctor.harbor.configs import HOST_BASE, SANDBOX, EnvironmentConfig
from proctor.job.store import ChosenEnvironment
from proctor.task.directory import Task


def choose_environment(environment: EnvironmentConfig, why: str) -> ChosenEnvironment:
    """The environment kind that a config names, and its base."""
    return ChosenEnvironment(environment_name_for(environment), why, _find_base(environment))


def find_task_image(environment: EnvironmentConfig, task: Task) -> str | None:
    """The image that a task will run on, with its digest; None if unknown in advance."""
    if environment.import_path != SANDBOX:
        return None
    try:
        pin: str | None = import_module("proctor.environments.sandbox.roots.build").find_image_pin(
            task.environment_directory,
            task.config.environment.docker_image,
            _base_of(environment),
            force=environment.force_build,
        )
    except (ImageError, SandboxError):
        # Its trials will report the problem.
        return None
    return pin


def describe_change(then: ChosenEnvironment, environment: EnvironmentConfig) -> str | None:
    """Describe how the base of the environments changed since; None if it did not."""
    now = _find_base(environment)
    if then.base is None or now is None or then.base == now:
        return None
    return (
        f"the base is {now}; when the job was begun it was {then.base}. Trials that are run now "
        "run on the new one, as their records say"
    )


def _find_base(environment: EnvironmentConfig) -> str | None:
    if environment.import_path != SANDBOX:
        return None
    base = _base_of(environment)
    if base != HOST_BASE:
        return base
    try:
        pin: str = import_module("proctor.environments.sandbox.roots.host_base").host_pin()
    except ImageError:
        return base
    return pin


def _base_of(environment: EnvironmentConfig) -> str:
    return str(environment.kwargs.get("base", HOST_BASE))
