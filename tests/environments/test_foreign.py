"""Environments by import path, and the choice between them and ours."""

import asyncio
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest

from proctor.environments.kinds import (
    check_environment,
    check_type,
    environment_name_for,
    make_environment,
)
from proctor.errors import PluginError, UnsupportedError
from proctor.harbor.configs import NULL, EnvironmentConfig
from proctor.task.environment import EnvironmentConfig as TaskEnvironment
from proctor.task.environment import Tpu
from proctor.task.network import NetworkMode, NetworkPolicy
from tests.environments.orders import order_of
from tests.environments.plain_env import PlainEnvironment

PLAIN = "tests.environments.plain_env:PlainEnvironment"
FOLDER = "tests.environments.foreign_env:FolderEnvironment"


def make_plain(place: Path, config: EnvironmentConfig) -> PlainEnvironment:
    made = make_environment(order_of(place, config=config, env={"A": "1"}))
    assert isinstance(made, PlainEnvironment)
    return made


def test_a_plain_class_gets_the_keywords_that_harbor_gives(tmp_path: Path) -> None:
    config = EnvironmentConfig(import_path=PLAIN, override_cpus=2, kwargs={"colour": "red"})
    given = make_plain(tmp_path, config).given
    assert set(given) == {
        *("environment_dir", "environment_name", "session_id", "trial_paths", "task_env_config"),
        *("logger", "override_cpus", "override_memory_mb", "override_storage_mb", "override_gpus"),
        *("override_tpu", "persistent_env", "mounts", "network_policy", "extra_docker_compose"),
        "colour",
    }
    assert given["override_cpus"] == 2
    assert given["persistent_env"] == {"A": "1"}
    assert given["network_policy"].network_mode is NetworkMode.NO_NETWORK
    assert given["mounts"][0]["target"] == "/logs/agent"


def test_a_policy_is_passed_on_only_where_it_is_not_auto(tmp_path: Path) -> None:
    config = EnvironmentConfig(import_path=PLAIN, memory_enforcement_policy="guarantee")
    given = make_plain(tmp_path, config).given
    assert given["memory_enforcement_policy"] == "guarantee"
    assert "cpu_enforcement_policy" not in given


@pytest.mark.harbor
def test_a_class_of_harbors_family_runs_unchanged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    config = EnvironmentConfig(
        import_path=FOLDER,
        override_memory_mb=64,
        override_tpu=Tpu(type="v6e", topology="2x4"),
        cpu_enforcement_policy="ignore",
        kwargs={"greeting": "good morning"},
    )
    task = TaskEnvironment(cpus=3, env={"B": "${NOT_SET:-2}"})

    async def go() -> str | None:
        made = make_environment(order_of(tmp_path, config=config, task=task, env={"A": "1"}))
        await made.start(force_build=False)
        try:
            await made.upload_file(Path(__file__), "/copy.py")
            assert await made.is_file("copy.py")
            return (await made.exec("echo $A$B$C; ls", env={"C": "3"})).stdout
        finally:
            await made.stop(delete=True)

    # It refuses a TPU that its capabilities do not have: harbor's own checks are at work.
    with pytest.raises(RuntimeError, match="TPU"):
        asyncio.run(go())
    config.override_tpu = None
    assert asyncio.run(go()) == "123\ncopy.py\n"


@pytest.mark.harbor
def test_what_its_constructor_raises_comes_out_as_it_is(tmp_path: Path) -> None:
    config = EnvironmentConfig(import_path=FOLDER, override_memory_mb=13)
    with pytest.raises(ValueError, match="unlucky number"):
        make_environment(order_of(tmp_path, config=config))


def test_a_class_without_the_methods_is_refused_by_their_names(tmp_path: Path) -> None:
    config = EnvironmentConfig(import_path="tests.environments.plain_env:NoFiles")
    with pytest.raises(PluginError, match="has no upload_file, upload_dir, download_file"):
        make_environment(order_of(tmp_path, config=config))


def test_a_class_without_the_attributes_is_refused_by_their_names(tmp_path: Path) -> None:
    config = EnvironmentConfig(import_path="tests.environments.plain_env:NoAttributes")
    with pytest.raises(PluginError, match="has no default_user, session_id, trial_paths, cap"):
        make_environment(order_of(tmp_path, config=config))


def test_a_kwarg_that_is_given_anyway_is_refused(tmp_path: Path) -> None:
    config = EnvironmentConfig(import_path=PLAIN, kwargs={"mounts": []})
    with pytest.raises(PluginError, match="kwarg mounts is given to every environment"):
        make_environment(order_of(tmp_path, config=config))


def test_a_path_that_leads_nowhere_is_refused(tmp_path: Path) -> None:
    config = EnvironmentConfig(import_path="tests.environments.plain_env:Nothing")
    with pytest.raises(PluginError, match="has no class 'Nothing'"):
        make_environment(order_of(tmp_path, config=config))


@pytest.mark.harbor
@pytest.mark.parametrize(
    ("name", "packages"), [("e2b", "e2b, dockerfile-parse"), ("modal", "modal")]
)
def test_a_type_of_harbors_without_its_packages_says_how_to_install_them(
    name: str, packages: str
) -> None:
    with pytest.raises(UnsupportedError) as refused:
        check_type(name)
    assert str(refused.value) == (
        f"-e {name}: harbor's environment needs {packages}, which is not installed; "
        f"run: pip install 'harbor[{name}]'"
    )


def test_a_type_of_harbors_without_harbor_says_how_to_install_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def requires(name: str) -> None:
        raise PackageNotFoundError(name)

    monkeypatch.setattr("importlib.metadata.requires", requires)
    with pytest.raises(UnsupportedError, match="harbor is not installed; run: pip install"):
        check_type("daytona")


@pytest.mark.harbor
def test_a_type_of_harbors_is_made_by_harbor_and_checked_by_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_type("singularity")
    config = EnvironmentConfig(type="singularity")
    task = TaskEnvironment(docker_image="small:1")
    public = NetworkPolicy(NetworkMode.PUBLIC)
    made = make_environment(order_of(tmp_path, config=config, task=task, network=public))
    assert type(made).__module__.startswith("harbor.environments.singularity")
    monkeypatch.delenv("E2B_API_KEY", raising=False)
    with pytest.raises(UnsupportedError, match="-e e2b: E2B requires E2B_API_KEY"):
        asyncio.run(check_environment(EnvironmentConfig(type="e2b")))


@pytest.mark.harbor
def test_a_type_of_a_later_harbor_is_refused_with_the_installed_version() -> None:
    with pytest.raises(UnsupportedError, match=r"-e podman: harbor 0\.13\.1, which is installed"):
        check_type("podman")


def test_a_type_that_nobody_has_is_refused_with_what_there_is() -> None:
    with pytest.raises(UnsupportedError, match="-e moon: not built in; use sandbox or null"):
        check_type("moon")


def test_environments_have_names_for_people() -> None:
    assert environment_name_for(EnvironmentConfig()) == "sandbox"
    assert environment_name_for(EnvironmentConfig(import_path=NULL)) == "null"
    assert environment_name_for(EnvironmentConfig(import_path=PLAIN)) == PLAIN
    assert environment_name_for(EnvironmentConfig(type="docker")) == "docker"
