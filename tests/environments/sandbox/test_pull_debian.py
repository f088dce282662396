"""A Debian of debootstrap: its pulled root is what umoci unpacks, and a sandbox runs on it.

In `make soak`; the smaller images of test_pull_builders.py are compared in the same way.
"""

import asyncio
import shutil
import stat
from pathlib import Path

import pytest

from proctor.environments.sandbox.roots.images import ImageStore
from proctor.harbor.configs import EnvironmentConfig
from tests.environments.orders import order_of
from tests.environments.sandbox.registries import needs_programs, push, real_registry
from tests.environments.sandbox.rootfs import make_debian
from tests.environments.sandbox.test_pull_builders import (
    HIDES_ALL,
    Builder,
    Built,
    builder_on,
    needs_buildah,
)
from tests.environments.sandbox.test_pull_registry import facts_of, mounted, pull
from tests.environments.sandboxes import running, said
from tests.task.trees import write

pytestmark = [
    pytest.mark.soak,
    needs_programs,
    needs_buildah,
    pytest.mark.skipif(shutil.which("debootstrap") is None, reason="needs debootstrap"),
]
# Without them and what only they depend on, debootstrap takes a third less time.
LEFT_OUT = "--exclude=apt,e2fsprogs,tzdata,sysvinit-utils"
DOCKERFILE = """\
FROM debian-base
RUN useradd --create-home ada && rm -r /usr/share/doc /usr/share/man && mkdir /usr/share/doc
COPY --chown=ada:ada f /home/ada/f
"""


def build_debian(builder: Builder) -> Built:
    """Make a Debian by debootstrap, and layers on it by a Dockerfile."""
    container, root = builder.start("scratch")
    make_debian(root, LEFT_OUT)
    for name in ("var/cache/apt/archives", "var/lib/apt/lists"):
        shutil.rmtree(root / name)
    builder.run("commit", "-q", container, "debian-base")
    tree = write(builder.place / "tree", {"Dockerfile": DOCKERFILE, "f": "words"})
    builder.build(tree, "debian")
    return builder.save("debian", builder.place)


def is_device(path: Path) -> bool:
    return stat.S_ISCHR(path.lstat().st_mode)


def test_a_debian_of_debootstrap_is_what_umoci_unpacks_and_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PROCTOR_CACHE", str(tmp_path / "cache"))
    # In memory: thousands of files are written and deleted several times.
    with builder_on("overlay", in_memory=True) as builder:
        built = build_debian(builder)
        assert built.find_whiteouts() >= {f"usr/share/doc/{HIDES_ALL}", "usr/share/.wh.man"}
        with real_registry(builder.place / "registry") as host:
            image = pull(ImageStore(), push(built.layout, "1", host, "debian:1"), tmp_path)
        theirs = facts_of(built.theirs)
        devices = [path for path in (built.theirs / "dev").iterdir() if is_device(path)]
    assert theirs["hard links"]
    # A sandbox has devices of its own.
    for path in devices:
        del theirs[f"dev/{path.name}"]
    assert image.notes == (f"devices and pipes left out: {len(devices)} entries",)
    with mounted(ImageStore(), image, tmp_path / "merged") as ours:
        assert facts_of(ours) == theirs
    asyncio.run(check_in_sandbox(tmp_path, image.name))


async def check_in_sandbox(place: Path, image: str) -> None:
    """Run Debian's own programs, which compare every installed file with its package."""
    config = EnvironmentConfig(kwargs={"base": image})
    async with running(order_of(place, config=config)) as sandbox:
        differing = await said(sandbox, "dpkg --audit; dpkg --verify")
        names = {line.rpartition(" ")[2].split("/")[3] for line in differing.splitlines()}
        # Only what the Dockerfile removed.
        assert names == {"doc", "man"}
        assert await said(sandbox, "id -un; cat ~/f", user="ada") == "ada\nwords"
        kinds = await said(sandbox, "stat -c '%a %U:%G' /usr/bin/passwd /usr/bin/chage")
        assert kinds == "4755 root:root\n2755 root:shadow"
        assert await said(sandbox, "useradd eve && id -un eve") == "eve"
