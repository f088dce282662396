"""Limits memory, processors and processes of a sandbox, with control groups of version 1 or 2.

    limits_of(config, task)        the limits to enforce
    make_groups(name, limits)      make the groups; returns them, and limits that failed
    remove_groups(directories)     kill the processes in groups and remove the groups

Groups are made below the one of this process, so that its limits hold for the sandboxes too.
"""

import asyncio
import os
import signal
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from proctor.errors import SandboxError, UnsupportedError
from proctor.filesystems import Mount, list_mounts
from proctor.harbor.configs import EnvironmentConfig
from proctor.sentence import reason_of
from proctor.task.environment import EnvironmentConfig as TaskEnvironment

PREFIX = "proctor-"
"""Names of our groups are `proctor-<run>-<session>`."""
CONTROLLERS = ("memory", "cpu", "pids")

# Enough for parallel builds, and few enough that a fork bomb does not exhaust the host's pids.
_MOST_PROCESSES = 4096
# The kernel's default period, of which the quota is a multiple.
_PERIOD_USEC = 100_000
# The kernel's smallest quota is a hundredth of that period.
_LEAST_CPUS = 0.01
_PATIENCE_SEC = 10.0


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of one sandbox; None: no limit."""

    cpus: float | None = None
    memory_mb: int | None = None
    """In MiB, including swap if the kernel accounts for it."""
    pids: int = _MOST_PROCESSES
    storage_mb: int | None = None
    """In MiB; storage.py enforces it, not a control group."""

    @property
    def wanted(self) -> dict[str, str]:
        """Limits that the job or task set, by controller; without the default for processes."""
        asked = {"cpu": f"cpus = {self.cpus}", "memory": f"memory_mb = {self.memory_mb}"}
        unset = {"cpu": self.cpus is None, "memory": self.memory_mb is None}
        return {name: text for name, text in asked.items() if not unset[name]}


@dataclass(frozen=True, slots=True)
class Groups:
    """The control groups of one sandbox."""

    directories: tuple[str, ...]
    missing: dict[str, str]
    """Controllers whose limit is not enforced, each with the reason."""


@dataclass(frozen=True, slots=True)
class Hierarchy:
    """A directory in which groups can be made."""

    parent: Path
    controllers: tuple[str, ...]
    version: int


def limits_of(config: EnvironmentConfig, task: TaskEnvironment) -> Limits:
    """Return the limits of a job and a task; the job's overrides take precedence."""
    cpus, memory = config.cpu_enforcement_policy, config.memory_enforcement_policy
    return Limits(
        _limit_of("cpus", cpus, config.override_cpus, task.cpus, _LEAST_CPUS),
        _limit_of("memory_mb", memory, config.override_memory_mb, task.memory_mb, 1),
        storage_mb=config.override_storage_mb or task.storage_mb or None,
    )


def _limit_of[Limit: (int, float)](
    name: str, policy: str, override: Limit | None, asked: Limit | None, least: Limit
) -> Limit | None:
    if policy in {"request", "guarantee"}:
        option = "--cpus" if name == "cpus" else "--memory"
        raise UnsupportedError(
            f"{option} {policy}: the sandbox can limit resources, but not reserve them; use "
            "auto, limit or ignore"
        )
    value = asked if override is None else override
    if value is not None and value < least:
        raise UnsupportedError(f"{name} is {value}; expected {least} or more")
    return None if policy == "ignore" else value


def find_hierarchies(
    mounts: Sequence[Mount] | None = None, membership: str | None = None
) -> list[Hierarchy]:
    """Find where groups can be made; version 2 only for controllers that version 1 lacks."""
    if mounts is None or membership is None:
        try:
            mounts = list_mounts()
            membership = Path("/proc/self/cgroup").read_text(encoding="utf-8")
        except OSError:
            return []
    # Controllers, empty for version 2, and our group's path.
    fields = [line.split(":", 2) for line in membership.splitlines() if line.count(":") >= 2]
    homes = [(set(filter(None, keys.split(","))), path) for _, keys, path in fields]
    found: list[Hierarchy] = []
    for mount in mounts:
        names = tuple(name for name in CONTROLLERS if name in mount.options.split(","))
        if mount.kind == "cgroup" and names:
            home = next((path for keys, path in homes if set(names) & keys), "/")
            found.append(Hierarchy(_below(mount, home), names, 1))
    taken = {name for hierarchy in found for name in hierarchy.controllers}
    for mount in mounts:
        if mount.kind == "cgroup2":
            home = next((path for keys, path in homes if not keys), "/")
            found += _find_v2(mount, home, taken)
    return found


def _below(mount: Mount, path: str) -> Path:
    """Return our own group if visible, or else the top: a container may show another tree."""
    inner = os.path.relpath(path, mount.root)
    home = Path(mount.target) / inner
    return home if not inner.startswith("..") and home.is_dir() else Path(mount.target)


def _find_v2(mount: Mount, path: str, taken: set[str]) -> Iterator[Hierarchy]:
    """Find the nearest group, from ours up, that delegates the missing controllers."""
    # Our own group contains processes, and version 2 lets such a group delegate nothing, unless
    # it is the root.
    needed = [name for name in CONTROLLERS if name not in taken]
    top = Path(mount.target)
    home = _below(mount, path)
    best: tuple[str, ...] = ()
    chosen = top
    for group in (home, *home.parents):
        if not group.is_relative_to(top):
            break
        handed = set(_read_words(group / "cgroup.subtree_control"))
        names = tuple(name for name in needed if name in handed)
        if len(names) > len(best) and os.access(group / "cgroup.procs", os.W_OK):
            best, chosen = names, group
    if best:
        yield Hierarchy(chosen, best, 2)


def _read_words(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8").split()
    except OSError:
        return []


def make_groups(
    name: str, limits: Limits, hierarchies: Sequence[Hierarchy] | None = None
) -> Groups:
    """Make the groups of one sandbox and set its limits."""
    if hierarchies is None:
        hierarchies = find_hierarchies()
    nowhere = "no control group hierarchy for it is mounted, or none delegates it"
    missing = dict.fromkeys(("pids", *limits.wanted), nowhere)
    made: list[str] = []
    for hierarchy in hierarchies:
        mine = [controller for controller in hierarchy.controllers if controller in missing]
        if not mine:
            continue
        directory = hierarchy.parent / name
        try:
            directory.mkdir()
        except OSError as error:
            reason = f"{hierarchy.parent}: cannot create a group: {reason_of(error)}"
            missing.update(dict.fromkeys(mine, reason))
            continue
        made.append(str(directory))
        for controller in mine:
            fault = _set_limit(directory, controller, limits, hierarchy.version)
            if fault is None:
                del missing[controller]
            else:
                missing[controller] = fault
    return Groups(tuple(made), missing)


def _set_limit(directory: Path, controller: str, limits: Limits, version: int) -> str | None:
    """Write the limit of one controller; return the reason if that fails."""
    for file, value, is_optional in _settings(controller, limits, version):
        try:
            (directory / file).write_text(value, encoding="utf-8")
        except OSError as error:
            if not is_optional:
                return f"{file} of {directory.parent} cannot be set to {value}: {reason_of(error)}"
    return None


def _settings(controller: str, limits: Limits, version: int) -> list[tuple[str, str, bool]]:
    """Return files of a group, their values, and whether the kernel may lack them."""
    memory = str((limits.memory_mb or 0) << 20)
    quota = str(round((limits.cpus or 0) * _PERIOD_USEC))
    match controller, version:
        case "memory", 1:
            swap = "memory.memsw.limit_in_bytes"
            return [("memory.limit_in_bytes", memory, False), (swap, memory, True)]
        case "memory", _:
            return [("memory.max", memory, False), ("memory.swap.max", "0", True)]
        case "cpu", 1:
            period = ("cpu.cfs_period_us", str(_PERIOD_USEC), False)
            return [period, ("cpu.cfs_quota_us", quota, False)]
        case "cpu", _:
            return [("cpu.max", f"{quota} {_PERIOD_USEC}", False)]
        case _:
            return [("pids.max", str(limits.pids), False)]


async def remove_groups(directories: Sequence[str]) -> None:
    """Kill the processes in groups, wait until they are empty, and remove them.

    Raises:
        SandboxError: a process in one of them does not die.
    """
    loop = asyncio.get_running_loop()
    until = loop.time() + _PATIENCE_SEC
    for directory in directories:
        pause = 0.0005
        while not remove_group(Path(directory)):
            if loop.time() > until:
                raise SandboxError(f"{directory}: processes in this control group do not die")
            await asyncio.sleep(pause)
            pause = min(pause * 2, 0.05)


def remove_group(directory: Path) -> bool:
    """Kill the processes in a group and remove it; return False while one is still dying."""
    try:
        directory.rmdir()
    except FileNotFoundError:
        return True
    except OSError:
        # Atomically if the kernel can, or else one by one.
        try:
            # Version 2 has it since Linux 5.14. It is atomic: a fork cannot escape it.
            (directory / "cgroup.kill").write_text("1", encoding="utf-8")
        except OSError:
            for pid in map(int, _read_words(directory / "cgroup.procs")):
                # 0 is a process of another pid namespace; to kill(), it would mean our own group.
                if pid > 0:
                    with suppress(ProcessLookupError, PermissionError):
                        os.kill(pid, signal.SIGKILL)
        return False
    return True
