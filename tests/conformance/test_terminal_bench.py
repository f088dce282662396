"""Older Terminal-Bench tasks: harbor's mapper and ours write the same directory, file by file."""

import tomllib
from pathlib import Path

import pytest

from proctor.errors import TaskError
from proctor.task.directory import load_task
from proctor.task.terminal_bench import map_task
from tests.conformance.old_tasks import MAPPED, REFUSED, made
from tests.conformance.theirs import harbor_module


def write_old_task(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode(errors="surrogateescape"))
        path.chmod(0o755 if name == "run-tests.sh" else 0o640)
    return root


def map_theirs(tasks: Path, target: Path) -> list[str]:
    """Map a directory of tasks with harbor's mapper; the names of those that it does not take."""
    result = harbor_module("harbor.mappers.terminal_bench").TerminalBenchMapper().map(tasks, target)
    return [name for name, _ in result.failed]


def tree_of(root: Path) -> dict[str, tuple[int, bytes | None]]:
    return {
        path.relative_to(root).as_posix(): (
            path.stat().st_mode,
            path.read_bytes() if path.is_file() else None,
        )
        for path in root.rglob("*")
    }


@pytest.mark.parametrize("name", MAPPED)
def test_both_write_the_same_directory(tmp_path: Path, name: str) -> None:
    source = write_old_task(tmp_path / "tasks" / name, MAPPED[name])
    assert map_theirs(source.parent, tmp_path / "theirs") == []
    mapped = map_task(source, tmp_path / "ours" / name)
    assert tree_of(mapped.directory) == tree_of(tmp_path / "theirs" / name)
    assert load_task(mapped.directory).config.schema_version == "1.3"


@pytest.mark.parametrize("name", REFUSED)
def test_neither_takes(tmp_path: Path, name: str) -> None:
    source = write_old_task(tmp_path / "tasks" / name, REFUSED[name])
    assert map_theirs(source.parent, tmp_path / "theirs") == [name]
    with pytest.raises(TaskError, match=name):
        map_task(source, tmp_path / "ours" / name)
    assert list((tmp_path / "ours").iterdir()) == []


def test_what_harbor_loses_of_a_text_is_kept(tmp_path: Path) -> None:
    files = made({"task.yaml": 'instruction: x\nauthor_name: "a\\x01b\\xa0c\\\\"\n'})
    source = write_old_task(tmp_path / "tasks" / "one", files)
    map_theirs(source.parent, tmp_path / "theirs")
    map_task(source, tmp_path / "ours")
    ours = tomllib.loads((tmp_path / "ours" / "task.toml").read_text())
    assert ours["metadata"].pop("author_name") == "a\x01b\xa0c\\"
    theirs = (tmp_path / "theirs" / "one" / "task.toml").read_text()
    assert "a\\x01b" not in theirs
    assert "author_name" in theirs
