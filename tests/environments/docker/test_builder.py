"""`--builder docker` builds with an engine, and runs what it built in the sandbox."""

from pathlib import Path

import pytest

from proctor.environments.sandbox.roots.images import ImageStore
from tests.environments.docker.engine import IMAGES
from tests.environments.sandbox.sites import site_at


@pytest.mark.usefixtures("engine")
async def test_docker_builds_and_its_image_is_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PROCTOR_CACHE", str(tmp_path / "cache"))
    async with site_at(tmp_path) as site:
        text = f"FROM {IMAGES[0]}\nONBUILD RUN true\nENV A=1\nWORKDIR /made\nRUN echo x > y\n"
        root = await site.build(text, base="host", builder="docker")
        assert await site.said(root, "pwd; cat y; echo $A") == "/made\nx\n1"
        assert root.pin.startswith("docker-built:")
        assert [image.source for image in ImageStore().list_images()] == ["docker-save"]
