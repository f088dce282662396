"""What a job asks of all its environments is refused once, before anything is created."""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from proctor.environments.kinds import check_environment, check_options, check_platform
from proctor.environments.sandbox.roots.images import ImageStore, Known
from proctor.errors import ImageError, ProctorError, SandboxError, UnsupportedError
from proctor.harbor.configs import NULL, SANDBOX, EnvironmentConfig
from proctor.task.environment import Tpu
from tests.environments.sandbox.rootfs import make_rootfs
from tests.environments.sandboxes import find_scratch


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PROCTOR_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda config: setattr(config, "override_gpus", 2), "--override-gpus 2: the sandbox has"),
        (
            lambda config: setattr(config, "override_tpu", Tpu(type="v6e", topology="2x4")),
            "--override-tpu v6e=2x4: the sandbox has no TPU chips",
        ),
        (lambda config: setattr(config, "override_cpus", 0), "cpus is 0; expected 0.01 or more"),
        (lambda config: setattr(config, "cpu_enforcement_policy", "request"), "--cpus request: "),
        (lambda config: config.kwargs.update(rootfs="x"), "--ek rootfs: the sandbox takes only"),
        (lambda config: config.kwargs.update(base="gone"), "--base gone: no image of that name; "),
        (lambda config: config.kwargs.update(base="A b"), "'A b': not a name of an image"),
    ],
)
def test_what_no_sandbox_has_is_refused_by_its_option(
    change: Callable[[EnvironmentConfig], None], sentence: str, tmp_path: Path
) -> None:
    config = EnvironmentConfig(import_path=SANDBOX)
    change(config)
    with pytest.raises(ProctorError) as refused:
        check_options(config)
    assert str(refused.value).startswith(sentence)
    assert list(tmp_path.iterdir()) == []


def test_a_base_that_was_imported_will_do(tmp_path: Path, cache: Path) -> None:
    image = make_rootfs(tmp_path / "image")
    now = datetime(2026, 1, 1, tzinfo=UTC)
    made = ImageStore().import_image("small", image, Known({}), now=now).image
    config = EnvironmentConfig(import_path=SANDBOX, kwargs={"base": "small"})
    check_options(config)
    (cache / "images" / "sha256" / made.digest / "rootfs").rename(tmp_path / "gone")
    with pytest.raises(ImageError, match="the files of small:latest no longer exist"):
        check_options(config)


@pytest.mark.sandbox
def test_a_machine_that_will_do_is_left_as_it_was() -> None:
    asyncio.run(check_environment(EnvironmentConfig(import_path=SANDBOX)))
    assert find_scratch() == []


def test_a_scratch_that_cannot_be_had_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("PROCTOR_SCRATCH", str(tmp_path / "file" / "x"))
    with pytest.raises(SandboxError, match="set PROCTOR_SCRATCH to a directory on"):
        asyncio.run(check_environment(EnvironmentConfig(import_path=SANDBOX)))


def test_other_environments_are_asked_nothing(cache: Path) -> None:
    asyncio.run(check_environment(EnvironmentConfig(import_path=NULL)))
    asyncio.run(check_environment(EnvironmentConfig(import_path="no.such:Thing")))
    assert not cache.exists()


@pytest.mark.parametrize(("platform", "name"), [("darwin", "macOS"), ("win32", "Windows")])
def test_elsewhere_than_on_linux_the_message_names_what_works(platform: str, name: str) -> None:
    check_platform("linux")
    with pytest.raises(UnsupportedError) as refused:
        check_platform(platform)
    assert f"the sandbox requires Linux, and this is {name}." in str(refused.value)
    for works in ("`proctor score`", "`audit`", "`view`", "`-e docker`", "Linux virtual machine"):
        assert works in str(refused.value)
