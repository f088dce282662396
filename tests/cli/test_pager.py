"""The pager: only where somebody sits before a screen, and never in the way."""

import os
import pty
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.cli.programs import command_line, environment

pytestmark = pytest.mark.skipif(shutil.which("less") is None, reason="there is no less here")


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "trajectory.jsonl"
    lines = (
        f'{{"step": {step}, "role": "user", "content": "at {step}"}}\n' for step in range(9000)
    )
    path.write_text("".join(lines))
    return path


def on_terminal(
    *arguments: object, keys: bytes = b"", until: bytes = b"", **variables: str
) -> tuple[int, str]:
    """The exit code and what a terminal was sent; keys are pressed once `until` is on it."""
    ours, theirs = pty.openpty()
    usual = {"TERM": "xterm", "LINES": "24", "COLUMNS": "80"}
    env = {key: value for key, value in environment().items() if key not in ("PAGER", "LESS")}
    with subprocess.Popen(
        command_line(*arguments),
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env={**env, **usual, **variables},
        start_new_session=True,
    ) as process:
        os.close(theirs)
        sent = bytearray()
        while piece := _read(ours):
            sent += piece
            if keys and until in sent:
                os.write(ours, keys)
                keys = b""
        os.close(ours)
        plain = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", sent.decode())
        return process.wait(timeout=60), plain.replace("\r\n", "\n")


def _read(fd: int) -> bytes:
    try:
        return os.read(fd, 1 << 16)
    except OSError:  # how a terminal ends whose other side is gone
        return b""


def test_long_texts_wait_for_a_key_and_may_be_left_early(trace: Path) -> None:
    code, sent = on_terminal("show", trace, keys=b"q", until=b"step 3")
    assert code == 0
    assert "at 3\n" in sent
    assert "at 8999" not in sent


def test_what_fits_on_the_screen_is_not_paged(trace: Path) -> None:
    code, sent = on_terminal("show", trace, "--step", "7")
    assert code == 0
    assert "step 7  user\n    at 7\n" in sent


def test_the_users_own_pager_is_taken(trace: Path, tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    code, _ = on_terminal("show", trace, PAGER=f"sh -c 'cat > {kept}; echo $LESS >> {kept}'")
    assert code == 0
    assert kept.read_text().endswith("    at 8999\nFRX\n")


@pytest.mark.parametrize("pager", ["/nonexistent/pager", "false", "'", "cat"])
def test_a_pager_that_fails_changes_nothing(trace: Path, pager: str) -> None:
    code, sent = on_terminal("show", trace, "--step", "0-50", PAGER=pager)
    assert code == 0
    assert sent.count("    at 50\n") == 1


def test_without_a_pager_where_none_is_wanted(trace: Path) -> None:
    code, sent = on_terminal("show", trace, "--no-pager", PAGER="false")
    assert (code, sent.count("    at 8999\n")) == (0, 1)


def test_a_pipe_is_not_paged(trace: Path) -> None:
    done = subprocess.run(
        command_line("show", trace), env=environment(PAGER="false"), capture_output=True, check=True
    )
    assert done.stdout.endswith(b"    at 8999\n")
