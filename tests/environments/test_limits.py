"""Limits by control groups: which are asked for, where they can be set, and that they hold."""

import asyncio
import os
import subprocess
from pathlib import Path

import pytest

from proctor.environments.sandbox.limits import (
    Hierarchy,
    Limits,
    find_hierarchies,
    limits_of,
    make_groups,
    remove_group,
    remove_groups,
)
from proctor.filesystems import Mount
from proctor.harbor.configs import EnvironmentConfig
from proctor.task.environment import EnvironmentConfig as TaskEnvironment
from proctor.trial.finding import FindingCode
from tests.environments.orders import order_of
from tests.environments.sandboxes import find_groups, found_in, running
from tests.unprivileged import unprivileged

TASK = TaskEnvironment(cpus=2, memory_mb=512)


# What is asked for


@pytest.mark.parametrize(
    ("config", "limits"),
    [
        (EnvironmentConfig(), Limits(2, 512)),
        (EnvironmentConfig(override_cpus=4, override_memory_mb=64), Limits(4, 64)),
        (EnvironmentConfig(override_cpus=0.5), Limits(0.5, 512)),
        (EnvironmentConfig(cpu_enforcement_policy="limit"), Limits(2, 512)),
        (EnvironmentConfig(cpu_enforcement_policy="ignore"), Limits(None, 512)),
        (EnvironmentConfig(memory_enforcement_policy="ignore"), Limits(2, None)),
    ],
)
def test_the_job_decides_over_the_task(config: EnvironmentConfig, limits: Limits) -> None:
    assert limits_of(config, TASK) == limits


def test_the_number_of_processes_is_limited_unasked() -> None:
    assert limits_of(EnvironmentConfig(), TaskEnvironment()) == Limits(None, None, 4096)


# Where groups are made


def v2_tree(top: Path, handed: dict[str, str]) -> Mount:
    """A tree of groups as version 2 shows it, each with what it hands to its children."""
    for name, controllers in handed.items():
        group = top / name
        group.mkdir(parents=True, exist_ok=True)
        (group / "cgroup.procs").touch()
        (group / "cgroup.subtree_control").write_text(controllers)
    return Mount("/", str(top), "cgroup2", "rw")


def test_version_2_takes_the_nearest_group_that_hands_down_what_is_needed(tmp_path: Path) -> None:
    handed = {
        ".": "cpu memory pids io",
        "user.slice": "cpu memory pids",
        "user.slice/session": "memory",
        "user.slice/session/scope": "",
    }
    mount = v2_tree(tmp_path, handed)
    (found,) = find_hierarchies([mount], "0::/user.slice/session/scope\n")
    assert found == Hierarchy(tmp_path / "user.slice", ("memory", "cpu", "pids"), 2)


def test_version_2_gives_what_there_is_where_not_all_is_handed_down(tmp_path: Path) -> None:
    mount = v2_tree(tmp_path, {".": "pids", "a": ""})
    (found,) = find_hierarchies([mount], "0::/a\n")
    assert found == Hierarchy(tmp_path, ("pids",), 2)


def test_version_2_that_hands_nothing_down_is_no_place(tmp_path: Path) -> None:
    assert find_hierarchies([v2_tree(tmp_path, {".": ""})], "0::/\n") == []


def test_version_1_has_a_hierarchy_for_each_controller_and_version_2_the_rest(
    tmp_path: Path,
) -> None:
    (tmp_path / "cpu" / "mine").mkdir(parents=True)
    (tmp_path / "memory").mkdir()
    mounts = [
        Mount("/", str(tmp_path / "cpu"), "cgroup", "rw,cpu,cpuacct"),
        # A container that was given the tree from its own group on.
        Mount("/box", str(tmp_path / "memory"), "cgroup", "rw,memory"),
        v2_tree(tmp_path / "v2", {".": "pids memory"}),
    ]
    found = find_hierarchies(mounts, "3:memory:/box\n2:cpu,cpuacct:/mine\n0::/\n")
    assert found == [
        Hierarchy(tmp_path / "cpu" / "mine", ("cpu",), 1),
        Hierarchy(tmp_path / "memory", ("memory",), 1),
        Hierarchy(tmp_path / "v2", ("pids",), 2),
    ]


def test_a_group_that_cannot_be_seen_gives_way_to_the_top(tmp_path: Path) -> None:
    mount = Mount("/elsewhere", str(tmp_path), "cgroup", "rw,pids")
    (found,) = find_hierarchies([mount], "1:pids:/mine\n")
    assert found.parent == tmp_path


@pytest.mark.parametrize(("cpus", "quota"), [(2, "200000"), (0.5, "50000"), (0.015, "1500")])
def test_version_2_is_told_in_its_own_words(tmp_path: Path, cpus: float, quota: str) -> None:
    place = Hierarchy(tmp_path, ("memory", "cpu", "pids"), 2)
    groups = make_groups("g", Limits(cpus, 64), [place])
    assert groups.missing == {}
    written = {path.name: path.read_text() for path in (tmp_path / "g").iterdir()}
    assert written == {
        "memory.max": str(64 << 20),
        "memory.swap.max": "0",
        "cpu.max": f"{quota} 100000",
        "pids.max": "4096",
    }


def test_what_cannot_be_enforced_has_a_reason(tmp_path: Path) -> None:
    (tmp_path / "cpu").touch()
    groups = make_groups("g", Limits(2, 64), [Hierarchy(tmp_path / "cpu", ("cpu",), 1)])
    assert set(groups.missing) == {"cpu", "memory", "pids"}
    assert "cannot create a group: Not a directory" in groups.missing["cpu"]
    assert "no control group hierarchy" in groups.missing["memory"]


def test_an_ordinary_user_without_groups_gets_reasons_and_no_groups(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir("/")
    hierarchies = find_hierarchies()
    with unprivileged():
        groups = make_groups("proctor-test", Limits(1, 64), hierarchies)
    assert groups.directories == ()
    assert "Permission denied" in groups.missing["memory"]


# That they hold, on this machine


def this_machine() -> set[str]:
    return {name for place in find_hierarchies() for name in place.controllers}


pytest_on_this_machine = pytest.mark.skipif(
    os.geteuid() != 0 or this_machine() != {"memory", "cpu", "pids"},
    reason="control groups can be made by root alone",
)


@pytest_on_this_machine
def test_a_process_in_a_group_is_killed_with_it() -> None:
    groups = make_groups(f"proctor-test-{os.getpid()}", Limits(1, 64))
    with subprocess.Popen(["sleep", "1000"]) as sleeper:
        for directory in groups.directories:
            Path(directory, "cgroup.procs").write_text(str(sleeper.pid))
        asyncio.run(remove_groups(groups.directories))
        assert sleeper.wait() == -9
    assert not any(Path(directory).exists() for directory in groups.directories)


@pytest_on_this_machine
def test_removing_a_group_that_is_gone_is_fine(tmp_path: Path) -> None:
    assert remove_group(tmp_path / "gone")


@pytest_on_this_machine
@pytest.mark.usefixtures("cache")
async def test_memory_beyond_the_limit_kills_the_command_and_not_the_sandbox(
    tmp_path: Path,
) -> None:
    task = TaskEnvironment(memory_mb=64)
    hog = "head -c 200000000 /dev/zero | tail -c 190000000 > /dev/null; exit ${PIPESTATUS[1]}"
    async with running(order_of(tmp_path, task=task)) as sandbox:
        code = (await sandbox.exec(hog)).return_code
        assert (code, (await sandbox.exec("echo alive")).stdout) == (137, "alive\n")


@pytest_on_this_machine
@pytest.mark.usefixtures("cache")
@pytest.mark.parametrize(("cpus", "quota"), [(None, "200000"), (0.5, "50000")])
async def test_limits_stand_in_the_groups_that_the_sandbox_is_in(
    tmp_path: Path, cpus: float | None, quota: str
) -> None:
    def read(name: str) -> str:
        (found,) = [group / name for group in find_groups() if (group / name).exists()]
        return found.read_text().strip()

    config = EnvironmentConfig(override_cpus=cpus, override_memory_mb=300)
    order = order_of(tmp_path, task=TASK, config=config)
    async with running(order) as sandbox:
        assert not found_in(sandbox)
        await sandbox.exec("setsid sleep 1000 & disown")
        counts = {str(len((group / "cgroup.procs").read_text().split())) for group in find_groups()}
        assert counts == {"3"}  # PID 1, who starts its commands, and what is left of one
        names = ("memory.limit_in_bytes", "cpu.cfs_quota_us", "pids.max")
        assert {name: read(name) for name in names} == {
            "memory.limit_in_bytes": str(300 << 20),
            "cpu.cfs_quota_us": quota,
            "pids.max": "4096",
        }


@pytest_on_this_machine
@pytest.mark.usefixtures("cache")
async def test_a_fork_bomb_ends_at_the_limit_and_the_sandbox_can_still_be_stopped(
    tmp_path: Path,
) -> None:
    async with running(order_of(tmp_path)) as sandbox:
        group = next(group for group in find_groups() if (group / "pids.max").exists())
        (group / "pids.max").write_text("50")
        bomb = asyncio.ensure_future(sandbox.exec("while :; do sleep 1000 & done"))
        while (group / "pids.events").read_text().split() == ["max", "0"]:
            await asyncio.sleep(0.01)
        most = int((group / "pids.current").read_text())
        bomb.cancel()
        await asyncio.wait([bomb])
        assert most <= 50
    assert find_groups() == []


@pytest.mark.usefixtures("cache")
def test_limits_that_cannot_be_set_are_findings_only_where_they_were_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("proctor.environments.sandbox.pool.find_hierarchies", list)

    async def go(task: TaskEnvironment) -> list[tuple[FindingCode, object]]:
        async with running(order_of(tmp_path, task=task)) as sandbox:
            return [(found.code, found.detail["limit"]) for found in found_in(sandbox)]

    code = FindingCode.LIMITS_NOT_ENFORCED
    assert asyncio.run(go(TASK)) == [(code, "cpus = 2"), (code, "memory_mb = 512")]
    assert asyncio.run(go(TaskEnvironment())) == []
