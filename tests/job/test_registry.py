"""Datasets by name, from a registry in a file or on a server of this machine."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from proctor.errors import TaskError
from proctor.harbor.configs import JobConfig
from proctor.job.metrics import find_metrics
from proctor.job.published import split_registry
from tests.job.small_tasks import job_config, resolve, write_dataset


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Copies of registries are not kept in a person's cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def entry(tasks: Path, version: str, *names: str, **more: Any) -> dict[str, Any]:
    listed = [{"name": name, "path": str(tasks / name)} for name in names]
    return {"name": "set", "version": version, "description": "", "tasks": listed, **more}


@pytest.fixture
def registry(tmp_path: Path) -> list[dict[str, Any]]:
    tasks = write_dataset(tmp_path / "tasks", "a", "b", "c")
    return [
        entry(tasks, "1.9", "a"),
        entry(tasks, "1.10", "c", "a", "b", metrics=[{"type": "sum"}]),
        entry(tasks, "zeta", "b"),
    ]


def wanted(path: Path, content: object, **values: Any) -> JobConfig:
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return job_config(datasets=[{"name": "set", "registry_path": path, **values}])


def test_the_newest_version_is_taken_in_the_registrys_order(
    tmp_path: Path, registry: list[dict[str, Any]]
) -> None:
    config = wanted(tmp_path / "r.json", registry)
    resolved = resolve(config)
    assert [task.name for task in resolved.tasks] == ["c", "a", "b"]
    assert {task.config.source for task in resolved.tasks} == {"set"}
    assert [metric.name for metric in find_metrics(config, resolved)["set"]] == ["sum"]


def test_a_named_version_is_taken(tmp_path: Path, registry: list[dict[str, Any]]) -> None:
    resolved = resolve(wanted(tmp_path / "r.json", registry, version="1.9"))
    assert [task.name for task in resolved.tasks] == ["a"]


@pytest.mark.parametrize(("asked", "named"), [("1.9", "set@1.9"), (None, "set@1.10")])
def test_each_task_knows_the_dataset_and_the_version_that_was_found(
    tmp_path: Path, registry: list[dict[str, Any]], asked: str | None, named: str
) -> None:
    resolved = resolve(wanted(tmp_path / "r.json", registry, version=asked))
    assert {task.dataset_id for task in resolved.tasks} == {named}


@pytest.mark.parametrize("version", ["", "..", "v\n1"])
def test_a_version_that_no_record_can_name_is_left_out(
    tmp_path: Path, registry: list[dict[str, Any]], version: str
) -> None:
    registry[:] = [entry(tmp_path / "tasks", version, "a")]
    (task,) = resolve(wanted(tmp_path / "r.json", registry)).tasks
    assert task.dataset_id is None


def test_head_is_newer_than_any_number(tmp_path: Path, registry: list[dict[str, Any]]) -> None:
    registry.append(entry(tmp_path / "tasks", "head", "b"))
    assert [task.name for task in resolve(wanted(tmp_path / "r.json", registry)).tasks] == ["b"]


def test_patterns_and_limits_hold_here_too(tmp_path: Path, registry: list[dict[str, Any]]) -> None:
    config = wanted(tmp_path / "r.json", registry, exclude_task_names=["c"], n_tasks=1)
    assert [task.name for task in resolve(config).tasks] == ["a"]


def test_a_task_that_is_not_there_is_refused_and_the_rest_runs(
    tmp_path: Path, registry: list[dict[str, Any]]
) -> None:
    registry[1]["tasks"].append({"name": "gone", "path": str(tmp_path / "gone")})
    resolved = resolve(wanted(tmp_path / "r.json", registry))
    assert [(one.name, one.reason) for one in resolved.refused] == [
        ("gone", "no such directory; expected a task")
    ]


@pytest.mark.parametrize(
    ("content", "values", "sentence"),
    [
        ("not json", {}, "not a registry: Invalid JSON"),
        ({"name": "set"}, {}, "not a registry: Input should be a valid array"),
        ([{"name": "set"}], {}, r"not a registry at \[0\].version: Field required"),
        ([], {}, "no dataset 'set'; expected one of none"),
        (None, {"name": "other"}, "no dataset 'other'; expected one of set"),
        (None, {"version": "2"}, "'set' has no version '2'; expected one of 1.10, 1.9, zeta"),
    ],
)
def test_what_a_registry_lacks_is_said(
    tmp_path: Path,
    registry: list[dict[str, Any]],
    content: object,
    values: dict[str, Any],
    sentence: str,
) -> None:
    config = wanted(tmp_path / "r.json", registry if content is None else content, **values)
    with pytest.raises(TaskError, match=sentence) as refused:
        resolve(config)
    assert str(tmp_path / "r.json") in str(refused.value)


def test_a_missing_registry_and_none_at_all_are_said(tmp_path: Path) -> None:
    config = job_config(datasets=[{"name": "set", "registry_path": tmp_path / "none.json"}])
    with pytest.raises(TaskError, match=r"none.json: registry cannot be read: No such file"):
        resolve(config)
    said = r"no dataset 'set'; expected one of terminal-bench.*--registry-url"
    with pytest.raises(TaskError, match=said):
        resolve(job_config(datasets=[{"name": "set"}]))


@contextmanager
def served(status: int, body: bytes, location: str | None = None) -> Iterator[str]:
    """A server of this machine that gives one answer to everything."""

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            if location is not None:
                self.send_header("Location", location)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answer)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/registry.json"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_a_registry_on_a_server_may_not_name_what_is_on_this_machine(
    registry: list[dict[str, Any]], tmp_path: Path
) -> None:
    for url_of_task, said in (
        (None, "task 'c' of set@1.10 has no git_url; a registry from a server may not name"),
        (f"file://{tmp_path}/r.git", "is a repository on this machine; a registry from a server"),
        (f"{tmp_path}/r.git", "is a repository on this machine; a registry from a server"),
    ):
        for task in registry[1]["tasks"]:
            task["git_url"] = url_of_task
        with served(200, json.dumps(registry).encode()) as url, pytest.raises(TaskError) as caught:
            resolve(job_config(datasets=[{"name": "set", "registry_url": url}]))
        assert said in str(caught.value)


def test_a_server_that_does_not_give_it_is_named() -> None:
    with served(404, b"") as url:
        config = job_config(datasets=[{"name": "set", "registry_url": url}])
        with pytest.raises(TaskError, match=rf"{url}: the registry answered 404 Not Found"):
            resolve(config)
    with pytest.raises(TaskError, match=rf"{url}: the registry cannot be reached: .*refused"):
        resolve(config)


def test_a_redirect_is_followed_to_the_web_alone() -> None:
    with served(302, b"", "ftp://127.0.0.1/registry.json") as url:
        config = job_config(datasets=[{"name": "set", "registry_url": url}])
        with pytest.raises(TaskError, match="cannot be reached: it redirects from http to ftp"):
            resolve(config)
    with served(200, b"[]") as there, served(302, b"", there) as url:
        config = job_config(datasets=[{"name": "set", "registry_url": url}])
        with pytest.raises(TaskError, match="no dataset 'set'; expected one of none"):
            resolve(config)


@pytest.mark.parametrize("url", ["file:///etc/passwd", "registry.json", "ftp://example.org/r"])
def test_only_the_web_is_asked(url: str) -> None:
    with pytest.raises(TaskError, match=r"begins with https://; a file: --registry-path"):
        resolve(job_config(datasets=[{"name": "set", "registry_url": url}]))


@pytest.mark.parametrize(
    "url", ["https://[x", "http://[::1", "https://a]b/r.json", "http://a:b/", "http://\udc80/"]
)
def test_an_address_that_is_none_is_a_sentence(url: str) -> None:
    assert split_registry({"PROCTOR_REGISTRY": url}) == (None, url)
    with pytest.raises(TaskError) as caught:
        resolve(job_config(datasets=[{"name": "set", "registry_url": url}]))
    assert str(caught.value).startswith(f"{url}: ")


def test_a_version_of_thousands_of_digits_is_no_number(
    tmp_path: Path, registry: list[dict[str, Any]]
) -> None:
    for version in ("9" * 5000, f"1!{'9' * 5000}", f"1a{'9' * 5000}", f"1+{'9' * 5000}"):
        registry.append(entry(tmp_path / "tasks", version, "b"))
    resolved = resolve(wanted(tmp_path / "r.json", registry))
    assert {task.dataset_id for task in resolved.tasks} == {"set@1.10"}
