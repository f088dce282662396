"""Which file an interpreter runs, by real processes."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from proctor.environments.sandbox.watch import find_scripts
from tests.task.trees import write

CODE = "import time; time.sleep(60)\n"


@contextmanager
def running(directory: Path, words: list[str], stdin: Path | None) -> Iterator[str]:
    """An interpreter at work; where /proc shows it."""
    with (
        Path(stdin or "/dev/null").open() as source,
        subprocess.Popen([sys.executable, *words], cwd=directory, stdin=source) as child,
    ):
        place = f"/proc/{child.pid}"
        while not Path(f"{place}/cmdline").read_bytes().startswith(os.fsencode(sys.executable)):
            time.sleep(0.01)
        try:
            yield place
        finally:
            child.kill()


@pytest.mark.parametrize(
    ("words", "stdin", "found"),
    [
        (["prog.py"], None, "prog.py"),
        (["-u", "-B", "prog.py", "other.txt"], None, "prog.py"),
        # A value of an option is no file.
        (["-W", "ignore", "prog.py"], None, "prog.py"),
        (["-m", "prog"], None, "prog.py"),
        (["-mprog"], None, "prog.py"),
        (["-"], "prog.py", "prog.py"),
        ([], "prog.py", "prog.py"),
        (["-", "other.txt"], "prog.py", "prog.py"),
        (["-c", CODE, "prog.py"], None, None),
    ],
)
def test_where_an_interpreter_takes_its_code_from(
    tmp_path: Path, words: list[str], stdin: str | None, found: str | None
) -> None:
    directory = tmp_path.resolve()
    (directory / "prog.py").write_text(CODE)
    (directory / "other.txt").write_text("data")
    with running(directory, words, directory / stdin if stdin else None) as place:
        line = Path(f"{place}/cmdline").read_bytes().rstrip(b"\0").split(b"\0")
        told = [os.fsdecode(word) for word in line]
        scripts = list(find_scripts(place, sys.executable, str(directory), told))
    assert (scripts[0] if scripts else None) == (str(directory / found) if found else None)


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["bash", "-e", "-u", "/run.sh"], "/run.sh"),
        (["bash", "-ec", "exit", "/run.sh"], None),
        (["perl", "-w", "/run.sh"], "/run.sh"),
        (["perl", "-e", "1", "/run.sh"], None),
        (["node", "--harmony", "/run.sh"], "/run.sh"),
    ],
)
def test_options_of_other_interpreters(tmp_path: Path, words: list[str], found: str | None) -> None:
    # As /proc has it: the process's files below `root`.
    (tmp_path / "root").mkdir()
    (tmp_path / "root" / "run.sh").write_text("")
    scripts = list(find_scripts(str(tmp_path), f"/usr/bin/{words[0]}", "/", words))
    assert (scripts[0] if scripts else None) == found


@pytest.mark.parametrize(
    ("word", "found"),
    [
        ("/tests/run.sh", "/app/jail/tests/run.sh"),
        ("deeper.sh", "/app/deeper.sh"),
        ("../app/deeper.sh", "/app/deeper.sh"),
    ],
)
def test_after_chroot_a_script_has_its_path_in_the_sandbox(
    tmp_path: Path, word: str, found: str
) -> None:
    write(tmp_path, {"root/tests/run.sh": "", "app/deeper.sh": ""})
    (tmp_path / "cwd").symlink_to("app")
    words = ["bash", word]
    scripts = list(find_scripts(str(tmp_path), "/usr/bin/bash", "/app", words, "/app/jail"))
    assert scripts[0] == found
