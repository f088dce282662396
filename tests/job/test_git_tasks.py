"""Tasks of git repositories: fetched from a bare repository of this machine."""

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from proctor.errors import TaskError
from proctor.job.cache import find_caches, git_task_id
from tests.job.git_repository import Repository
from tests.job.small_tasks import write_task


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return Repository(tmp_path)


def test_a_commit_is_fetched_into_harbors_place(repository: Repository) -> None:
    wanted = {"path": "tasks/one", "git_commit_id": repository.first}
    task = repository.resolve(wanted).tasks[0]
    identity = git_task_id(repository.url, repository.first, Path("tasks/one"))
    caches = find_caches({"HOME": str(repository.home)})
    assert task.directory == (caches.tasks / identity / "one").resolve()
    assert (task.name, task.kind, task.commit) == ("one", "git", repository.first)
    assert task.task.instruction == "Do one.\n"
    assert task.config.path == Path("tasks/one")
    assert sorted(path.name for path in task.directory.parent.iterdir()) == ["one"]


def test_what_was_fetched_for_a_commit_is_not_fetched_again(repository: Repository) -> None:
    wanted = {"path": "tasks/one", "git_commit_id": repository.first}
    first = repository.resolve(wanted).tasks[0]
    repository.bare.rename(repository.place / "gone")
    assert repository.resolve(wanted).tasks[0].digests == first.digests
    with pytest.raises(TaskError, match=r"cannot be fetched: .*does not appear to be a git repo"):
        repository.resolve({**wanted, "overwrite": True})


def test_without_a_commit_the_newest_is_taken(repository: Repository) -> None:
    before = repository.resolve({"path": "tasks/one"}).tasks[0]
    (repository.tree / "tasks" / "one" / "instruction.md").write_text("Do more.\n")
    newest = repository.commit("second")
    after = repository.resolve({"path": "tasks/one"}).tasks[0]
    assert (before.commit, after.commit) == (repository.first, newest)
    assert after.task.instruction == "Do more.\n"
    # A running job may still use the former.
    assert before.directory.is_dir()
    assert before.directory != after.directory


def test_tags_branches_and_short_ids_are_commits_too(repository: Repository) -> None:
    repository.tag("v1")
    (repository.tree / "later").write_text("")
    newest = repository.commit("second")
    for name, commit in (
        ("v1", repository.first),
        ("main", newest),
        (repository.first[:10], repository.first),
    ):
        task = repository.resolve({"path": "tasks/two", "git_commit_id": name}).tasks[0]
        assert (task.commit, task.config.git_commit_id) == (commit, name)


def test_a_path_that_is_not_in_the_repository_is_refused_and_the_rest_runs(
    repository: Repository,
) -> None:
    resolved = repository.resolve(
        {"path": "tasks/none"}, {"path": "tasks/two"}, {"path": "tasks/one/task.toml"}
    )
    assert [task.name for task in resolved.tasks] == ["two"]
    assert [one.reason for one in resolved.refused] == [
        f"{repository.url} has no directory tasks/{name} at {repository.first}"
        for name in ("none", "one/task.toml")
    ]


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"git_commit_id": "0" * 40}, "has no commit '0000"),
        ({"git_commit_id": "nowhere"}, "has no commit 'nowhere'; expected the id of one, a tag"),
        ({"git_commit_id": "--upload-pack=x"}, "is not a commit; expected an id, a tag"),
        ({"path": "../x"}, "path '../x'; expected one inside the repository"),
        ({"path": "/x"}, "path '/x'; expected one inside the repository"),
        ({"git_url": "--upload-pack=touch /x"}, "is not the URL of a git repository"),
        ({"git_url": "ext::sh -c true"}, "is not the URL of a git repository"),
        ({"git_url": "fd::17"}, "is not the URL of a git repository"),
        ({"git_url": "https://a\nb/c"}, "is not the URL of a git repository"),
        ({"git_url": "ssh://-oProxyCommand=x/y"}, "expected a git repository at https, http, ssh"),
        ({"git_url": "ftp://a/b"}, "expected a git repository at https, http, ssh"),
        ({"git_commit_id": "a..b"}, "is not a commit; expected an id, a tag"),
    ],
)
def test_what_cannot_be_fetched_is_said(
    repository: Repository, values: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(TaskError, match=sentence):
        repository.resolve({"path": "tasks/one", **values})


def test_without_git_it_is_said(repository: Repository) -> None:
    with pytest.raises(TaskError, match="git is not installed; tasks of a git repository need it"):
        repository.resolve({"path": "tasks/one"}, PATH=str(repository.place))


def test_nothing_of_the_user_or_the_repository_is_run(repository: Repository) -> None:
    hooks = repository.home / "hooks"
    hooks.mkdir()
    sign = repository.place / "ran"
    for name in ("post-checkout", "post-index-change", "reference-transaction"):
        (hooks / name).write_text(f"#!/bin/sh\ntouch {sign}\n")
        (hooks / name).chmod(0o755)
    (repository.home / ".gitconfig").write_text(f"[core]\n\thooksPath = {hooks}\n")
    task = repository.resolve({"path": "tasks/one"}, GIT_DIR="/nowhere").tasks[0]
    assert task.name == "one"
    assert not sign.exists()


def test_a_link_out_of_a_task_is_refused(repository: Repository) -> None:
    secret = repository.place / "secret"
    secret.write_text("key")
    tests = repository.tree / "tasks" / "one" / "tests"
    (tests / "stolen").symlink_to(secret)
    (repository.tree / "tasks" / "two" / "same").symlink_to("instruction.md")
    repository.commit("links")
    resolved = repository.resolve({"path": "tasks/one"}, {"path": "tasks/two"})
    assert [one.name for one in resolved.refused] == ["one"]
    assert "tests/stolen is a link" in resolved.refused[0].reason
    same = resolved.tasks[0].directory / "same"
    assert (same.is_symlink(), same.read_text()) == (False, "Do two.\n")


EMPTY_TREE = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"


@pytest.mark.parametrize(
    ("path", "mode", "name"),
    [
        (".", "120000", "tasks"),
        ("tasks", "120000", "one"),
        ("tasks/one", "120000", "tests"),
        ("tasks/one", "100644", "task.toml"),
        ("tasks/one", "100644", "instruction.md/x"),
    ],
)
def test_a_commit_with_two_entries_of_one_name_is_refused_before_it_is_written(
    repository: Repository, tmp_path: Path, path: str, mode: str, name: str
) -> None:
    write_task(tmp_path / "private")
    link = repository.write_blob(str(tmp_path / "private"))
    (repository.tree / ".gitattributes").write_text("*.bin filter=lfs\n")
    repository.commit("lfs")
    commit = repository.commit_malformed(path, (mode, name, link))
    with pytest.raises(TaskError, match=r"is more than one file or directory of the commit"):
        repository.resolve(
            {"path": "tasks/one", "git_commit_id": commit}, PATH=fake_lfs(tmp_path, "touch ran")
        )
    assert not list(repository.home.rglob("task.toml"))
    assert not list(tmp_path.rglob("ran"))


def test_a_link_and_an_empty_directory_of_one_name_are_refused(
    repository: Repository, tmp_path: Path
) -> None:
    link = repository.write_blob(str(write_task(tmp_path / "private")))
    twice = (("40000", "x", EMPTY_TREE), ("120000", "x", link))
    repository.write_tree()
    commit = repository.commit_malformed(".", *twice)
    with pytest.raises(TaskError, match="'x' is more than one file or directory of the commit"):
        repository.resolve({"path": "x", "git_commit_id": commit})


def fake_lfs(place: Path, script: str) -> str:
    """A PATH with a git-lfs that is a shell script."""
    tools = place / "tools"
    tools.mkdir()
    (tools / "git-lfs").write_text(f"#!/bin/sh\n{script}\n")
    (tools / "git-lfs").chmod(0o755)
    return f"{tools}:{os.environ['PATH']}"


@pytest.mark.skipif(shutil.which("git-lfs") is None, reason="needs git-lfs")
def test_files_kept_by_lfs_are_fetched(repository: Repository) -> None:
    repository.set_up_lfs("*.bin")
    data = repository.tree / "tasks" / "one" / "data.bin"
    data.write_bytes(b"large")
    repository.commit("lfs")
    assert repository.blob("HEAD:tasks/one/data.bin").startswith("version https://git-lfs")
    task = repository.resolve({"path": "tasks/one"}).tasks[0]
    assert (task.directory / "data.bin").read_bytes() == b"large"


def test_attributes_of_the_whole_repository_hold(repository: Repository) -> None:
    (repository.tree / ".gitattributes").write_text("*.md text eol=crlf\n")
    repository.commit("attributes")
    task = repository.resolve({"path": "tasks/one"}).tasks[0]
    assert (task.directory / "instruction.md").read_bytes() == b"Do one.\r\n"


def test_files_kept_by_lfs_are_noted_where_it_is_missing(repository: Repository) -> None:
    (repository.tree / ".gitattributes").write_text("*.bin filter=lfs\n")
    repository.commit("lfs")
    tools = repository.place / "bin"
    tools.mkdir()
    (tools / "git").symlink_to(shutil.which("git") or "")
    notes = repository.resolve({"path": "tasks/one"}, PATH=str(tools)).notes
    assert [note for note in notes if "git-lfs, which is not installed" in note]


def test_a_whole_repository_may_be_one_task(repository: Repository) -> None:
    write_task(repository.tree / "x").rename(repository.place / "x")
    for path in (repository.place / "x").iterdir():
        path.rename(repository.tree / path.name)
    repository.commit("root")
    task = repository.resolve({"path": "."}).tasks[0]
    assert task.name == "repository"
    assert not (task.directory / ".git").exists()


def test_many_tasks_of_one_commit_are_fetched_at_once(repository: Repository) -> None:
    calls = repository.place / "calls"
    fake = repository.place / "bin"
    fake.mkdir()
    real = subprocess.run(["which", "git"], capture_output=True, check=True).stdout.decode().strip()
    (fake / "git").write_text(f'#!/bin/sh\necho "$@" >> {calls}\nexec {real} "$@"\n')
    (fake / "git").chmod(0o755)
    wanted = [{"path": "tasks/one"}, {"path": "tasks/two"}, {"path": "tasks/one"}]
    resolved = repository.resolve(*wanted, PATH=f"{fake}:{os.environ['PATH']}")
    assert len(resolved.tasks) == 3
    lines = calls.read_text().splitlines()
    assert sum(" fetch " in line for line in lines) == 1
