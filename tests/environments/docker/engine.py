"""A Docker engine of the tests' own: a socket, a data root and a process that nobody else has.

It has no bridge and touches no firewall: containers have no network, or the host's. It is stopped
by its own process, and nothing of it is left on the machine.
"""

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from proctor.environments.sandbox.syscalls import unmount
from tests.environments.sandbox.rootfs import PROGRAMS, make_rootfs, pack
from tests.environments.sandboxes import find_mounts_below, place_for_overlays
from tests.faults.site import descendants

IMAGES = ("debian:bookworm-slim", "debian:12", "small:1")
"""All are the same small image of this machine's own programs."""
_PROGRAMS = (
    *("bash", "chmod", "find", "ln", "tar", "sha256sum", "wc", "setsid", "true", "false", "date"),
    *("head", "dd", "mv", "nohup", "seq", "grep", "readlink", "mknod", "tail", "timeout", "yes"),
)
_PATIENCE_SEC = 60.0


def find_obstacle() -> str | None:
    """Why there can be no engine here; None where there can."""
    if os.geteuid() != 0:
        return "a Docker engine of the tests' own takes root"
    if shutil.which("dockerd", path=_PATH) is None or shutil.which("docker") is None:
        return "docker.io is not installed: `make test` does that, as root"
    return None


_DOCKER = shutil.which("docker") or "docker"
_PATH = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"


class Engine:
    """One engine."""

    def __init__(self, top: Path, data: Path | None = None) -> None:
        self.top = top
        self.host = f"unix://{top}/docker.sock"
        self._data = data or top / "data"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Start it and wait until it answers."""
        with (self.top / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [
                    *("dockerd", "--host", self.host, "--iptables=false", "--bridge=none"),
                    *("--data-root", str(self._data), "--exec-root", str(self.top / "exec")),
                    *("--pidfile", str(self.top / "pid")),
                ],
                env={**os.environ, "PATH": _PATH},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        until = time.monotonic() + _PATIENCE_SEC
        while self.docker("version", code=None).returncode != 0:
            said = (self.top / "log").read_text(errors="replace")[-2000:]
            assert self._process.poll() is None, f"dockerd ended by itself: {said}"
            assert time.monotonic() < until, f"dockerd does not come up: {said}"
            time.sleep(0.05)

    def docker(
        self, *words: object, code: int | None = 0, data: bytes | None = None
    ) -> subprocess.CompletedProcess[bytes]:
        """Call docker; its exit code must be this one, unless that is None."""
        done = subprocess.run(
            [_DOCKER, "--host", self.host, *map(str, words)],
            input=data,
            stdin=subprocess.DEVNULL if data is None else None,
            capture_output=True,
            check=False,
            timeout=_PATIENCE_SEC,
        )
        assert code is None or done.returncode == code, done.stderr.decode()
        return done

    def lines_of(self, *words: object) -> list[str]:
        """The lines that a docker command prints."""
        return self.docker(*words).stdout.decode().split()

    def containers(self) -> list[str]:
        """All containers, whether they run or not."""
        return self.lines_of("ps", "--all", "--quiet", "--no-trunc")

    def kill(self) -> None:
        """End it as a machine's failure would; its containers go on for a while."""
        assert self._process is not None
        self._process.kill()
        self._process.wait(_PATIENCE_SEC)
        # What it kept goes with it on a real machine, by its service's control group.
        keeper = self.top / "exec" / "containerd" / "containerd.pid"
        with suppress(OSError, ValueError):
            os.kill(int(keeper.read_text()), signal.SIGKILL)
        for path in (self.top / "pid", self.top / "docker.sock", keeper):
            path.unlink(missing_ok=True)

    def stop(self) -> None:
        """End it and all its containers."""
        if self._process is None or self._process.poll() is not None:
            return
        if left := self.containers():
            self.docker("rm", "--force", "--volumes", *left, code=None)
        self._process.terminate()
        self._process.wait(_PATIENCE_SEC)

    def end_orphans(self) -> None:
        """End what an engine that was killed has left running."""
        mark = str(self.top).encode()
        for place in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                if mark in (place / "cmdline").read_bytes() and place.name != str(os.getpid()):
                    for pid in (*descendants(int(place.name)), int(place.name)):
                        os.kill(pid, signal.SIGKILL)

    def mounts(self) -> list[str]:
        """What is mounted below its directories just now."""
        return find_mounts_below(self.top, self._data)


def import_images(engine: Engine, archive: Path) -> None:
    """Give an engine the images that tasks name."""
    engine.docker("import", archive, IMAGES[0])
    for other in IMAGES[1:]:
        engine.docker("tag", IMAGES[0], other)


def pack_image(top: Path) -> Path:
    """The small image, as a tar."""
    top.mkdir(parents=True, exist_ok=True)
    root = make_rootfs(top / "root", (*PROGRAMS, *_PROGRAMS))
    return pack(root, top / "image.tar")


@contextmanager
def started(data: Path | None = None) -> Iterator[Engine]:
    """An engine that runs, with no image in it; nothing is left of it."""
    with place_for_overlays() as top:
        engine = Engine(top, data)
        try:
            engine.start()
            yield engine
        finally:
            engine.stop()
            engine.end_orphans()
            for target in reversed(engine.mounts()):
                unmount(target)
