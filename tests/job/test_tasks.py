"""Which tasks a job has: in which order, which not and why, and how often they are read."""

import os
import shutil
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from proctor.errors import ConfigError, TaskError
from proctor.job.metrics import find_metrics
from proctor.job.planned import Resolved
from proctor.job.settings import Settings
from proctor.task.hashed import SHARED
from tests.job.small_tasks import (
    job_config,
    resolve,
    resolve_path,
    write_dataset,
    write_task,
)
from tests.unprivileged import unprivileged

DIGEST = "ab" * 32


def names(resolved: Resolved) -> list[str]:
    return [task.name for task in resolved.tasks]


def test_tasks_of_a_directory_are_sorted_by_name(tmp_path: Path) -> None:
    write_dataset(tmp_path / "set", "c", "a", "b")
    resolved = resolve_path(tmp_path / "set")
    assert names(resolved) == ["a", "b", "c"]
    assert [task.config.source for task in resolved.tasks] == ["set"] * 3
    assert resolved.refused == ()


def test_tasks_may_have_the_order_of_the_directory(tmp_path: Path) -> None:
    write_dataset(tmp_path / "set", *"hcagbfed")
    config = job_config(datasets=[{"path": tmp_path / "set"}])
    resolved = resolve(config, Settings(task_order="directory"))
    assert names(resolved) == [path.name for path in (tmp_path / "set").iterdir()]


def test_a_relative_path_stays_relative(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_dataset(tmp_path / "set", "a")
    monkeypatch.chdir(tmp_path)
    task = resolve_path(Path("set")).tasks[0]
    assert task.config.path == Path("set/a")
    assert task.directory == tmp_path.resolve() / "set" / "a"
    monkeypatch.chdir(tmp_path / "set")
    task = resolve_path(Path()).tasks[0]
    assert (task.config.path, task.config.source) == (Path("a"), "set")


def test_a_task_by_itself_is_of_no_dataset(tmp_path: Path) -> None:
    write_task(tmp_path / "one")
    resolved = resolve(job_config(tasks=[{"path": tmp_path / "one"}]))
    assert [(task.name, task.config.source, task.kind) for task in resolved.tasks] == [
        ("one", None, "local")
    ]


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        ({"task_names": ["a*"]}, ["a1", "a2"]),
        ({"task_names": ["a*", "b1"], "exclude_task_names": ["*2"]}, ["a1", "b1"]),
        ({"exclude_task_names": ["[ab]1"]}, ["a2", "b2"]),
        ({"n_tasks": 2}, ["a1", "a2"]),
        ({"n_tasks": 2, "task_names": ["*2"]}, ["a2", "b2"]),
    ],
)
def test_patterns_choose_tasks_by_name(
    tmp_path: Path, choice: dict[str, Any], expected: list[str]
) -> None:
    write_dataset(tmp_path / "set", "a1", "a2", "b1", "b2")
    assert names(resolve_path(tmp_path / "set", **choice)) == expected


def test_an_invalid_task_is_reported_and_the_rest_runs(tmp_path: Path) -> None:
    dataset = write_dataset(tmp_path / "set", "good", "no-tests", "torn")
    shutil.rmtree(dataset / "no-tests" / "tests")
    (dataset / "torn" / "task.toml").write_text("this is [not toml")
    (dataset / "docs").mkdir()
    resolved = resolve_path(dataset)
    assert names(resolved) == ["good"]
    assert [(one.name, one.path) for one in resolved.refused] == [
        ("no-tests", dataset / "no-tests"),
        ("torn", dataset / "torn"),
    ]
    assert "no tests/test.sh" in resolved.refused[0].reason
    assert "task.toml is not TOML" in resolved.refused[1].reason


def test_a_limit_counts_valid_tasks(tmp_path: Path) -> None:
    dataset = write_dataset(tmp_path / "set", "a", "b", "c")
    (dataset / "a" / "instruction.md").unlink()
    resolved = resolve_path(dataset, n_tasks=2)
    assert names(resolved) == ["b", "c"]


def test_strict_tasks_refuses_the_whole_job(tmp_path: Path) -> None:
    dataset = write_dataset(tmp_path / "set", "a", "b", "c")
    for name in "ab":
        shutil.rmtree(dataset / name / "environment")
    config = job_config(datasets=[{"path": dataset}])
    with pytest.raises(TaskError, match=r"2 tasks cannot be run: a .*no environment/; b "):
        resolve(config, Settings(strict_tasks=True))
    assert names(resolve(config)) == ["c"]


def test_without_verification_no_tests_are_asked_for(tmp_path: Path) -> None:
    dataset = write_dataset(tmp_path / "set", "a")
    shutil.rmtree(dataset / "a" / "tests")
    with pytest.raises(TaskError, match=r"no task can be run: a \(.*\): no tests/test.sh"):
        resolve_path(dataset)
    config = job_config(datasets=[{"path": dataset}], verifier={"disable": True})
    assert names(resolve(config)) == ["a"]


def test_a_task_that_may_not_be_read_is_reported(tmp_path: Path) -> None:
    # Nobody may have no way to the directories of a test; and nobody may load no modules.
    with TemporaryDirectory() as place:
        Path(place).chmod(0o755)
        dataset = write_dataset(Path(place, "set"), "a", "b", "c")
        (dataset / "b").chmod(0)
        (dataset / "c" / "tests" / "test.sh").chmod(0)
        resolve_path(write_dataset(tmp_path / "set", "a"))
        with unprivileged():
            resolved = resolve_path(dataset)
        assert names(resolved) == ["a"]
        assert [one.name for one in resolved.refused] == ["b", "c"]
        assert all("Permission denied" in one.reason for one in resolved.refused)


def test_a_file_that_cannot_be_hashed_is_a_reason(tmp_path: Path) -> None:
    dataset = write_dataset(tmp_path / "set", "a", "b")
    (dataset / "a" / "tests" / "loop").symlink_to(dataset / "a")
    resolved = resolve_path(dataset)
    assert [(one.name, one.reason != "") for one in resolved.refused] == [("a", True)]


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda path: None, "no such directory; expected a task, or a directory of tasks"),
        (lambda path: path.write_text(""), "this is a file; expected a task directory"),
        (lambda path: path.mkdir(), "an empty directory; expected a task"),
        (lambda path: (path / "x").mkdir(parents=True), "1 directory and no task among them"),
        (
            lambda path: write_dataset(path / "inner", "a"),
            "no tasks directly in it, but in inner; name one of those, such as",
        ),
        (
            lambda path: [(path / "t").mkdir(parents=True), (path / "lock.json").write_text("{}")],
            "a job, not tasks; to resume it: `proctor resume",
        ),
    ],
)
def test_a_wrong_directory_is_described(tmp_path: Path, make: Any, sentence: str) -> None:
    make(tmp_path / "given")
    with pytest.raises(TaskError) as refused:
        resolve_path(tmp_path / "given")
    assert sentence in str(refused.value)
    assert str(tmp_path / "given") in str(refused.value)


def test_patterns_that_fit_nothing_are_said(tmp_path: Path) -> None:
    write_dataset(tmp_path / "set", "a", "b")
    with pytest.raises(TaskError, match=r"no task is named x\*; it has 2 tasks, such as a, b"):
        resolve_path(tmp_path / "set", task_names=["x*"])
    with pytest.raises(TaskError, match=r"no task is left; all 2 are excluded"):
        resolve_path(tmp_path / "set", exclude_task_names=["*"])


def test_a_job_without_tasks_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TaskError, match="no tasks; expected a task, a directory"):
        resolve(job_config())
    with pytest.raises(TaskError, match=r"none.*no such directory; expected a task"):
        resolve(job_config(tasks=[{"path": tmp_path / "none"}]))


def test_what_is_worth_knowing_of_a_task_is_said_once(tmp_path: Path) -> None:
    write_task(tmp_path / "set" / "a", "[agent]\ntimeout_secs = 3\n")
    config = job_config(
        datasets=[{"path": tmp_path / "set"}, {"path": tmp_path / "set"}],
        tasks=[{"path": tmp_path / "set" / "a"}],
    )
    resolved = resolve(config)
    assert len(resolved.tasks) == 3
    assert len(resolved.notes) == 1
    assert resolved.notes[0].startswith(
        "a: task.toml: agent.timeout_secs is not a key that harbor knows"
    )


def test_a_note_about_many_tasks_is_said_once_with_their_number(tmp_path: Path) -> None:
    for number in range(5):
        write_task(tmp_path / "set" / f"t{number}", "[agent]\ntimeout_secs = 3\n")
    said = "task.toml: agent.timeout_secs is not a key that harbor knows"
    config = job_config(datasets=[{"path": tmp_path / "set"}])
    (note,) = resolve(config).notes
    assert note.startswith(f"all 5 tasks: {said}")
    write_task(tmp_path / "set" / "other")
    (note,) = resolve(config).notes
    assert note.startswith(f"5 tasks (t0, t1, t2 and 2 more): {said}")


def test_equal_directories_are_read_and_hashed_once(tmp_path: Path) -> None:
    write_dataset(tmp_path / "set", "a")
    (tmp_path / "link").symlink_to(tmp_path / "set")
    before = SHARED.reads
    resolved = resolve(job_config(datasets=[{"path": tmp_path / "set"}]))
    once = SHARED.reads - before
    twice = resolve(job_config(datasets=[{"path": tmp_path / "set"}, {"path": tmp_path / "link"}]))
    assert SHARED.reads - before <= 2 * once
    assert twice.tasks[0].digests is twice.tasks[1].digests
    assert twice.tasks[0].task is twice.tasks[1].task
    assert resolved.tasks[0].digests == twice.tasks[0].digests


def test_extra_instructions_are_joined_to_every_instruction(tmp_path: Path) -> None:
    write_task(tmp_path / "one", instruction="# canary 1\n\nDo it.\n")
    steps = write_task(tmp_path / "many", '[[steps]]\nname = "s"\n')
    (steps / "steps" / "s").mkdir(parents=True)
    (steps / "steps" / "s" / "instruction.md").write_text("First.")
    (tmp_path / "x.md").write_text("X\r\n")
    (tmp_path / "y.md").write_text("Y")
    config = job_config(
        tasks=[{"path": tmp_path / "one"}, {"path": steps}],
        extra_instruction_paths=[tmp_path / "x.md", tmp_path / "y.md"],
    )
    one, many = resolve(config).tasks
    assert one.task.instruction == "Do it.\n\n\nX\n\n\nY"
    assert many.task.instruction == ""
    assert many.task.steps[0].instruction == "First.\n\nX\n\n\nY"


def test_a_missing_extra_instruction_is_said(tmp_path: Path) -> None:
    write_task(tmp_path / "one")
    config = job_config(
        tasks=[{"path": tmp_path / "one"}], extra_instruction_paths=[tmp_path / "none.md"]
    )
    with pytest.raises(ConfigError, match=r"none.md: extra instruction cannot be read"):
        resolve(config)


def test_a_path_that_is_no_skill_is_said(tmp_path: Path) -> None:
    write_task(tmp_path / "one")
    (tmp_path / "skills" / "empty").mkdir(parents=True)
    for path, sentence in (
        ("none", "does not exist; expected a directory with a SKILL.md"),
        ("skills", "no SKILL.md in it, and empty has none"),
        ("skills/empty", "no SKILL.md in it, and there is no directory in it"),
        ("one/task.toml", "is a file; expected a directory"),
    ):
        agents = [{"name": "nop", "skills": [tmp_path / path]}]
        with pytest.raises(ConfigError, match=sentence):
            resolve(job_config(tasks=[{"path": tmp_path / "one"}], agents=agents))


def old_task(directory: Path) -> Path:
    """A task of Terminal-Bench."""
    (directory / "tests").mkdir(parents=True)
    (directory / "task.yaml").write_text("instruction: Do it.\ndifficulty: easy\n")
    (directory / "Dockerfile").write_text("FROM debian:12\n")
    (directory / "docker-compose.yaml").write_text("services: {client: {build: {}}}\n")
    (directory / "solution.sh").write_text("true\n")
    (directory / "run-tests.sh").write_text("true\n")
    return directory


def test_an_older_task_is_run_as_harbors_from_the_cache(tmp_path: Path) -> None:
    dataset = write_dataset(tmp_path / "set", "new")
    old_task(dataset / "old")
    host = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache")}
    first = resolve(job_config(datasets=[{"path": dataset}]), host=host)
    assert names(first) == ["new", "old"]
    old = first.tasks[1]
    assert old.directory.is_relative_to(tmp_path / "cache" / "proctor" / "terminal-bench")
    assert (old.config.path, old.config.source) == (old.directory, "set")
    assert old.task.instruction == "Do it.\n"
    assert any("old: a Terminal-Bench task" in note for note in first.notes)
    again = resolve(job_config(datasets=[{"path": dataset}]), host=host)
    assert again.tasks[1].digests == old.digests
    (dataset / "old" / "task.yaml").write_text("instruction: Do more.\n")
    changed = resolve(job_config(datasets=[{"path": dataset}]), host=host)
    assert changed.tasks[1].directory != old.directory


def cached_package(home: Path, name: str, digest: str = DIGEST) -> Path:
    return write_task(home / ".cache" / "harbor" / "tasks" / "packages" / name / digest)


def test_a_package_is_taken_from_harbors_cache(tmp_path: Path) -> None:
    cached_package(tmp_path, "org/name")
    for ref in ("latest", f"sha256:{DIGEST}"):
        config = job_config(tasks=[{"name": "org/name", "ref": ref}])
        task = resolve(config, host={"HOME": str(tmp_path)}).tasks[0]
        assert (task.name, task.kind, task.config.ref) == ("org/name", "package", ref)
        assert task.lock_digest == f"sha256:{DIGEST}"


def test_a_package_that_is_not_in_the_cache_is_told_how_to_get(tmp_path: Path) -> None:
    config = job_config(tasks=[{"name": "org/name", "ref": "latest"}])
    with pytest.raises(TaskError, match=r"org/name@latest: not in harbor's cache .*; get it with"):
        resolve(config, host={"HOME": str(tmp_path)})
    cached_package(tmp_path, "org/name")
    cached_package(tmp_path, "org/name", "cd" * 32)
    with pytest.raises(TaskError, match=r"has 2 versions and cannot tell which .*@sha256:abab"):
        resolve(config, host={"HOME": str(tmp_path)})
    for ref, sentence in (
        ("sha256:00", "is not a digest"),
        (f"sha256:{'0' * 64}", "not in harbor's"),
    ):
        with pytest.raises(TaskError, match=sentence):
            resolve(
                job_config(tasks=[{"name": "org/name", "ref": ref}]), host={"HOME": str(tmp_path)}
            )


def cached_dataset(home: Path, tasks: list[dict[str, str]]) -> Path:
    directory = home / ".cache" / "harbor" / "datasets" / "org" / "set" / DIGEST
    directory.mkdir(parents=True)
    lines = [f'[[tasks]]\nname = "{one["name"]}"\ndigest = "{one["digest"]}"' for one in tasks]
    (directory / "dataset.toml").write_text("\n".join(lines))
    return directory


def test_a_dataset_package_is_taken_from_harbors_cache(tmp_path: Path) -> None:
    for name in ("b", "a", "c"):
        cached_package(tmp_path, f"org/{name}")
    listed = [{"name": f"org/{name}", "digest": f"sha256:{DIGEST}"} for name in ("b", "a", "none")]
    directory = cached_dataset(tmp_path, listed)
    config = job_config(datasets=[{"name": "org/set", "ref": "latest"}])
    resolved = resolve(config, host={"HOME": str(tmp_path)})
    assert names(resolved) == ["org/b", "org/a"]
    # By what is there: nobody knows what was the latest then.
    assert {task.dataset_id for task in resolved.tasks} == {f"org/set@sha256:{DIGEST}"}
    assert [one.name for one in resolved.refused] == ["org/none"]
    assert [one.name for one in find_metrics(config, resolved)["org/set"]] == ["mean"]
    (directory / "metric.py").write_text("")
    resolved = resolve(config, host={"HOME": str(tmp_path)})
    assert [one.name for one in find_metrics(config, resolved)["org/set"]] == ["uv-script"]


def test_a_dataset_package_without_its_list_is_told_how_to_get(tmp_path: Path) -> None:
    config = job_config(datasets=[{"name": "org/set", "ref": "latest"}])
    how = r"`harbor dataset download org/set@latest -o DIR` and run it with -p DIR/set"
    with pytest.raises(TaskError, match=rf"not in harbor's cache .*{how}"):
        resolve(config, host={"HOME": str(tmp_path)})
    directory = cached_dataset(tmp_path, [])
    (directory / "dataset.toml").unlink()
    with pytest.raises(TaskError, match=rf"has no dataset.toml to list its tasks; .*{how}"):
        resolve(config, host={"HOME": str(tmp_path)})
    (directory / "dataset.toml").write_text("tasks = [{name = 1}]")
    with pytest.raises(TaskError, match=r"dataset.toml: tasks.0.name: Input should be a valid"):
        resolve(config, host={"HOME": str(tmp_path)})
