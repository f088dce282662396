"""What runs the commands of a trial: bash, or sh where an image has no bash."""

import asyncio
import shutil
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

import pytest

from proctor.environments.sandbox.roots.images import ImageStore, Known
from proctor.errors import ImageError
from proctor.harbor.configs import EnvironmentConfig
from tests.environments.orders import order_of
from tests.environments.sandbox.rootfs import make_rootfs
from tests.environments.sandboxes import find_scratch, running, said


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROCTOR_CACHE", str(tmp_path / "cache"))


def take_in(tree: Path, env: Mapping[str, str] | None = None) -> None:
    now = datetime(2026, 1, 2, tzinfo=UTC)
    ImageStore().import_image("mine", tree, Known(env or {}, "/srv"), now=now)


async def say(place: Path, command: str) -> str:
    config = EnvironmentConfig(kwargs={"base": "mine"})
    async with running(order_of(place, config=config)) as sandbox:
        return await said(sandbox, command)


def test_an_image_without_a_shell_is_refused_when_it_is_started(tmp_path: Path) -> None:
    tree = make_rootfs(tmp_path / "tree")
    (tree / "bin" / "sh").unlink()
    take_in(tree)
    said = r"^mine:latest@sha256:\w+: has no shell, neither bash nor sh, in /bin:.*import an image"
    with pytest.raises(ImageError, match=said):
        asyncio.run(say(tmp_path, "true"))
    assert find_scratch() == []


def test_an_image_with_sh_alone_is_run_by_it(tmp_path: Path) -> None:
    take_in(make_rootfs(tmp_path / "tree"))
    assert asyncio.run(say(tmp_path, "echo $0; pwd")) == "sh\n/srv"


def test_a_shell_in_a_place_of_the_images_own_is_found(tmp_path: Path) -> None:
    tree = make_rootfs(tmp_path / "tree")
    (tree / "opt" / "bin").mkdir(parents=True)
    shutil.move(tree / "bin" / "sh", tree / "opt" / "bin" / "sh")
    take_in(tree, {"PATH": "/opt/bin:/bin"})
    assert asyncio.run(say(tmp_path, "echo $0")) == "sh"
