"""buildah builds what the sandbox does not, and the result is in the image store."""

import os
import shutil
from pathlib import Path

import pytest

from proctor.environments.sandbox.roots import build, layers
from proctor.environments.sandbox.roots.bases import hold_images
from proctor.environments.sandbox.roots.builders import check_builder
from proctor.environments.sandbox.roots.images import ImageStore
from proctor.errors import ImageError, UnbuiltError
from tests.environments.sandbox.rootfs import pack
from tests.environments.sandbox.sites import OnSite, Site
from tests.task.trees import write

needs_buildah = pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("buildah") is None, reason="needs root and buildah"
)
# A system from an archive, so that no registry is asked.
SYSTEM = "FROM scratch\nADD system.tar /\nENV FROM_FILE=yes\nWORKDIR /app\nUSER ada\n"


@needs_buildah
@pytest.mark.usefixtures("own_storage")
def test_buildah_builds_and_its_image_is_stored_once(
    on_site: OnSite, small: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def act(site: Site) -> None:
        pack(small, site.task / "system.tar")
        write(site.task, {"a": "1"})
        # What the sandbox refuses.
        text = f"{SYSTEM}ONBUILD RUN true\nCOPY a /app/a\n"
        with pytest.raises(
            UnbuiltError, match="ONBUILD: is not supported; build it with `--builder"
        ):
            await site.build(text, base="small", builder="sandbox")
        root = await site.build(text, builder="buildah")
        assert await site.said(root, "pwd; id -un; cat a; echo $FROM_FILE") == "/app\nada\n1yes"
        assert root.pin.startswith("buildah-built:")
        made = ImageStore().list_images()
        assert [image.source for image in made] == ["docker-save", "directory"]
        assert (await site.build(text, builder="buildah")).pin == root.pin
        monkeypatch.setattr(layers, "_MADE_BY_FORCE", set())
        assert (await site.build(text, builder="buildah", force=True)).env == root.env
        write(site.task, {"a": "2"})
        assert (await site.build(text, builder="buildah")).pin != root.pin
        assert site.n_spawned == 0

    on_site(act)


@needs_buildah
@pytest.mark.usefixtures("own_storage")
def test_auto_is_buildah_only_for_what_the_sandbox_does_not_build(
    on_site: OnSite, small: Path
) -> None:
    async def act(site: Site) -> None:
        pack(small, site.task / "system.tar")
        write(site.task, {"a": "1"})
        text = f"{SYSTEM}COPY a /app/a\nHEALTHCHECK --interval=3s CMD test -e /app\n"
        plain = await site.build(text)
        assert (plain.pin, plain.notes) == ("scratch", ())
        root = await site.build(f"{text}ONBUILD RUN true\n")
        assert root.pin.startswith("buildah-built:")
        (note,) = root.notes
        assert note.startswith("built with buildah, because in the sandbox ")
        assert "Dockerfile:8: ONBUILD: is not supported" in note
        assert root.healthcheck is not None
        assert root.healthcheck.interval_sec == 3
        assert await site.said(root, "pwd; id -un; echo $FROM_FILE") == "/app\nada\nyes"

    on_site(act)


def test_what_another_program_builds_it_pulls_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, {"Dockerfile": "FROM debian:13\nADD https://a.example/b /b\n"})
    monkeypatch.setenv("PATH", str(tmp_path))
    assert hold_images(tmp_path, None) == ["debian:13"]
    write(tmp_path, {"bin/buildah": "#!/bin/sh\n"})
    (tmp_path / "bin" / "buildah").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    assert hold_images(tmp_path, None) == []
    write(tmp_path, {"Dockerfile": "FROM debian:13\nADD b /b\n"})
    assert hold_images(tmp_path, None) == ["debian:13"]


@needs_buildah
@pytest.mark.usefixtures("own_storage")
def test_a_build_of_buildah_that_fails_says_what_it_printed(on_site: OnSite, small: Path) -> None:
    async def act(site: Site) -> None:
        pack(small, site.task / "system.tar")
        text = "FROM scratch\nADD system.tar /\nRUN echo about-to-fail && exit 7\n"
        with pytest.raises(RuntimeError) as caught:
            await site.build(text, builder="buildah")
        assert str(caught.value).startswith("Build failed: buildah build\n")
        assert "about-to-fail" in str(caught.value)
        (note,) = caught.value.__notes__
        assert "about-to-fail" in Path(note.rpartition(" is in ")[2]).read_text()
        assert site.layers == []

    on_site(act)


def test_no_program_is_looked_for_where_the_sandbox_builds(
    on_site: OnSite, small: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def act(site: Site) -> None:
        pack(small, site.task / "system.tar")
        monkeypatch.setattr(build, "find_program", lambda: pytest.fail("looked for"))
        assert (
            await site.build("FROM scratch\nADD system.tar /\nWORKDIR /app\n")
        ).workdir == "/app"

    on_site(act)


def test_a_program_that_is_not_installed_is_named(tmp_path: Path) -> None:
    with pytest.raises(ImageError, match="--builder docker: the program docker is not installed"):
        check_builder("docker", {"PATH": str(tmp_path)})
    check_builder("auto", {"PATH": str(tmp_path)})
