"""Running the pack in an environment, on a machine that keeps watch on itself.

    run_pack(SANDBOX, place)     every cheater, as one or two jobs; what became of each
    Watch                        what of the host must be as it was: files, mounts, processes

A site is an environment and who runs it. Others' runners need none of this: see README.md.
"""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.cheaters.pack import HERE, Cheater, Outcome, load_cheaters, load_outcomes
from tests.cli.programs import environment as roots_environment
from tests.ordinary_user import command_line as as_ordinary_user
from tests.ordinary_user import environment as ordinary_environment
from tests.ordinary_user import give

ROOT = HERE.parents[1]
_CANARY = "host-canary-0f83bd17"
_FLOOD = 200_000_000
_SCRATCH_MIB = 192
_PATIENCE_SEC = 1500
IMAGE = "debian:bookworm-slim"
"""What the tasks of the pack are built from."""
_KERNEL = ("kernel/core_pattern", "kernel/hostname", "vm/overcommit_memory", "fs/file-max")


@dataclass(frozen=True)
class Site:
    """Where the pack runs, and as whom."""

    name: str
    """Its section in cheater.toml."""
    title: str
    """Its column in the table."""
    is_ordinary: bool = False
    words: tuple[str, ...] = ("-e", "sandbox")
    """The environment, to `proctor run`."""
    variables: Mapping[str, str] = field(default_factory=dict)
    has_own_disk: bool = False
    """What agents write goes elsewhere than into the sandboxes' scratch."""
    base: Path | None = None
    """A root file system that is imported as the image that the tasks name."""


SANDBOX = Site("sandbox", "sandbox, root")
SANDBOX_USER = Site("sandbox-user", "sandbox, unprivileged user", is_ordinary=True)


@dataclass
class Watch:
    """What a cheater may have changed of the host."""

    place: Path
    faults: list[str] = field(default_factory=list)

    def look(self) -> tuple[str, ...]:
        """What must be as it was."""
        kernel = [Path("/proc/sys", name).read_text() for name in _KERNEL]
        lines = Path("/proc/self/mountinfo").read_text().splitlines()
        mounts = "\n".join(line for line in lines if str(self.place) in line)
        users = Path("/etc/passwd").read_text()
        return (*kernel, mounts, users, self.canary.read_text(), _modes("/dev"), _modes("/proc"))

    @property
    def canary(self) -> Path:
        """A file of the host's that everybody there may read."""
        return self.place / "canary.txt"


def _modes(directory: str) -> str:
    """Modes and owners of the plain things in a directory, processes excepted."""
    paths = sorted(path for path in Path(directory).iterdir() if not path.name.isdecimal())
    found = [(path, path.lstat()) for path in paths if path.name != "pts"]
    return "\n".join(f"{path} {each.st_mode:o} {each.st_uid} {each.st_gid}" for path, each in found)


@contextmanager
def _listening() -> Iterator[tuple[int, str]]:
    """Services on the host's loopback and on an abstract socket: a port and a name."""
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket(socket.AF_UNIX) as local:
        name = f"proctor-cheaters-{os.getpid()}"
        local.bind(f"\0{name}")
        local.listen()
        yield server.getsockname()[1], name


def run_pack(
    site: Site, place: Path, names: Sequence[str] | None = None, flood: int = _FLOOD
) -> tuple[dict[str, Outcome], list[str]]:
    """Run cheaters, all unless some are named: what became of each, and what the host noticed."""
    cheaters = load_cheaters()
    chosen = [cheaters[name] for name in (names or cheaters)]
    watch = Watch(place)
    watch.canary.write_text(_CANARY)
    before = watch.look()
    outcomes: dict[str, Outcome] = {}
    if site.base is not None:
        _import_base(site, place, site.base)
    with _listening() as (port, name):
        told = {"CHEATER_PORT": port, "CHEATER_SOCKET": name, "CHEATER_CANARY": watch.canary}
        variables = {key: str(value) for key, value in told.items()} | {"CHEATER_FLOOD": str(flood)}
        for number, group in enumerate(_groups(chosen)):
            job = _run_job(site, place, f"job-{number}", group, variables)
            outcomes |= load_outcomes(job)
            watch.faults += _find_left(place)
    pairs = zip(before, watch.look(), strict=True)
    watch.faults += [f"on the host, {was!r} is {now!r} now" for was, now in pairs if was != now]
    return outcomes, watch.faults


def _import_base(site: Site, place: Path, base: Path) -> None:
    words = [sys.executable, "-m", "proctor", "image", "import", IMAGE, str(base)]
    env = _variables(site, place)
    subprocess.run(words, cwd=place, env=env, check=True, capture_output=True, text=True)


def _groups(chosen: Sequence[Cheater]) -> Iterator[list[Cheater]]:
    """Those that one command can run."""
    if together := [each for each in chosen if each.agent == "oracle"]:
        yield together
    yield from ([each] for each in chosen if each.agent != "oracle")


def _run_job(
    site: Site, place: Path, name: str, group: Sequence[Cheater], variables: Mapping[str, str]
) -> Path:
    agent = ["-a", group[0].agent]
    if group[0].agent == "scripted":
        agent += ["--ak", f"script={HERE / group[0].name / 'solution/solve.sh'}"]
    agent += [word for pair in variables.items() for word in ("--ae", "=".join(pair))]
    tasks = [word for each in group for word in ("-i", each.name)]
    words = ["run", "-p", HERE, *tasks, *agent, *site.words, "-n", 1, "-o", place / "jobs"]
    words += ["--job-name", name, "-q", "-y"]
    done = subprocess.run(
        _command(site, place, words),
        cwd=place,
        env=_variables(site, place) | dict(site.variables),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=_PATIENCE_SEC,
    )
    assert done.returncode in (0, 3), done.stderr + done.stdout
    return place / "jobs" / name


def _command(site: Site, place: Path, words: Sequence[object]) -> list[str]:
    proctor = [sys.executable, "-m", "proctor", *map(str, words)]
    if os.geteuid() != 0 or site.has_own_disk:
        return proctor
    confined = [sys.executable, "-m", "tests.cheaters.confined", str(place / "scratch")]
    confined += [str(_SCRATCH_MIB), str(place / "left.txt")]
    return [*confined, *(as_ordinary_user(*proctor) if site.is_ordinary else proctor)]


def _variables(site: Site, place: Path) -> dict[str, str]:
    """The runner's environment, with a secret in it that nobody inside may see."""
    (scratch := place / "scratch").mkdir(mode=0o700, exist_ok=True)
    if site.is_ordinary:
        give(scratch)
    own = {
        "HOST_SECRET": _CANARY,
        "PROCTOR_SCRATCH": str(place / "scratch"),
        "PROCTOR_CACHE": str(place / "cache"),
        "PROCTOR_LEDGER": str(place / "ledger"),
        "XDG_CONFIG_HOME": str(place / "config"),
    }
    if site.is_ordinary and os.geteuid() == 0:
        return ordinary_environment(place, **own)
    found = roots_environment(**own)
    return found | {"PYTHONPATH": os.pathsep.join([str(ROOT), found["PYTHONPATH"]])}


def _find_left(place: Path) -> list[str]:
    """What is left of a job besides its results: scratch, and processes."""
    left = place / "left.txt"
    faults = (
        [f"left in the scratch: {left.read_text()}"] if left.exists() and left.read_text() else []
    )
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if str(place).encode() in (process / "environ").read_bytes():
                faults.append(f"left running: {(process / 'cmdline').read_bytes()!r}")
        except OSError:
            continue
    return faults
