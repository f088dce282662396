"""What a root file system is built on: images, the host, and what stands in for what is missing."""

import os
import sys
from pathlib import Path

import pytest

from proctor.environments.sandbox.roots.instructions import DEFAULT_PATH
from proctor.errors import ImageError, UnsupportedError
from tests.environments.sandbox.sites import OnSite, Site, found_beside_the_network
from tests.ordinary_user import environment, ordinary_home, ordinary_uid, run_as_ordinary_user
from tests.task.trees import write


def test_an_image_that_is_not_there_is_stood_in_for_and_said(on_site: OnSite) -> None:
    async def act(site: Site) -> None:
        root = await site.build("FROM python:3.12\nWORKDIR /app\n")
        (finding,) = root.findings
        assert finding.code == "base-substituted"
        assert finding.message == (
            "The Dockerfile is FROM python:3.12, which is not in the image store; small:latest was "
            "used instead: pull it with `proctor image pull python:3.12`, or use -e docker"
        )
        assert finding.detail == {"wanted": "python:3.12", "used": root.pin}

    on_site(act)


def test_a_build_that_fails_names_what_was_used_in_place_of_the_image(on_site: OnSite) -> None:
    async def act(site: Site) -> None:
        with pytest.raises(RuntimeError) as caught:
            await site.build("FROM python:3.12\nRUN echo about-to-fail && exit 7\n")
        *_, printed, hint = str(caught.value).splitlines()
        assert printed == "about-to-fail"
        assert hint.startswith(
            "(The Dockerfile is FROM python:3.12, which is not in the image store; "
        )

    on_site(act)


@pytest.mark.skipif(os.geteuid() != 0, reason="an ordinary user's sandbox cannot change /usr")
def test_the_host_is_a_base(on_site: OnSite) -> None:
    async def act(site: Site) -> None:
        text = "FROM scratch\nWORKDIR /app\nRUN touch /usr/local/new /etc/new && rm /usr/bin/env\n"
        root = await site.build(text, base="host")
        assert root.pin.startswith("host:")
        (finding,) = found_beside_the_network(root)
        assert (
            "FROM scratch, which is not in the image store; the host's system (" in finding.message
        )
        said = await site.said(
            root, "ls /usr/local/new /etc/new; test -e /usr/bin/env || echo gone"
        )
        assert said.split() == ["/etc/new", "/usr/local/new", "gone"]
        assert Path("/usr/bin/env").exists()
        assert await site.said(root, "pwd; ls -A /root /home /opt /srv /mnt") == (
            "/app\n/home:\n\n/mnt:\n\n/opt:\n\n/root:\n\n/srv:"
        )

    on_site(act)


def test_a_dockerfile_without_steps_needs_no_sandbox(on_site: OnSite) -> None:
    async def act(site: Site) -> None:
        root = await site.build("FROM small\nENV A=1\nENTRYPOINT x\n")
        assert (site.n_spawned, root.env["A"], root.workdir) == (0, "1", "/srv")
        assert (root.entrypoint, root.notes) == (("/bin/sh", "-c", "x"), ())

    on_site(act)


def test_another_platform_is_noted(on_site: OnSite) -> None:
    async def act(site: Site) -> None:
        (note,) = (await site.build("FROM --platform=linux/s390x small\n")).notes
        assert "FROM asks for the platform linux/s390x; this machine is linux/" in note

    on_site(act)


def test_a_base_that_is_not_there_is_refused(on_site: OnSite) -> None:
    async def act(site: Site) -> None:
        with pytest.raises(ImageError, match="--base absent: no image of that name"):
            await site.build("FROM python:3.12\n", base="absent")

    on_site(act)


# docker_image, as harbor has it


def test_an_image_is_used_and_the_directory_is_to_be_uploaded(on_site: OnSite) -> None:
    async def act(site: Site) -> None:
        write(site.task, {"data.txt": "d"})
        root = await site.build(image="small", base="host")
        assert root.pin.startswith("small:latest@sha256:")
        assert (root.findings, root.upload_environment, root.workdir) == ((), True, "/srv")
        assert root.env == {"PATH": DEFAULT_PATH, "FROM_IMAGE": "yes"}

    on_site(act)


def test_an_empty_directory_is_not_uploaded(on_site: OnSite) -> None:
    async def act(site: Site) -> None:
        assert not (await site.build(image="small")).upload_environment

    on_site(act)


def test_an_image_comes_before_a_dockerfile_unless_a_build_is_forced(on_site: OnSite) -> None:
    async def act(site: Site) -> None:
        text = "FROM small\nENV BUILT=1\n"
        chosen = await site.build(text, image="small")
        assert "BUILT" not in chosen.env
        assert not chosen.upload_environment
        assert (await site.build(text, image="small", force=True)).env["BUILT"] == "1"

    on_site(act)


def test_a_dockerfile_stands_in_for_an_image_that_is_not_there(on_site: OnSite) -> None:
    async def act(site: Site) -> None:
        root = await site.build("FROM small\nENV BUILT=1\n", image="org/task:1")
        assert root.env["BUILT"] == "1"
        (finding,) = root.findings
        assert "names the image org/task:1, which is not in the image store" in finding.message

    on_site(act)


def test_without_a_dockerfile_the_base_stands_in_for_the_image(on_site: OnSite) -> None:
    async def act(site: Site) -> None:
        write(site.task, {"data.txt": "d"})
        root = await site.build(image="org/task:1")
        (finding,) = root.findings
        assert (
            "task.toml names org/task:1, which is not in the image store; small:latest"
            in finding.message
        )
        assert root.upload_environment

    on_site(act)


def test_a_task_with_nothing_gets_the_base(on_site: OnSite) -> None:
    async def act(site: Site) -> None:
        root = await site.build()
        assert root.pin.startswith("small:latest@")
        assert (root.findings, root.upload_environment) == ((), False)

    on_site(act)


# What is refused


def test_compose_is_refused_by_name(on_site: OnSite) -> None:
    async def act(site: Site) -> None:
        write(site.task, {"docker-compose.yaml": "services: {}"})
        with pytest.raises(UnsupportedError, match=r"docker-compose\.yaml: the sandbox does not"):
            await site.build("FROM small\n")

    on_site(act)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("FROM small\nONBUILD RUN a\n", r"Dockerfile:2: ONBUILD: is not supported"),
        ("FROM small\nCOPY --from=no:1 /a /b\n", r"2: COPY: --from=no:1: not in the image store"),
        ("FROM small\nCOPY absent /x\n", r"Dockerfile:2: COPY: absent: not in .*environment"),
        ("FROM UPPER CASE\n", r"Dockerfile:1: FROM: 'UPPER CASE'"),
        ("FROM a//b\n", r"Dockerfile:1: FROM 'a//b': not a name of an image"),
    ],
)
def test_a_dockerfile_that_cannot_be_used_is_refused(on_site: OnSite, text: str, said: str) -> None:
    async def act(site: Site) -> None:
        with pytest.raises(ImageError, match=said):
            await site.build(text, builder="sandbox")
        assert site.n_spawned == 0

    on_site(act)


def test_a_file_that_is_no_text_is_refused(on_site: OnSite) -> None:
    async def act(site: Site) -> None:
        (site.task / "Dockerfile").write_bytes(b"FROM \xff")
        with pytest.raises(ImageError, match="Dockerfile: not UTF-8 text"):
            await site.build()

    on_site(act)


ORDINARY = """
import asyncio, os, sys
from datetime import UTC, datetime
from pathlib import Path
from proctor.environments.sandbox.roots.images import ImageStore, Known
from tests.environments.sandbox.rootfs import make_rootfs
from tests.environments.sandbox.sites import site_at

async def main(root):
    store = ImageStore()
    store.import_image("small", make_rootfs(root / "tree"), Known({}), now=datetime.now(UTC))
    async with site_at(root) as site:
        for base, text in (
            ("small", "FROM small\\nCOPY a /a\\nRUN rm /bin/sleep && echo b > /b\\n"),
            ("host", "FROM x\\nWORKDIR /app\\nCOPY a .\\nRUN echo c > /etc/c && id -u > u\\n"),
        ):
            (site.task / "a").write_text("a\\n")
            made = await site.build(text, base=base)
            again = await site.build(text, base=base)
            assert made.parts == again.parts
            look = "cat /a /b" if base == "small" else "cat a u /etc/c"
            print((await site.said(made, look)).split())
            print((await site.said(made, "test -e /bin/sleep || echo gone")).split())
    print(site.n_spawned, os.geteuid())

asyncio.run(main(Path(sys.argv[1])))
"""


def test_an_ordinary_user_builds_on_an_image_and_on_the_host() -> None:
    with ordinary_home() as home:
        env = environment(home, PROCTOR_CACHE=str(home / "cache"))
        ran = run_as_ordinary_user(sys.executable, "-c", ORDINARY, home, home=home, env=env)
    assert ran.code == 0, ran.err
    assert ran.out.splitlines() == [
        "['a', 'b']",
        "['gone']",
        "['a', '0', 'c']",
        "[]",
        f"5 {ordinary_uid()}",
    ]
