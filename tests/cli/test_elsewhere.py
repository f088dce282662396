"""What proctor does on a system that lacks what only Linux has."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.audit.directories import COPIED
from tests.cli.programs import environment

# Python leaves these out on macOS.
WITHOUT = """
import fcntl, os, runpy, select, signal, socket, sys
lacking = {
    os: "sched_getaffinity pipe2 fdatasync memfd_create unshare setns pidfd_open listxattr getxattr"
        " setxattr copy_file_range splice posix_fadvise posix_fallocate O_PATH O_TMPFILE O_NOATIME",
    fcntl: "F_SETPIPE_SZ F_GETPIPE_SZ",
    select: "epoll",
    signal: "pidfd_send_signal sigtimedwait sigwaitinfo",
    socket: "AF_NETLINK",
}
for module, names in lacking.items():
    for name in names.split():
        if hasattr(module, name):
            delattr(module, name)
"""
JOB = COPIED / "01-binary-oracle-k1"


def run_elsewhere(
    program: str, *arguments: object, **changes: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", WITHOUT + program, *map(str, arguments)],
        env=environment(**changes),
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


@pytest.mark.parametrize("words", [("--help",), ("score", JOB), ("audit", JOB)])
def test_jobs_are_scored_and_audited_without_linux(words: tuple[object, ...]) -> None:
    ran = run_elsewhere("runpy.run_module('proctor', run_name='__main__')", *words)
    assert (ran.returncode, ran.stderr) == (0, "")


def test_jobs_are_imported_reported_and_searched_without_linux(tmp_path: Path) -> None:
    ledger = ("--ledger", tmp_path / "ledger")
    for words in (
        ("import", "harbor", JOB, *ledger),
        ("ledger", "verify", *ledger),
        ("search", "hello", *ledger),
    ):
        ran = run_elsewhere(
            "runpy.run_module('proctor', run_name='__main__')",
            *words,
            XDG_CONFIG_HOME=str(tmp_path),
        )
        assert (ran.returncode, "Traceback" in ran.stderr) == (0, False), ran.stderr


def test_the_viewer_and_docker_are_loaded_without_linux() -> None:
    program = "import proctor.cli.viewing, proctor.environments.docker.environment"
    assert run_elsewhere(program).returncode == 0
