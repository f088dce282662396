"""Files in and out of a container, by both ways: from outside its root, and by `docker cp`."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from proctor.digest import sha256_hex
from proctor.environments.docker import environment as environment_module
from proctor.environments.docker.environment import DockerEnvironment
from proctor.trial.finding import FindingCode
from tests.environments.docker.containers import docker_order, running
from tests.environments.sandboxes import said

pytestmark = pytest.mark.usefixtures("cache", "engine", "way")


@pytest.fixture(params=["merged", "copied"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """How files travel; an ordinary user has `docker cp` alone."""
    if request.param == "copied":
        monkeypatch.setattr(environment_module, "is_mounted_here", lambda _: False)
    return str(request.param)


def inside[Told](place: Path, deed: Callable[[DockerEnvironment], Awaitable[Told]]) -> Told:
    async def go() -> Told:
        async with running(docker_order(place)) as environment:
            return await deed(environment)

    return asyncio.run(go())


def test_files_and_directories_go_in_and_come_out(tmp_path: Path) -> None:
    source = tmp_path / "source"
    (source / "deep" / "er").mkdir(parents=True)
    (source / "deep" / "er" / "file").write_text("words")
    (source / "program").write_text("#!/bin/bash\necho ran\n")
    (source / "program").chmod(0o4755)
    (source / "link").symlink_to("program")
    one = tmp_path / "one.txt"
    one.write_text("one")

    async def go(place: DockerEnvironment) -> tuple[str, str]:
        await place.upload_dir(source, "/new/place")
        await place.upload_file(one, "/new/other/name")
        await place.upload_file(one, "/tmp/")
        await place.download_dir("/new", tmp_path / "back")
        await place.download_file("/new/other/name", tmp_path / "two.txt")
        with pytest.raises(FileNotFoundError):
            await place.download_file("/nothing", tmp_path / "three")
        assert [await place.is_dir(path) for path in ("/new", "/new/other/name", "/no")] == [
            *(True, False, False)
        ]
        assert await place.is_file("/new/place/link")
        told = await said(
            place, "stat -c '%a %u' /new/place/program; /new/place/link; ls -d /tmp/*"
        )
        return told, await said(place, "stat -c %a /tmp /logs/agent")

    told, modes = inside(tmp_path, go)
    assert told.split() == ["755", "0", "ran", "/tmp/one.txt"]
    assert modes.split() == ["1777", "777"]
    assert (tmp_path / "back" / "place" / "deep" / "er" / "file").read_text() == "words"
    assert (tmp_path / "back" / "place" / "link").readlink() == Path("program")
    assert (tmp_path / "two.txt").read_text() == "one"


def test_what_leads_out_or_is_no_file_is_refused_and_found(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("of the host")
    words = (
        f"cd /logs/agent; ln -s {tmp_path}/secret out; ln -s /etc/passwd absolute; mkfifo pipe;"
        "ln -s ../../../../../../etc/passwd up; echo kept > kept; ln -s kept link"
    )

    async def go(place: DockerEnvironment) -> list[FindingCode]:
        await place.exec(words.replace("mkfifo pipe;", "mknod pipe p;"))
        await place.download_dir("/logs/agent", tmp_path / "out")
        return [finding.code for finding in place.findings]

    assert inside(tmp_path, go) == [FindingCode.FILES_REFUSED]
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["kept", "link"]


def test_a_directory_that_is_a_link_is_the_containers_own(tmp_path: Path) -> None:
    (tmp_path / "host").mkdir()
    (tmp_path / "host" / "secret").write_text("of the host")
    (tmp_path / "given").mkdir()
    (tmp_path / "given" / "file").write_text("given")

    async def go(place: DockerEnvironment) -> str:
        await place.exec(
            f"rm -rf /logs/agent; ln -s {tmp_path}/host /logs/agent; mkdir -p {tmp_path}/host"
        )
        await place.upload_dir(tmp_path / "given", "/logs/agent")
        await place.download_dir("/logs/agent", tmp_path / "out")
        return await said(place, f"cat {tmp_path}/host/file")

    assert inside(tmp_path, go) == "given"
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["file"]
    assert [path.name for path in (tmp_path / "host").iterdir()] == ["secret"]


def test_what_lies_there_is_listed_and_hashed_and_nothing_is_run(tmp_path: Path) -> None:
    async def go(place: DockerEnvironment) -> list[tuple[str, int | None, str | None]]:
        await place.exec("mkdir -p /tests/a; echo b > /tests/a/b; ln -s /etc /tests/link")
        seen = await place.list_files(["/tests", "/nothing", "/tests/a/b"], 10)
        few = await place.list_files(["/tests"], 1)
        assert len(few) == 1
        return sorted((file.path, file.size, file.sha256) for file in seen)

    digest = sha256_hex(b"b\n")
    assert inside(tmp_path, go) == [
        ("/tests/a/b", 2, digest),
        ("/tests/a/b", 2, digest),
        ("/tests/link", None, None),
    ]
