"""Containers for tests, as trials have them."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from proctor.environments.docker.environment import DockerEnvironment
from proctor.harbor.configs import EnvironmentConfig
from proctor.task.environment import EnvironmentConfig as TaskEnvironment
from proctor.trial.environment import EnvironmentOrder
from tests.environments.orders import order_of

FRESH = ("/tests", "/logs/verifier")


def docker_config(**wishes: Any) -> EnvironmentConfig:
    return EnvironmentConfig(type="docker", **wishes)


def docker_order(place: Path, **wishes: Any) -> EnvironmentOrder:
    """An order of a task whose image is the small one."""
    task = wishes.pop("task", TaskEnvironment(docker_image="small:1"))
    config = wishes.pop("config", docker_config())
    return order_of(place, config=config, task=task, **wishes)


@asynccontextmanager
async def running(order: EnvironmentOrder) -> AsyncIterator[DockerEnvironment]:
    """A container that was started; it is stopped afterwards."""
    environment = DockerEnvironment(order)
    await environment.start(force_build=False)
    try:
        yield environment
    finally:
        await environment.stop(delete=True)
