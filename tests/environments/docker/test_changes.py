"""What is told of everything that was written in a container."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from proctor.digest import sha256_hex
from proctor.environments.docker import environment as environment_module
from proctor.environments.docker.changes import parse_diff
from proctor.environments.docker.environment import DockerEnvironment
from proctor.task.environment import EnvironmentConfig as TaskEnvironment
from proctor.trial.changes import Change, Phase
from proctor.trial.environment import Accounting
from tests.environments.docker.containers import docker_order, running

engine_needed = pytest.mark.usefixtures("cache", "engine")

SETUP = "mkdir /app /installed; echo 1 > /app/old; echo 1 > /app/given; echo 1 > /installed/a; "
SETUP += "echo 1 > /dev/shm/given; echo 1 > /dev/shm/gone; rm /bin/id"
AGENT = (
    "echo work > /app/new; echo 22 > /app/old; ln -s /app/new /app/link; mkdir /app/empty; "
    "echo eve::0:0::/home/eve:/bin/sh >> /etc/passwd; chmod 600 /etc/group; "
    "rm /bin/env; rm -rf /installed; mkdir -p /usr/local/bin; echo x > /usr/local/bin/ls; "
    "echo 127.0.0.1 example.org >> /etc/hosts; echo hidden > /dev/shm/x; rm /dev/shm/gone"
)


async def set_up(place: DockerEnvironment) -> dict[str, str]:
    """Do what an agent's set-up does; the marks of what is there then."""
    await place.exec(SETUP)
    written, is_cut = await place.list_written({}, is_hashing=False)
    assert not is_cut
    return {each.path: each.mark for each in written}


async def list_after_agent(place: DockerEnvironment) -> dict[str, Change]:
    marks = await set_up(place)
    await place.exec(AGENT)
    written, is_cut = await place.list_written(marks)
    assert not is_cut
    assert len({each.path for each in written}) == len(written)
    return {each.path: each for each in written}


def tell(changes: Mapping[str, Change], phase: Phase) -> dict[str, tuple[str, str, bool]]:
    return {
        path: (each.how, each.kind, each.in_image)
        for path, each in changes.items()
        if each.when is phase
    }


@engine_needed
async def test_every_path_that_an_agent_changed_is_listed_and_what_was_there_before_is_told_apart(
    tmp_path: Path,
) -> None:
    async with running(docker_order(tmp_path)) as place:
        assert isinstance(place, Accounting)
        changes = await list_after_agent(place)
    assert tell(changes, Phase.AGENT) == {
        "/app/new": ("created", "file", False),
        "/app/old": ("created", "file", False),
        "/app/link": ("created", "link", False),
        "/app/empty": ("created", "directory", False),
        "/etc/passwd": ("changed", "file", True),
        "/etc/group": ("changed", "file", True),
        "/etc/hosts": ("changed", "file", True),
        "/bin/env": ("deleted", "file", True),
        "/installed": ("deleted", "file", False),
        "/installed/a": ("deleted", "file", False),
        "/usr": ("created", "directory", False),
        "/usr/local": ("created", "directory", False),
        "/usr/local/bin": ("created", "directory", False),
        "/usr/local/bin/ls": ("created", "file", False),
        "/dev/shm/x": ("created", "file", False),
        "/dev/shm/gone": ("deleted", "file", False),
    }
    before = tell(changes, Phase.SETUP)
    assert before.keys() >= {"/app", "/app/given", "/bin/id", "/logs/agent", "/dev/shm/given"}
    assert before["/bin/id"] == ("deleted", "file", True)
    assert changes["/app/new"].sha256 == sha256_hex(b"work\n")
    assert changes["/app/link"].target == "/app/new"
    assert changes["/etc/group"].mode == "0600"
    assert changes["/dev/shm/x"].sha256 == sha256_hex(b"hidden\n")


@engine_needed
async def test_what_was_listed_is_not_listed_as_new_once_more(tmp_path: Path) -> None:
    async with running(docker_order(tmp_path)) as place:
        before = await list_after_agent(place)
        marks = {path: each.mark for path, each in before.items()}
        await place.exec("rm /bin/touch")
        written, _ = await place.list_written(marks, is_hashing=False)
        assert [each.path for each in written if each.when is Phase.AGENT] == ["/bin/touch"]


@engine_needed
async def test_without_the_layers_paths_come_from_the_engine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(environment_module, "is_mounted_here", lambda _: False)
    async with running(docker_order(tmp_path)) as place:
        changes = await list_after_agent(place)
        around = place.surroundings()
    told = tell(changes, Phase.AGENT)
    assert told["/app/new"] == ("created", "file", False)
    assert told["/etc/passwd"] == ("changed", "file", True)
    assert told["/bin/env"] == ("deleted", "file", True)
    assert told["/installed/a"] == ("deleted", "file", False)
    assert told["/usr/local/bin"] == ("created", "directory", False)
    # Its path was known before, and that is all that the engine tells.
    assert changes["/app/old"].when is Phase.SETUP
    assert "/etc/hosts" not in changes
    assert {"/root", "/home/ada", "/home/eve"} <= set(around.homes)


@engine_needed
async def test_programs_find_their_files_by_the_containers_variables_and_users(
    tmp_path: Path,
) -> None:
    env = {"PYTHONPATH": "/app/lib", "LD_LIBRARY_PATH": "/opt/lib"}
    task = TaskEnvironment(docker_image="small:1", workdir="/app")
    async with running(docker_order(tmp_path, task=task, env=env)) as place:
        await list_after_agent(place)
        around = place.surroundings()
    assert around.workdir == "/app"
    assert {"/bin", "/usr/local/bin", "/opt/lib"} <= set(around.search_path)
    assert around.python_path == ("/app/lib",)
    assert set(around.homes) == {"/root", "/home/ada", "/home/eve"}


def test_a_directory_is_told_by_what_is_below_it() -> None:
    text = "C /etc\nA /etc/new\nA /etc/new/file\nC /etc/motd\nD /bin/ls\nnonsense\nC name\n"
    changes = list(parse_diff(text, {"/etc/motd": "C", "/was": "A", "/gone before": ""}))
    assert [(each.path, each.how, each.kind, str(each.when)) for each in changes] == [
        ("/etc/new", "created", "directory", "agent"),
        ("/etc/new/file", "created", "file", "agent"),
        ("/etc/motd", "changed", "file", "setup"),
        ("/bin/ls", "deleted", "file", "agent"),
        ("/was", "deleted", "file", "agent"),
    ]
