"""The slots of a job: their order, what makes one another, and the names of their trials."""

import json
import re
import shutil
import time
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any
from uuid import UUID

import pytest

from proctor.harbor.lock import render_lock
from proctor.job.config_file import make_job_config
from proctor.job.lock import lock_slots
from proctor.job.settings import Settings
from proctor.job.slots import make_slots, new_trial_name, trial_config
from tests.job.small_tasks import job_config, resolve, write_dataset, write_task

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*__[2-9A-HJ-NP-Za-km-z]{7}")


def keys(settings: Settings | None = None, **values: Any) -> list[str]:
    config = job_config(**values)
    return [slot.key for slot in make_slots(config, resolve(config, settings))]


def test_attempts_come_first_then_tasks_then_agents(tmp_path: Path) -> None:
    write_dataset(tmp_path / "set", "a", "b")
    config = job_config(
        datasets=[{"path": tmp_path / "set"}],
        n_attempts=2,
        agents=[{"name": "nop"}, {"name": "oracle"}],
    )
    slots = make_slots(config, resolve(config))
    assert [(slot.attempt, slot.planned.name, slot.agent.name) for slot in slots] == [
        (attempt, task, agent) for attempt in (1, 2) for task in "ab" for agent in ("nop", "oracle")
    ]
    assert [slot.index for slot in slots] == list(range(8))
    assert len({slot.key for slot in slots}) == 4


@pytest.fixture
def task(tmp_path: Path) -> Path:
    for skill in ("skill", "other"):
        (tmp_path / skill).mkdir()
        (tmp_path / skill / "SKILL.md").write_text(skill)
    (tmp_path / "more.md").write_text("More.")
    return write_task(tmp_path / "task")


DIFFERENT: list[dict[str, Any]] = [
    {"agents": [{"name": "nop"}]},
    {"agents": [{"name": "oracle", "model_name": "p/m"}]},
    {"agents": [{"name": "oracle", "kwargs": {"a": 1}}]},
    {"agents": [{"name": "oracle", "env": {"MODE": "x"}}]},
    {"agents": [{"name": "oracle", "env": {"MODE": "y"}}]},
    {"agents": [{"name": "oracle", "env": {"API_KEY": "x"}}]},
    {"agents": [{"name": "oracle", "max_timeout_sec": 3}]},
    {"agents": [{"name": "oracle", "skills": ["SKILL"]}]},
    {"environment": {"type": "null"}},
    {"environment": {"kwargs": {"base": "x"}}},
    {"environment": {"override_cpus": 2}},
    {"environment": {"env": {"A": "b"}}},
    {"verifier": {"disable": True}},
    {"verifier": {"env": {"A": "b"}}},
    {"timeout_multiplier": 2.0},
    {"verifier_timeout_multiplier": 2.0},
    {"artifacts": ["/x"]},
    {"extra_instruction_paths": ["MORE"]},
]


def test_whatever_decides_a_trial_is_in_its_key(task: Path) -> None:
    def placed(values: dict[str, Any]) -> dict[str, Any]:
        text = json.dumps(values).replace("SKILL", str(task.parent / "skill"))
        placed: dict[str, Any] = json.loads(text.replace("MORE", str(task.parent / "more.md")))
        return placed

    tasks = [{"path": task}]
    found = [keys(tasks=tasks)[0], *(keys(tasks=tasks, **placed(one))[0] for one in DIFFERENT)]
    found.append(keys(Settings(verifier_compat="harbor-0.13.1"), tasks=tasks)[0])
    assert len(set(found)) == len(found)


@pytest.mark.parametrize(
    "change",
    [
        {"job_name": "another"},
        {"jobs_dir": "elsewhere"},
        {"n_concurrent_trials": 64},
        {"quiet": True, "debug": True},
        {"n_attempts": 1, "retry": {"max_retries": 3}},
        {"environment": {"force_build": True, "delete": False}},
    ],
    ids=str,
)
def test_what_decides_nothing_is_not_in_the_key(task: Path, change: dict[str, Any]) -> None:
    assert keys(tasks=[{"path": task}], **change) == keys(tasks=[{"path": task}])


def test_a_key_is_the_same_from_any_directory(task: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = keys(tasks=[{"path": task}])
    monkeypatch.chdir(task.parent)
    assert keys(tasks=[{"path": "task"}]) == whole
    shutil.copytree(task, task.parent / "moved" / "task")
    assert keys(tasks=[{"path": "moved/task"}]) == whole


def test_a_changed_file_of_a_task_makes_another_key(task: Path) -> None:
    before = keys(tasks=[{"path": task}])
    (task / "tests" / "test.sh").write_text("echo 0 > /logs/verifier/reward.txt\n")
    after = keys(tasks=[{"path": task}])
    (task / "notes.txt").write_text("in no lock")
    assert len({*before, *after, *keys(tasks=[{"path": task}])}) == 3


def test_a_changed_skill_or_instruction_makes_another_key(task: Path) -> None:
    skill, more = task.parent / "skill", task.parent / "more.md"
    values: dict[str, Any] = {
        "tasks": [{"path": task}],
        "agents": [{"name": "nop", "skills": [skill]}],
        "extra_instruction_paths": [more],
    }
    found = keys(**values)
    (skill / "SKILL.md").write_text("changed")
    found += keys(**values)
    more.write_text("changed")
    found += keys(**values)
    assert len(set(found)) == 3


def test_a_secrets_value_is_not_in_the_key(task: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def of(value: str) -> list[str]:
        agent = {"name": "nop", "env": {"API_KEY": value}, "kwargs": {"deep": [{"token": value}]}}
        return keys(tasks=[{"path": task}], agents=[agent], verifier={"env": {"AUTH": value}})

    assert of("sk-0123456789") == of("another") == of("${API_KEY}")


def test_a_config_read_back_gives_the_same_keys(task: Path) -> None:
    agent = {"name": "nop", "env": {"API_KEY": "sk-0123456789", "MODE": "x"}, "kwargs": {"n": 1.0}}
    config = job_config(tasks=[{"path": task}], agents=[agent], environment={"override_cpus": 2})
    again = make_job_config(json.loads(config.model_dump_json()), where="-")
    resolved = resolve(config)
    assert [slot.key for slot in make_slots(again, resolve(again))] == [
        slot.key for slot in make_slots(config, resolved)
    ]


def test_equal_tasks_of_two_datasets_stay_apart(tmp_path: Path) -> None:
    write_dataset(tmp_path / "one", "a")
    shutil.copytree(tmp_path / "one", tmp_path / "two")
    assert len(set(keys(datasets=[{"path": tmp_path / "one"}, {"path": tmp_path / "two"}]))) == 2


def test_a_trial_is_told_what_its_slot_says(task: Path) -> None:
    config = job_config(tasks=[{"path": task}], timeout_multiplier=3, artifacts=["/x"])
    slot = make_slots(config, resolve(config))[0]
    told = trial_config(slot, "name", task.parent, UUID(int=1))
    assert (told.trial_name, told.trials_dir, told.job_id) == ("name", task.parent, UUID(int=1))
    assert (told.timeout_multiplier, told.artifacts, told.task.path) == (3, ["/x"], task)


@pytest.mark.parametrize(
    ("task", "prefix"),
    [
        ("pass-simple", "pass-simple"),
        ("org/name", "name"),
        ("x" * 31 + "-_rest", "x" * 31),
        ("trailing__", "trailing"),
        ("ends-in-dash-", "ends-in-dash"),
    ],
)
def test_a_trial_is_named_after_its_task(task: str, prefix: str) -> None:
    name = new_trial_name(task, Random(1))
    assert NAME.fullmatch(name)
    assert name.rpartition("__")[0] == prefix


@pytest.mark.parametrize("task", ["my task", ".hidden", "日本", "__", "-", "a/b\n", "../.."])
def test_a_name_that_must_not_be_a_path_becomes_one_that_may(task: str) -> None:
    assert NAME.fullmatch(new_trial_name(task, Random(1)))


def test_no_name_is_given_twice() -> None:
    name = new_trial_name("a", Random(1))
    assert new_trial_name("a", Random(1)) == name
    assert new_trial_name("a", Random(1), {name}) != name


def test_ten_thousand_trials_are_planned_at_once(tmp_path: Path) -> None:
    write_dataset(tmp_path / "set", *(f"task-{n:02}" for n in range(50)))
    config = job_config(datasets=[{"path": tmp_path / "set"}], n_attempts=200)
    began = time.process_time()
    resolved = resolve(config)
    slots = make_slots(config, resolved)
    lock = lock_slots(
        config, slots, resolved, invocation=["proctor"], created_at=datetime.now(UTC), host={}
    )
    text = render_lock(lock)
    assert time.process_time() - began < 2
    assert text.count(b'"digest"') == len(slots) == 10_000
    assert len({id(trial) for trial in lock.trials}) == 50
