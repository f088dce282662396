"""What pins an agent: digests of files, and version commands."""

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from proctor.agents.kinds import find_command_pin, find_revision
from proctor.agents.revision import (
    file_digest,
    pin_command,
    run_version_command,
    staged,
    tree_digest,
)
from proctor.digest import sha256_hex
from proctor.errors import AgentError
from proctor.harbor.configs import AgentConfig
from tests.task.trees import write


def agent_tree(root: Path) -> Path:
    tree = write(root, {"main.py": "print()\n", "lib/a.py": "a = 1\n", "run.sh": "true\n"})
    (tree / "run.sh").chmod(0o755)
    (tree / "link").symlink_to("main.py")
    return tree


def test_the_same_tree_elsewhere_has_the_same_digest(tmp_path: Path) -> None:
    one, other = agent_tree(tmp_path / "one"), agent_tree(tmp_path / "other")
    (other / "main.py").chmod(0o600)
    assert tree_digest(one) == tree_digest(other)
    assert tree_digest(one).startswith("sha256:")


def _link_elsewhere(tree: Path) -> None:
    (tree / "link").unlink()
    (tree / "link").symlink_to("run.sh")


@pytest.mark.parametrize(
    "change",
    [
        lambda tree: (tree / "main.py").write_text("print(1)\n"),
        lambda tree: (tree / "main.py").chmod(0o755),
        lambda tree: (tree / "main.py").rename(tree / "other.py"),
        lambda tree: (tree / "empty").mkdir(),
        lambda tree: (tree / "lib" / "a.py").rename(tree / "a.py"),
        _link_elsewhere,
    ],
)
def test_a_changed_tree_has_another_digest(
    tmp_path: Path, change: Callable[[Path], object]
) -> None:
    tree = agent_tree(tmp_path / "tree")
    before = tree_digest(tree)
    change(tree)
    assert tree_digest(tree) != before


def test_version_control_and_caches_are_neither_hashed_nor_put_inside(tmp_path: Path) -> None:
    tree = agent_tree(tmp_path / "tree")
    before = tree_digest(tree)
    with staged(tree) as copy:
        assert copy == tree
    write(tree, {".git/HEAD": "x", "lib/__pycache__/a.pyc": "x", ".mypy_cache/x": "x"})
    assert tree_digest(tree) == before
    with staged(tree) as copy:
        assert copy != tree
        assert not list(copy.rglob("__pycache__"))
        assert (copy / "link").is_symlink()
        assert tree_digest(copy) == before
    assert not copy.exists()


def test_what_is_no_tree_gets_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(AgentError, match="not a directory; expected the agent's files"):
        tree_digest(tmp_path / "nowhere")
    tree = agent_tree(tmp_path / "tree")
    os.mkfifo(tree / "pipe")
    with pytest.raises(AgentError, match="pipe: a device, pipe or socket"):
        tree_digest(tree)


@pytest.mark.process
def test_the_first_line_of_a_version_command_is_the_version() -> None:
    assert run_version_command("printf '\\n 1.2.3 \\nbuilt today'; echo noise >&2") == "1.2.3"


@pytest.mark.process
@pytest.mark.parametrize(
    ("command", "sentence"),
    [
        ("echo why >&2; exit 3", "exit code 3: why"),
        ("exit 3", "exit code 3: no output"),
        ("true", "it printed nothing; expected a version of up to 200 on one line"),
        ("head -c 300 /dev/zero | tr '\\0' x", "its first line has 300 characters; "),
    ],
)
def test_a_version_command_that_gives_none_gets_a_sentence(command: str, sentence: str) -> None:
    with pytest.raises(AgentError) as caught:
        run_version_command(command)
    assert str(caught.value).startswith(f"agent version command {command!r}: {sentence}")


@pytest.mark.process
def test_a_revision_is_what_the_command_says_and_the_digest_of_the_files(tmp_path: Path) -> None:
    tree = agent_tree(tmp_path / "tree")
    config = AgentConfig(name="command", kwargs={"command": "x", "tree": str(tree)})
    assert find_revision(config) == tree_digest(tree)
    assert find_revision(config, "echo v1") == f"v1 {tree_digest(tree)}"
    script = AgentConfig(name="scripted", kwargs={"script": str(tree / "run.sh")})
    assert find_revision(script) == file_digest(tree / "run.sh")
    assert find_revision(AgentConfig(name="nop")) is None
    assert find_revision(AgentConfig(import_path="a:B"), "echo v2") == "v2"


@pytest.mark.process
def test_a_command_pins_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By its text, the files of the host that it names, and the commits of their checkouts."""
    write(tmp_path, {"agent.py": "print()\n", "repo/tool.sh": "true\n", "plain/x": ""})
    for words in ("init -q", "add .", "-c user.name=n -c user.email=e@x commit -qm one"):
        subprocess.run(["git", *words.split()], cwd=tmp_path / "repo", check=True)
    head = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=tmp_path / "repo", check=True, capture_output=True
    )
    git = f"git:{head.stdout.decode().strip()}"
    agent, tool = (file_digest(tmp_path / name) for name in ("agent.py", "repo/tool.sh"))
    monkeypatch.chdir(tmp_path)
    for command, further in {
        'claude -p "$(cat)"': [],
        "sh -c 'python3 agent.py; cat agent.py nowhere.py'": [f"agent.py@{agent}"],
        f"python3 {tmp_path}/agent.py>out": [f"{tmp_path}/agent.py@{agent}"],
        "repo/tool.sh && ls plain": [f"repo/tool.sh@{tool}", git],
        "cd repo": [git],
        "cat /etc/passwd /dev/zero /": [],
    }.items():
        own = f"command:sha256:{sha256_hex(command.encode())}"
        assert pin_command(command) == " ".join([own, *further])
    (tmp_path / "repo" / "tool.sh").write_text("false\n")
    assert pin_command("cd repo").endswith(f" {git}+changes")
    config = AgentConfig(name="command", kwargs={"command": "cd repo"})
    assert find_command_pin(config) == pin_command("cd repo")
    assert find_command_pin(AgentConfig(name="nop")) is None


def test_a_device_is_not_read_to_its_end(tmp_path: Path) -> None:
    with pytest.raises(AgentError, match="/dev/zero: not a regular file"):
        find_revision(AgentConfig(name="replay", kwargs={"trajectory": "/dev/zero"}))


def test_files_that_are_not_there_get_a_sentence(tmp_path: Path) -> None:
    kwargs = {"command": "x", "tree": str(tmp_path / "nowhere")}
    with pytest.raises(AgentError, match="nowhere: "):
        find_revision(AgentConfig(name="command", kwargs=kwargs))
