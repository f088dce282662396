"""What an agent left in a container, kept as an image and verified again."""

import asyncio
import json
from pathlib import Path

import pytest

from proctor.environments.docker import environment as environment_module
from proctor.environments.docker.environment import DockerEnvironment, keep_as_image
from proctor.environments.docker.program import call_docker
from proctor.environments.docker.reap import reap_containers
from proctor.environments.sandbox.reap import Reaped
from proctor.errors import DockerError
from proctor.trial.account import Pausing
from proctor.trial.environment import Freezing
from tests.cli.programs import run_here
from tests.environments.docker.containers import docker_order, running
from tests.environments.sandboxes import said
from tests.task.trees import write

pytestmark = pytest.mark.usefixtures("cache", "engine")

# The tests take away what they look for: only on a kept state they pass a second time.
ONCE = "if rm /app/answer; then echo 1; else echo 0; fi > /logs/verifier/reward.txt\n"
TASK = {
    "task.toml": '[environment]\nnetwork_mode = "no-network"\n',
    "instruction.md": "Do it.\n",
    "environment/Dockerfile": "FROM small:1\nWORKDIR /app\nRUN mkdir -p /old/deep\n",
    "tests/test.sh": ONCE,
    "solution/solve.sh": "touch /app/answer; rm -rf /old\n",
}


def list_kept() -> list[str]:
    """Images without a name."""
    told = call_docker("image", "ls", "--no-trunc", "--quiet", "--filter", "dangling=true")
    return told.out.split()


async def test_a_container_begins_with_what_another_kept_and_changes_neither(
    tmp_path: Path,
) -> None:
    before = list_kept()
    async with running(docker_order(tmp_path)) as place:
        assert isinstance(place, Freezing)
        await place.exec("mkdir /kept; echo then > /kept/file; rm -rf /home")
        await place.freeze()
        await place.exec("echo later > /kept/file")
        told = []
        for _ in range(2):
            other = await place.open_frozen(place.trial_paths)
            told.append(await said(other, "cat /kept/file; ls -d /home 2>/dev/null; pwd"))
            await other.exec("echo other > /kept/file")
            await other.stop(delete=True)
        first, second, outside = [*told, await said(place, "cat /kept/file")]
    assert first == second
    assert first.split("\n")[0] == "then"
    assert "/home" not in first
    assert outside == "later"
    assert list_kept() == before


def test_the_last_state_that_was_kept_counts_and_no_other_stays(tmp_path: Path) -> None:
    before = list_kept()

    async def go() -> str:
        async with running(docker_order(tmp_path)) as place:
            await place.freeze()
            await place.exec("echo second > /state")
            await place.freeze()
            assert len(list_kept()) == len(before) + 1
            other = await place.open_frozen(place.trial_paths)
            try:
                return await said(other, "cat /state")
            finally:
                await other.stop(delete=True)

    assert asyncio.run(go()) == "second"
    assert list_kept() == before


def test_without_a_state_there_is_nothing_to_begin_with(tmp_path: Path) -> None:
    async def go() -> DockerEnvironment:
        async with running(docker_order(tmp_path)) as place:
            return await place.open_frozen(place.trial_paths)

    with pytest.raises(DockerError, match="no state of this container was kept"):
        asyncio.run(go())


def test_what_a_killed_run_kept_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def keep() -> str:
        async with running(docker_order(tmp_path)) as place:
            now = place._now()
            return (await keep_as_image(now.container, now.image)).id

    # A process that has ended: the labels say that it kept the image.
    with monkeypatch.context() as patch:
        patch.setattr(
            "proctor.environments.docker.containers.this_run", lambda: "4194304-1-4026531836"
        )
        kept = asyncio.run(keep())
    seen = Reaped()
    reap_containers(seen, dry_run=True)
    assert kept in seen.images
    assert kept in list_kept()
    done = Reaped()
    reap_containers(done)
    assert kept in done.images
    assert kept not in list_kept()


def test_a_trial_in_a_container_is_verified_again_on_what_was_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path / "tasks" / "once", TASK)
    proctor = run_here(monkeypatch, capsys)
    words = ("-p", tmp_path / "tasks", "-e", "docker", "-a", "oracle", "--verify-again", "2")
    ran = proctor("run", *words, "-o", tmp_path / "jobs", "--job-name", "job", "--no-ledger")
    assert ran.code == 0, ran.err
    (trial,) = (tmp_path / "jobs" / "job").glob("once__*")
    (again,) = json.loads((trial / "verify-again.json").read_text())["states"]
    assert again["state"] == "frozen"
    assert [each["rewards"] for each in again["verifications"]] == [{"reward": 1.0}] * 3
    assert again["flake_rate"] == 0.0


@pytest.mark.parametrize("is_here", [True, False])
async def test_what_lies_in_memory_is_seen(
    is_here: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not is_here:
        monkeypatch.setattr(environment_module, "is_mounted_here", lambda _: False)
    async with running(docker_order(tmp_path)) as place:
        told = [await place.holds_memory()]
        await place.exec("echo x > /dev/shm/x")
        assert [*told, await place.holds_memory()] == [False, True]


def test_volumes_of_an_image_are_not_kept_and_the_trial_says_so(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    dockerfile = "FROM small:1\nVOLUME /data\nWORKDIR /app\n"
    write(tmp_path / "tasks" / "once", {**TASK, "environment/Dockerfile": dockerfile})
    proctor = run_here(monkeypatch, capsys)
    words = ("-p", tmp_path / "tasks", "-e", "docker", "-a", "oracle", "--verify-again", "1")
    ran = proctor("run", *words, "-o", tmp_path / "jobs", "--job-name", "job", "--no-ledger")
    assert ran.code == 0, ran.err
    (trial,) = (tmp_path / "jobs" / "job").glob("once__*")
    (again,) = json.loads((trial / "verify-again.json").read_text())["states"]
    assert "has volumes, whose files cannot be in an image" in again["reason"]


async def test_a_container_stands_still_while_its_files_are_kept(tmp_path: Path) -> None:
    """What was kept is what lay there when it was paused; the writer goes on afterwards."""
    count = "n=0; while true; do n=$((n+1)); echo $n > /count.new; mv /count.new /count; done"
    async with running(docker_order(tmp_path)) as place:
        assert isinstance(place, Pausing)
        assert await place.pause() == 0
        await place.resume()
        await place.exec(f"({count}) >/dev/null 2>&1 </dev/null &")
        await said(place, "until [ -s /count ]; do sleep 0.1; done")
        assert await place.pause() == 0
        assert await place.list_processes()
        await place.download_file("/count", tmp_path / "count")
        await place.freeze()
        await place.resume()
        other = await place.open_frozen(place.trial_paths)
        kept = await said(other, "cat /count")
        await other.stop(delete=True)
        await said(place, f"while [ $(cat /count) = {kept} ]; do sleep 0.1; done")
        paused = (tmp_path / "count").read_text().strip()
        later = await said(place, "cat /count")
    assert paused == kept
    assert int(later) > int(kept)
