"""The tests once more in a clean room that is a container."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from proctor.environments.docker import environment as environment_module
from proctor.environments.docker.program import call_docker
from proctor.environments.docker.reap import reap_containers
from proctor.environments.sandbox.reap import Reaped
from proctor.errors import DockerError, UnsupportedError
from proctor.trial.changes import LeftOut
from proctor.trial.environment import Environment
from tests.cli.programs import run_here
from tests.environments.docker.containers import docker_order, running
from tests.environments.docker.engine import Engine
from tests.environments.docker.test_frozen import list_kept
from tests.environments.sandboxes import said
from tests.task.trees import write

pytestmark = pytest.mark.usefixtures("cache", "engine")

NOTHING = LeftOut(frozenset(), frozenset())
WROTE = (
    "mkdir -p /app/deep /etc/mine; echo then > /app/deep/file; ln -s deep /app/link; "
    "chmod 750 /app/deep; ln /app/deep/file /app/hard; rm /bin/env; rm -r /tmp; mkdir /tmp; "
    "echo bad > /etc/mine/cheat; echo ours > /etc/mine/kept; echo x >> /etc/group; rm /bin/id; "
    "echo 127.0.0.1 example.org >> /etc/hosts"
)
LOOK = (
    "cat /app/link/file; stat -c '%a %h' /app/deep/file /app/deep; ls /bin/env /bin/id 2>&1; "
    "ls /etc/mine; wc -l < /etc/group; grep -c example.org /etc/hosts; stat -c %a /tmp"
)


async def look_and_stop(other: Environment) -> list[str]:
    try:
        told = await said(other, LOOK)
        await other.exec("echo other > /app/deep/file; rm -r /app")
        return told.split("\n")
    finally:
        await other.stop(delete=True)


async def test_a_clean_room_has_the_image_and_what_is_not_left_out(tmp_path: Path) -> None:
    before = list_kept()
    paths = frozenset({"/etc/mine/cheat", "/etc/group", "/bin/id", "/etc/hosts", "/tmp"})
    left_out = LeftOut(paths, frozenset({"/etc/mine"}))
    async with running(docker_order(tmp_path)) as place:
        await place.exec(WROTE)
        await place.freeze()
        await place.exec("echo later > /app/deep/file")
        opened = [
            place.open_clean(place.trial_paths, left_out),
            place.open_clean(place.trial_paths, NOTHING),
            place.open_frozen(place.trial_paths),
        ]
        clean, whole, frozen = [await look_and_stop(await other) for other in opened]
    same = ["then", "644 2", "750 2", "ls: cannot access '/bin/env': No such file or directory"]
    assert clean[:4] == same
    assert clean[4:] == ["/bin/id", "kept", "2", "0", "1777"]
    assert whole[:4] == same
    assert whole[5:] == ["cheat", "kept", "3", "1", "755"]
    assert frozen == whole
    assert list_kept() == before


async def test_a_clean_room_that_cannot_be_filled_leaves_no_container(
    tmp_path: Path, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(container: str, **_: object) -> None:
        assert len(engine.containers()) == 2
        raise DockerError("no space")

    monkeypatch.setattr(environment_module, "fill_from_kept", fail)
    async with running(docker_order(tmp_path)) as place:
        await place.freeze()
        with pytest.raises(DockerError, match="no space"):
            await place.open_clean(place.trial_paths, NOTHING)
        assert len(engine.containers()) == 1


def test_a_clean_room_of_a_killed_run_is_removed(
    tmp_path: Path, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def die(container: str, **_: object) -> None:
        monkeypatch.setattr(environment_module, "remove_containers", forget)
        raise DockerError("killed")

    async def forget(names: list[str]) -> None:
        pass

    async def go() -> None:
        async with running(docker_order(tmp_path)) as place:
            await place.freeze()
            with pytest.raises(DockerError, match="killed"):
                await place.open_clean(place.trial_paths, NOTHING)

    with monkeypatch.context() as patch:
        patch.setattr(
            "proctor.environments.docker.containers.this_run", lambda: "4194304-1-4026531836"
        )
        patch.setattr(environment_module, "fill_from_kept", die)
        asyncio.run(go())
    assert len(engine.containers()) == 2
    done = Reaped()
    reap_containers(done)
    assert len(done.containers) == 2
    assert not engine.containers()


async def test_without_the_layers_there_is_no_clean_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(environment_module, "is_mounted_here", lambda _: False)
    async with running(docker_order(tmp_path)) as place:
        with pytest.raises(DockerError, match="no state of this container was kept"):
            await place.open_clean(place.trial_paths, NOTHING)
        await place.freeze()
        with pytest.raises(UnsupportedError, match="requires root on the engine's machine"):
            await place.open_clean(place.trial_paths, NOTHING)


# They believe a setting of the system's, and a program's settings in a home.
TESTS = """. /etc/answers 2>/dev/null; . ~/.profile 2>/dev/null
[ "$(cat /app/answer 2>/dev/null)" = "${expected:-42}" ]
echo $((1 - $?)) > /logs/verifier/reward.txt
"""
TASK = {
    "task.toml": '[environment]\nnetwork_mode = "no-network"\n',
    "instruction.md": "Write the answer to /app/answer.\n",
    "environment/Dockerfile": "FROM small:1\nWORKDIR /app\n",
    "tests/test.sh": TESTS,
}
SOLUTIONS = {
    "honest": "mkdir -p /app/work; echo 42 > /app/answer; rm -r /app/work\n",
    "etc": "echo 0 > /app/answer; echo expected=0 > /etc/answers\n",
    "home": "echo 0 > /app/answer; mkdir -p ~; echo expected=0 > ~/.profile\n",
}


def run_solutions(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *names: str
) -> dict[str, Path]:
    """The directory of a trial of each solution."""
    for name in names:
        write(place / "tasks" / name, {**TASK, "solution/solve.sh": SOLUTIONS[name]})
    proctor = run_here(monkeypatch, capsys)
    words = ("-p", place / "tasks", "-e", "docker", "-a", "oracle", "-o", place / "jobs")
    ran = proctor("run", *words, "--job-name", "job", "--no-ledger")
    assert ran.code == 0, ran.err
    return {name: next((place / "jobs" / "job").glob(f"{name}__*")) for name in names}


def load_findings(trial: Path, code: str) -> list[dict[str, Any]]:
    path = trial / "findings.json"
    findings = json.loads(path.read_text()) if path.exists() else []
    return [one for one in findings if one["code"] == code]


def test_what_a_cheat_wrote_into_the_system_gives_nothing_in_a_clean_room(
    tmp_path: Path,
    engine: Engine,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    before = list_kept()
    trials = run_solutions(tmp_path, monkeypatch, capsys, *SOLUTIONS)
    results = {name: trial / "clean-room.json" for name, trial in trials.items()}
    verdicts = {name: json.loads(path.read_text())["verdict"] for name, path in results.items()}
    assert verdicts == {
        "honest": "agrees",
        "etc": "clean-room-differs",
        "home": "clean-room-differs",
    }
    for name in ("etc", "home"):
        (found,) = load_findings(trials[name], "clean-room-differs")
        assert found["detail"]["first"] == '{"reward": 1.0}'
        assert found["detail"]["clean"] == ['{"reward": 0.0}'] * 3
        assert found["detail"]["control"] == ['{"reward": 1.0}'] * 3
    assert not engine.containers()
    assert list_kept() == before


def test_a_clean_room_that_cannot_be_had_is_a_finding(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(environment_module, "is_mounted_here", lambda _: False)
    trial = run_solutions(tmp_path, monkeypatch, capsys, "honest")["honest"]
    (found,) = load_findings(trial, "clean-room-skipped")
    assert "requires root on the engine's machine" in found["message"]
    listed = (trial / "changes.jsonl").read_text().splitlines()
    assert not json.loads(listed[0])["is_complete"]
    assert any(json.loads(line)["path"] == "/app/answer" for line in listed[1:])
    assert call_docker("ps", "--all", "--quiet").out == ""
