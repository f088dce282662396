"""What agents written for harbor find at an environment beyond the protocol."""

import asyncio
import logging
from pathlib import Path

import pytest

from proctor.environments.null import NullEnvironment
from proctor.environments.running import HarborInterface
from proctor.errors import HealthcheckError
from proctor.task.environment import EnvironmentConfig as TaskEnvironment
from proctor.task.environment import Healthcheck
from tests.environments.orders import NO_NETWORK, null_config, order_of
from tests.environments.sandboxes import running, said

pytestmark = pytest.mark.usefixtures("cache")


def test_an_environment_tells_what_it_was_made_from(tmp_path: Path) -> None:
    order = order_of(tmp_path, config=null_config())
    environment: HarborInterface = NullEnvironment(order)
    assert environment.environment_name == "task"
    assert environment.environment_dir == order.environment_dir
    assert environment.task_env_config is order.task_env_config
    assert environment.network_policy == NO_NETWORK
    assert environment.logger is logging.getLogger("trial")


async def test_directories_are_made_emptied_and_removed_by_root(tmp_path: Path) -> None:
    async with running(order_of(tmp_path)) as sandbox:
        await sandbox.ensure_dirs(["/a b", Path("/c")])
        told = [await said(sandbox, "stat -c %a '/a b' /c")]
        await sandbox.exec("touch /kept '/a b/.gone'; ln -s / /a\\ b/link; ln -s /c /d")
        await sandbox.empty_dirs(["/a b", "/d"])
        told.append(await said(sandbox, "ls -A '/a b' /d; [ -L /d ] || ls /kept"))
        await sandbox.reset_dirs(remove_dirs=["/c"], create_dirs=["/e"], chmod_dirs=["/e"])
        told.append(await said(sandbox, "ls -d /c 2>&1; stat -c %a /e"))
        made, emptied, reset = told
    assert made.split() == ["777", "777"]
    assert emptied.split() == ["/a", "b:", "/d:", "/kept"]
    assert reset.splitlines()[1:] == ["777"]


def test_nothing_is_run_for_no_directories(tmp_path: Path) -> None:
    environment = NullEnvironment(order_of(tmp_path, config=null_config()))
    assert asyncio.run(environment.ensure_dirs([])) is None
    assert asyncio.run(environment.empty_dirs([])) is None


def test_another_user_is_the_default_for_a_while(tmp_path: Path) -> None:
    environment = NullEnvironment(order_of(tmp_path, config=null_config()))
    with environment.with_default_user("nobody"):
        assert environment.default_user == "nobody"
    assert environment.default_user is None


async def test_a_directory_is_fetched_without_what_is_excluded(tmp_path: Path) -> None:
    async with running(order_of(tmp_path)) as sandbox:
        await sandbox.exec("mkdir -p /out/cache; touch /out/cache/x /out/a.o; echo 1 > /out/a")
        await sandbox.download_dir_with_exclusions(
            source_dir="/out", target_dir=tmp_path / "got", exclude=["*.o", "./cache"]
        )
        assert await said(sandbox, "ls /tmp") == ""
        with pytest.raises(RuntimeError, match=r"archive for '/not there' with code \d+: tar: "):
            await sandbox.download_dir_with_exclusions(
                source_dir="/not there", target_dir=tmp_path / "got", exclude=[]
            )
    assert [path.name for path in (tmp_path / "got").rglob("*")] == ["a"]


async def test_a_healthcheck_is_the_tasks_or_the_one_that_is_given(tmp_path: Path) -> None:
    task = TaskEnvironment(healthcheck=Healthcheck(command="exit 7", retries=1))
    async with running(order_of(tmp_path, task=task)) as sandbox:
        await sandbox.run_healthcheck(Healthcheck(command="true"))
        with pytest.raises(HealthcheckError, match="after 1 consecutive retries: exit 7"):
            await sandbox.run_healthcheck()
