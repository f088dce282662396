"""Datasets by name: from a registry and git repositories on servers of this machine."""

import json
import os
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from proctor.errors import TaskError
from proctor.job.cache import Caches, find_caches
from proctor.job.fetching import Fetching
from proctor.job.git_source import list_git_dataset, parse_git_source
from proctor.job.git_tasks import fetch_git_tasks
from proctor.job.planned import Resolved
from proctor.job.published import check_published, digest_dataset, find_digests, list_published
from tests.job.git_repository import WHO, Repository
from tests.job.git_server import GitServer, git_server
from tests.job.small_tasks import job_config, resolve, write_task


class Site:
    """A repository on a server, a registry of it, and a user with an empty cache."""

    def __init__(self, place: Path, server: GitServer) -> None:
        self.repository = Repository(place)
        self.server = server
        self.url = f"{server.url}/repository.git"
        cache = str(place / "cache")
        self.host = {**os.environ, "HOME": str(self.repository.home), "XDG_CACHE_HOME": cache}
        self.caches: Caches = find_caches(self.host)
        self.register(self.repository.first, "one", "two")

    def register(self, commit: str | None, *names: str, **more: Any) -> None:
        """Serve a registry with one dataset."""
        tasks = [
            {"name": name, "git_url": self.url, "git_commit_id": commit, "path": f"tasks/{name}"}
            for name in names
        ]
        dataset = {"name": "set", "version": "1.0", "description": "", "tasks": tasks, **more}
        self.server.registry = json.dumps([dataset]).encode()

    def resolve(self, **values: Any) -> Resolved:
        named = {"name": "set", "registry_url": f"{self.server.url}/registry.json", **values}
        return resolve(job_config(datasets=[named]), host=self.host)

    def list_left(self) -> list[str]:
        """What is left of fetches, other than locks."""
        found = self.caches.fetching.glob("*") if self.caches.fetching.exists() else ()
        return [path.name for path in found if path.suffix != ".lock"]

    def list_cached(self) -> list[str]:
        found = self.caches.tasks.glob("*/*") if self.caches.tasks.exists() else ()
        return sorted(path.name for path in found)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with git_server(tmp_path) as server:
        yield Site(tmp_path, server)


ALLOWED = {
    "filter": ["allowFilter", "allowAnySHA1InWant"],
    "commits": ["allowAnySHA1InWant"],
    "nothing": [],
}


@pytest.mark.parametrize("allows", ALLOWED)
def test_tasks_are_fetched_by_commit_whatever_the_server_allows(site: Site, allows: str) -> None:
    older = site.repository.first
    (site.repository.tree / "tasks" / "one" / "instruction.md").write_text("Do more.\n")
    site.repository.commit("second")
    site.register(older, "two", "one")
    git = ["git", "-C", str(site.repository.bare), "config"]
    for key in ALLOWED[allows]:
        subprocess.run([*git, f"uploadpack.{key}", "true"], check=True)
    resolved = site.resolve()
    assert [task.name for task in resolved.tasks] == ["two", "one"]
    assert [task.task.instruction for task in resolved.tasks] == ["Do two.\n", "Do one.\n"]
    assert {task.commit for task in resolved.tasks} == {older}
    assert {task.dataset_id for task in resolved.tasks} == {"set@1.0"}
    (pinned,) = resolved.pinned_datasets
    digests = [task.lock_digest for task in resolved.tasks]
    assert (pinned.id, pinned.digest) == ("set@1.0", digest_dataset(digests))
    assert (pinned.n_tasks, pinned.n_listed) == (2, 2)
    assert site.list_left() == []


def test_after_that_no_network_is_needed(tmp_path: Path) -> None:
    with git_server(tmp_path) as server:
        site = Site(tmp_path, server)
        first = site.resolve()
    again = site.resolve()
    assert again.pinned_datasets == first.pinned_datasets
    (note,) = again.notes
    assert note.startswith(f"{server.url}/registry.json: the registry cannot be reached: ")
    assert note.endswith(" UTC is used")
    with pytest.raises(TaskError, match="'set' has no version '2'"):
        site.resolve(version="2")


def test_part_of_a_dataset_is_pinned_as_part(site: Site) -> None:
    (pinned,) = site.resolve(task_names=["one"]).pinned_datasets
    assert (pinned.n_tasks, pinned.n_listed) == (1, 2)
    assert site.list_cached() == ["one"]


def test_a_git_daemon_will_do(site: Site) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    words = ["--export-all", f"--base-path={site.repository.place}", "--listen=127.0.0.1"]
    command = ["git", "daemon", *words, f"--port={port}", "--reuseaddr"]
    daemon = subprocess.Popen(command, env={**os.environ, **WHO}, stderr=subprocess.DEVNULL)
    try:
        _wait_for(port)
        site.url = f"git://127.0.0.1:{port}/repository.git"
        site.register(site.repository.first, "one")
        assert [task.name for task in site.resolve().tasks] == ["one"]
    finally:
        daemon.terminate()
        daemon.wait()


def _wait_for(port: int) -> None:
    until = time.monotonic() + 20
    while time.monotonic() < until:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    pytest.fail("git daemon does not come up")


def test_two_at_once_fetch_once(site: Site) -> None:
    site.server.hold.clear()
    done: list[Resolved] = []
    threads = [threading.Thread(target=lambda: done.append(site.resolve())) for _ in range(2)]
    for thread in threads:
        thread.start()
    assert site.server.asked.wait(20)
    site.server.hold.set()
    for thread in threads:
        thread.join()
    assert len(done) == 2
    assert done[0].pinned_datasets == done[1].pinned_datasets
    alone = site.server.n_fetches
    site.server.n_fetches = 0
    site.caches.tasks.rename(site.caches.tasks.with_name("moved"))
    site.resolve()
    assert site.server.n_fetches == alone


def test_a_submodule_is_refused_and_the_rest_is_taken(site: Site) -> None:
    tree = site.repository.tree
    words = ["update-index", "--add", "--cacheinfo", f"160000,{site.repository.first},tasks/one/x"]
    subprocess.run(["git", *words], cwd=tree, check=True)
    (tree / "tasks" / "one" / "x").mkdir()
    message = ["commit", "--quiet", "--message", "submodule"]
    subprocess.run(["git", *message], cwd=tree, env={**os.environ, **WHO}, check=True)
    push = ["push", "--quiet", str(site.repository.bare), "main"]
    subprocess.run(["git", *push], cwd=tree, check=True)
    site.register(None, "one", "two")
    resolved = site.resolve()
    assert [task.name for task in resolved.tasks] == ["two"]
    (refused,) = resolved.refused
    assert refused.reason.startswith("tasks/one/x is a submodule")
    assert site.list_cached() == ["two"]


def test_a_repository_that_is_too_large_is_given_up(site: Site) -> None:
    large = site.repository.tree / "tasks" / "one" / "environment" / "data"
    large.write_bytes(os.urandom(3_000_000))
    commit = site.repository.commit("large")
    site.register(commit, "one")
    task = job_config(
        tasks=[{"git_url": site.url, "git_commit_id": commit, "path": "tasks/one"}]
    ).tasks
    with pytest.raises(TaskError, match=r"larger than 1\.0 MB .* all that may be fetched"):
        fetch_git_tasks(task, site.caches, site.host, Fetching(most_bytes=1_000_000))
    with pytest.raises(TaskError, match=r"\d+ files to fetch; expected at most 3"):
        fetch_git_tasks(task, site.caches, site.host, Fetching(most_files=3))
    assert (site.list_left(), site.list_cached()) == ([], [])


def test_a_commit_that_names_billions_of_files_is_given_up(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("proctor.job.git_repository._LARGEST_ANSWER", 1 << 20)
    commit = site.repository.commit_bomb("bomb", 9)
    source = parse_git_source(f"git+{site.url}@{commit}#subdirectory=bomb")
    with pytest.raises(TaskError, match=r"git prints more than 1\.0 MB"):
        list_git_dataset(source, site.caches, site.host, Fetching())
    # Elsewhere in the commit it would be read too.
    site.register(commit, "one")
    with pytest.raises(TaskError, match=r"git prints more than 1\.0 MB"):
        site.resolve()
    assert (site.list_left(), site.list_cached()) == ([], [])


def test_the_files_of_a_commit_are_counted(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("proctor.job.git_repository._MOST_IN_COMMIT", 3)
    with pytest.raises(TaskError, match=r"\d+ files in the commit; expected at most 3"):
        site.resolve()


@pytest.mark.parametrize("commit", ["a" * 40, "a" * 64])
def test_a_branch_or_tag_named_like_a_commit_is_not_taken_for_it(site: Site, commit: str) -> None:
    for kind in ("heads", "tags"):
        ref = site.repository.bare / "refs" / kind / commit
        ref.write_text(f"{site.repository.first}\n", encoding="ascii")
    site.register(commit, "one")
    with pytest.raises(TaskError, match=r"has no commit|cannot be fetched"):
        site.resolve()
    assert (site.list_left(), site.list_cached()) == ([], [])


def test_links_that_lead_in_circles_are_refused(site: Site) -> None:
    tests = site.repository.tree / "tasks" / "one" / "tests"
    for number in range(8):
        (tests / f"again{number}").symlink_to("../tests")
    site.register(site.repository.commit("circles"), "one", "two")
    resolved = site.resolve()
    assert [task.name for task in resolved.tasks] == ["two"]
    assert resolved.refused[0].reason in (
        "its links lead in a circle, or it is more than 100 deep",
        "it is larger than may be fetched, by its links",
    )
    assert (site.list_left(), site.list_cached()) == ([], ["two"])


def test_a_fetch_that_is_stopped_leaves_nothing(site: Site) -> None:
    site.server.hold.clear()
    fetching = Fetching()
    tasks = job_config(tasks=[{"git_url": site.url, "path": "tasks/one"}]).tasks

    def stop() -> None:
        site.server.asked.wait(20)
        fetching.stop.set()

    threading.Thread(target=stop).start()
    with pytest.raises(TaskError, match="the fetch was stopped"):
        fetch_git_tasks(tasks, site.caches, site.host, fetching)
    assert (site.list_left(), site.list_cached()) == ([], [])


def test_no_filter_of_the_users_is_run_for_a_repository(site: Site) -> None:
    sign = site.repository.place / "ran"
    config = f'[filter "mine"]\n\tsmudge = touch {sign}; cat\n\trequired = true\n'
    (site.repository.home / ".gitconfig").write_text(config)
    (site.repository.tree / ".gitattributes").write_text("*.md filter=mine\n")
    site.register(site.repository.commit("filter"), "one")
    assert [task.task.instruction for task in site.resolve().tasks] == ["Do one.\n"]
    assert not sign.exists()


def test_a_change_in_the_cache_is_noticed(site: Site) -> None:
    first = site.resolve()
    (first.tasks[0].directory / "tests" / "test.sh").write_text("echo 1\n")
    resolved = site.resolve()
    assert [task.name for task in resolved.tasks] == ["two"]
    assert "changed since it was fetched; remove the directory" in resolved.refused[0].reason


def test_a_task_that_is_fetched_again_stays_in_place_unless_it_was_changed(site: Site) -> None:
    one, two = (task.directory for task in site.resolve().tasks)
    (two / "tests" / "test.sh").write_text("echo 1\n")
    before = (one.stat().st_ino, two.stat().st_ino)
    resolved = site.resolve(overwrite=True)
    assert site.server.n_fetches > 1
    assert [task.directory for task in resolved.tasks] == [one, two]
    assert (one.stat().st_ino == before[0], two.stat().st_ino == before[1]) == (True, False)
    (one / "tests" / "test.sh").chmod(0o644 if os.access(one / "tests/test.sh", os.X_OK) else 0o755)
    site.resolve(overwrite=True)
    assert one.stat().st_ino != before[0]
    assert sorted(path.name for path in one.parent.iterdir()) == ["one"]


def test_a_dataset_in_git_is_listed_at_the_commit_of_its_ref(site: Site) -> None:
    write_task(site.repository.tree / "tasks" / "one" / "environment" / "inner")
    newest = site.repository.commit("inner")
    for text, commit in (
        (f"git+{site.url}#subdirectory=tasks", newest),
        (f"git+{site.url}@main#subdirectory=tasks", newest),
        (f"git+{site.url}@{site.repository.first}#subdirectory=tasks", site.repository.first),
    ):
        source = parse_git_source(text)
        found = list_git_dataset(source, site.caches, site.host, Fetching())
        assert (found.name, found.version) == ("repository", commit)
        assert [str(task.path) for task in found.tasks] == ["tasks/one", "tasks/two"]
    with pytest.raises(TaskError, match=r"no tasks in \. at .*, but in tasks.*subdirectory=tasks"):
        list_git_dataset(parse_git_source(f"git+{site.url}"), site.caches, site.host, Fetching())


@pytest.mark.parametrize(
    ("text", "url", "ref", "path"),
    [
        ("git+https://a.org/b.git", "https://a.org/b.git", None, "."),
        ("git+https://a.org/b.git@x/y#subdirectory=c/d", "https://a.org/b.git", "x/y", "c/d"),
        ("git+https://a.org/b@v1", "https://a.org/b", "v1", "."),
        ("git+ssh://git@a.org/b", "ssh://git@a.org/b", None, "."),
        ("git+ssh://git@a.org/b.git@v1", "ssh://git@a.org/b.git", "v1", "."),
        ("git+git@a.org:b/c.git", "git@a.org:b/c.git", None, "."),
    ],
)
def test_a_source_has_a_url_a_ref_and_a_directory(
    text: str, url: str, ref: str | None, path: str
) -> None:
    source = parse_git_source(text)
    assert (source.url, source.ref, str(source.path)) == (url, ref, path)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("git+", "is not a dataset in git"),
        ("git+https://a.org/b.git#egg=x", "is not a dataset in git"),
        ("git+https://a.org/b.git#subdirectory=", "is not a dataset in git"),
        ("git+https://a.org/b.git#subdirectory=../x", "expected one inside the repository"),
        ("git+https://a.org/b.git@--upload-pack=x", "is not a commit"),
        ("git+ext::sh -c true", "is not the URL of a git repository"),
        ("git+--upload-pack=x", "is not the URL of a git repository"),
        ("git+https://u:hidden@a.org/b.git", "has a user, password or token in it"),
        ("git+https://u:x@hidden@a.org/b.git", "has a user, password or token in it"),
        (
            "git+https://:hidden@a.org/b.git@--x#subdirectory=../y",
            "has a user, password or token in it",
        ),
        ("git+https://hidden@a.org/b.git", "has a user, password or token in it"),
        ("git+http://hidden@a.org/b.git@v1", "has a user, password or token in it"),
        ("git+HTTPS://hidden@a.org/b.git", "has a user, password or token in it"),
        ("git+ssh://git:hidden@a.org/b.git", "'ssh://git:…@a.org/b.git' has a user, password or"),
        ("git+https://hidden@a.org/b.git#egg=x", "is not a dataset in git"),
        ("git+https://u:hidden@a.org/b.git#egg=x", "is not a dataset in git"),
    ],
)
def test_what_is_no_source_is_said(text: str, said: str) -> None:
    with pytest.raises(TaskError) as caught:
        parse_git_source(text)
    assert said in str(caught.value)
    assert "hidden" not in str(caught.value)


@pytest.mark.parametrize("secret", ["ada:hidden", "ghp_hidden"])
def test_a_password_or_token_in_a_url_is_not_recorded(site: Site, secret: str) -> None:
    url = site.url.replace("://", f"://{secret}@")
    wanted = {"git_url": url, "git_commit_id": site.repository.first, "path": "tasks/one"}
    with pytest.raises(TaskError, match=r"'http://…@127.* has a user, password or token in it"):
        resolve(job_config(tasks=[wanted]), host=site.host)


def test_terminal_bench_is_known_by_name_with_the_digests_of_its_policy() -> None:
    (dataset,) = (one for one in list_published() if one.dataset_id == "terminal-bench@2.1")
    assert len(dataset.tasks) == 89
    first = dataset.tasks[0]
    assert (first.name, str(first.path)) == (
        "adaptive-rejection-sampler",
        "tasks/adaptive-rejection-sampler",
    )
    digests = find_digests("terminal-bench@2.1")
    assert digests is not None
    # As the comment of the policy says.
    assert digest_dataset(digests.values()) == (
        "sha256:0fd3dbc55e6d7a6207dc0d93c5e933684b3ec87ac12941de0420b73c08627ee5"
    )
    check_published("terminal-bench@2.1", "regex-log", digests["regex-log"])
    assert find_digests("set@1.0") is None


def test_what_is_not_as_published_is_refused(site: Site) -> None:
    write_task(site.repository.tree / "tasks" / "regex-log")
    write_task(site.repository.tree / "tasks" / "regex-logs")
    commit = site.repository.commit("forged")
    names = ("regex-log", "regex-logs")
    site.register(commit, *names, name="terminal-bench", version="2.1")
    with pytest.raises(TaskError) as caught:
        site.resolve(name="terminal-bench", version="2.1")
    said = str(caught.value)
    assert "its digest is sha256:" in said
    assert "the task that was published with terminal-bench@2.1 has sha256:" in said
    assert "terminal-bench@2.1 has no such task: it was published with 89 others" in said
