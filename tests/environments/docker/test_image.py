"""The image of a task: its pin, and what makes a new build."""

import asyncio
import logging
from pathlib import Path

import pytest

from proctor.environments.docker.image import hash_context, parse_image, prepare_image
from proctor.errors import DockerError
from tests.environments.docker.engine import Engine
from tests.task.trees import write

ID = f"sha256:{'a' * 64}"
DIGEST = f"sha256:{'b' * 64}"


@pytest.mark.parametrize(
    ("name", "digests", "pin"),
    [
        ("python:3.12", [f"python@{DIGEST}"], f"python@{DIGEST}"),
        ("host:5000/a/b:1", [f"other@{ID}", f"host:5000/a/b@{DIGEST}"], f"host:5000/a/b@{DIGEST}"),
        ("mine:1", [], f"mine@{ID}"),
        ("host:5000/mine", None, f"host:5000/mine@{ID}"),
        (f"python@{DIGEST}", [f"python@{DIGEST}"], f"python@{DIGEST}"),
    ],
)
def test_a_pin_is_the_registrys_digest_and_else_the_id(
    name: str, digests: list[str] | None, pin: str
) -> None:
    assert parse_image(name, {"Id": ID, "RepoDigests": digests, "Config": None}).pin == pin


def test_what_an_image_says_of_commands_is_read() -> None:
    config = {
        "Env": ["A=1=2", "PATH=/bin"],
        "WorkingDir": "/app",
        "User": "ada",
        "Volumes": {"/data": {}},
    }
    image = parse_image("a", {"Id": ID, "Config": config})
    assert (image.env, image.workdir) == ({"A": "1=2", "PATH": "/bin"}, "/app")
    assert (image.user, image.has_volumes) == ("ada", True)


def test_whatever_a_build_may_see_makes_another_one(tmp_path: Path) -> None:
    context = write(tmp_path / "environment", {"Dockerfile": "FROM a\n", "b/c": "1"})
    digests = [hash_context(context)]
    (context / "b" / "c").chmod(0o755)
    digests.append(hash_context(context))
    (context / "b" / "c").write_text("2")
    digests.append(hash_context(context))
    (context / "d").symlink_to("b")
    digests.append(hash_context(context))
    (context / "e").mkdir()
    digests.append(hash_context(context))
    assert len(set(digests)) == len(digests)
    assert hash_context(context) == digests[-1]


def test_trials_that_start_together_build_once(
    tmp_path: Path, engine: Engine, cache: Path, caplog: pytest.LogCaptureFixture
) -> None:
    context = write(tmp_path, {"Dockerfile": "FROM small:1\nRUN head -c 9 /dev/urandom > /x\n"})
    logger = logging.getLogger("trial")

    async def go() -> set[str]:
        wanted = [prepare_image(context, None, "T/x y", logger, force=False) for _ in range(3)]
        return {image.id for image in await asyncio.gather(*wanted)}

    with caplog.at_level(logging.INFO, "trial"):
        assert len(asyncio.run(go())) == 1
    assert sum("docker build of proctor-t-x-y:" in line for line in caplog.messages) == 1
    assert cache.exists()
    assert any(
        line.startswith("proctor-t-x-y:")
        for line in engine.lines_of("images", "--format", "{{.Repository}}:{{.Tag}}")
    )


def test_an_engine_that_is_gone_is_no_failed_build(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert cache.exists()
    monkeypatch.setenv("DOCKER_HOST", "unix:///nowhere/docker.sock")
    context = write(tmp_path, {"Dockerfile": "FROM small:1\n"})
    with pytest.raises(DockerError, match="the Docker engine does not answer"):
        asyncio.run(prepare_image(context, None, "t", logging.getLogger("trial"), force=False))


@pytest.mark.parametrize("network", ["host", None])
def test_a_build_is_on_the_hosts_network_if_the_jobs_containers_are(
    tmp_path: Path, engine: Engine, cache: Path, network: str | None
) -> None:
    assert cache.exists()
    dockerfile = f"FROM small:1\nRUN readlink /proc/self/ns/net > /network # {network}\n"
    context = write(tmp_path, {"Dockerfile": dockerfile})
    logger = logging.getLogger("trial")
    image = asyncio.run(
        prepare_image(context, None, f"on {network}", logger, force=False, network=network)
    )
    (said,) = engine.lines_of("run", "--rm", "--network", "none", image.id, "cat", "/network")
    of_engine = str(Path(f"/proc/{engine.pid}/ns/net").readlink())
    assert (said == of_engine) == (network == "host")
