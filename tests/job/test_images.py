"""The image below a trial is part of what decides it."""

import asyncio
from datetime import UTC, datetime
from pathlib import Path

import pytest

from proctor.environments.sandbox.roots.images import ImageStore, Known
from proctor.harbor.configs import NULL, SANDBOX, EnvironmentConfig
from proctor.job.images import choose_environment, describe_change, find_images
from proctor.job.options import JobOptions
from proctor.job.preview import preview_run
from proctor.job.store import ChosenEnvironment
from proctor.task.directory import load_task
from tests.job.jobs import make_config, make_task

NOW = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROCTOR_CACHE", str(tmp_path / "cache"))


def import_image(tmp_path: Path, words: str) -> str:
    tree = tmp_path / f"tree-{words}"
    (tree / "usr").mkdir(parents=True)
    (tree / "usr" / "words").write_text(words, encoding="utf-8")
    store = ImageStore()
    return store.import_image("mine:1", tree, Known({}), now=NOW, replace=True).image.pin


def slot_keys(dataset: Path, tmp_path: Path) -> list[str]:
    config = make_config(dataset, tmp_path / "jobs")
    config.environment = EnvironmentConfig(import_path=SANDBOX)
    shown = asyncio.run(preview_run(JobOptions(config=config)))
    return [decision.slot.key for decision in shown.decisions]


def test_another_image_of_the_same_name_makes_other_slots(tmp_path: Path) -> None:
    named = make_task(tmp_path / "set" / "a")
    (named / "environment" / "Dockerfile").write_text("FROM mine:1\n", encoding="utf-8")
    make_task(tmp_path / "set" / "b")
    nothing = slot_keys(tmp_path / "set", tmp_path)
    import_image(tmp_path, "first")
    first = slot_keys(tmp_path / "set", tmp_path)
    import_image(tmp_path, "second")
    second = slot_keys(tmp_path / "set", tmp_path)
    assert len({nothing[0], first[0], second[0]}) == 3
    assert nothing[1] == first[1] == second[1]


def test_the_image_is_the_tasks_own_then_froms_then_the_base(tmp_path: Path) -> None:
    pin = import_image(tmp_path, "words")
    task = load_task(make_task(tmp_path / "a"))
    sandbox = EnvironmentConfig(import_path=SANDBOX)
    assert find_images(sandbox, task) == ()
    based = EnvironmentConfig(import_path=SANDBOX, kwargs={"base": "mine:1"})
    assert [one.pin for one in find_images(based, task)] == [pin]
    toml = 'schema_version = "1.3"\n[environment]\ndocker_image = "mine:1"\n'
    (tmp_path / "a" / "task.toml").write_text(toml, encoding="utf-8")
    task = load_task(tmp_path / "a")
    assert [one.pin for one in find_images(sandbox, task)] == [pin]
    forced = EnvironmentConfig(import_path=SANDBOX, force_build=True)
    assert find_images(forced, task) == ()
    assert find_images(EnvironmentConfig(import_path=NULL), task) == ()


def test_a_dockerfile_that_cannot_be_used_is_for_its_trials_to_say(tmp_path: Path) -> None:
    task = load_task(make_task(tmp_path / "a"))
    (tmp_path / "a" / "environment" / "Dockerfile").write_bytes(b"\xff")
    assert find_images(EnvironmentConfig(import_path=SANDBOX), task) == ()


def test_a_host_that_changed_is_said() -> None:
    sandbox = EnvironmentConfig(import_path=SANDBOX)
    now = choose_environment(sandbox, "the default")
    assert now.kind == "sandbox"
    assert now.base is not None
    assert now.base.startswith("host:")
    assert describe_change(now, sandbox) is None
    then = ChosenEnvironment("sandbox", "the default", "host:old@sha256:00")
    assert "when the job was started it was host:old@sha256:00" in str(
        describe_change(then, sandbox)
    )
    null = choose_environment(EnvironmentConfig(import_path=NULL), "asked for")
    assert (null.kind, null.base) == ("null", None)
