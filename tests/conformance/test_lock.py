"""lock.json and the order of a plan: the real harbor beside ours, for the same config.

What is compared is a plan, not a run: no environment is started.
"""

import asyncio
import json
import os
import shutil
import sys
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any
from uuid import UUID

import pytest

from proctor.harbor.configs import JobConfig
from proctor.harbor.lock import FORMAT_OF, render_lock, written_invocation
from proctor.harbor.skills import load_skills
from proctor.job.lock import lock_slots
from proctor.job.metrics import find_metrics
from proctor.job.planned import Resolved
from proctor.job.settings import Settings
from proctor.job.slots import Slot, make_slots, new_trial_name, trial_config
from proctor.job.tasks import resolve_tasks
from proctor.task.checksum import task_checksum
from tests.conformance.theirs import harbor_module
from tests.job.git_repository import Repository

TASKS = Path(__file__).resolve().parent.parent / "data" / "harbor" / "tasks"
AS_HARBOR = Settings(task_order="directory")
ARGV = ["proctor", "run", "--ae", "API_KEY=sk-abcdefgh", "--ve=PLAIN= x", "-p", "tasks"]

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with the tasks of real jobs, skills, and files that trials read."""
    shutil.copytree(TASKS, tmp_path / "tasks")
    for skill in ("b", "a"):
        (tmp_path / "skills" / skill / "deep").mkdir(parents=True)
        (tmp_path / "skills" / skill / "SKILL.md").write_text(f"# {skill}\n")
        (tmp_path / "skills" / skill / "deep" / "run.sh").write_text("true\n")
    (tmp_path / "more.md").write_text("And be quick.\n")
    (tmp_path / "compose.yaml").write_text("services: {}\n")
    registry = [
        {
            "name": "reg",
            "version": version,
            "description": "",
            "tasks": [
                {"name": name, "path": f"tasks/binary/{name}"}
                for name in ("pass-two", "pass-simple")
            ],
            "metrics": [{"type": "max"}],
        }
        for version in ("1.9", "1.10")
    ]
    (tmp_path / "registry.json").write_text(json.dumps(registry))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ARGV)
    monkeypatch.setenv("HOST_TOKEN", "same-on-the-host")
    return tmp_path


CONFIGS: dict[str, dict[str, Any]] = {
    "a dataset": {"datasets": [{"path": "tasks/binary"}], "n_attempts": 3},
    "invalid tasks in it": {"datasets": [{"path": "tasks/partial"}]},
    "without verification": {
        "datasets": [{"path": "tasks/partial"}],
        "verifier": {"disable": True},
    },
    "one task": {"tasks": [{"path": "tasks/binary/pass-two"}]},
    "patterns": {
        "datasets": [
            {
                "path": "tasks/errors",
                "task_names": ["*timeout*", "good-*"],
                "exclude_task_names": ["*frac"],
            }
        ]
    },
    "some of them": {"datasets": [{"path": "tasks/rewards", "n_tasks": 4}]},
    "a registry": {"datasets": [{"name": "reg", "registry_path": "registry.json"}]},
    "a version": {
        "datasets": [{"name": "reg", "version": "1.9", "registry_path": "registry.json"}],
        "metrics": [{"type": "sum"}],
    },
    "two datasets and a task": {
        "datasets": [{"path": "tasks/nan"}, {"path": "tasks/my__set"}, {"path": "tasks/nan"}],
        "tasks": [{"path": "tasks/multistep/ms-mean"}],
        "metrics": [{"type": "min"}, {"type": "mean"}],
        "n_attempts": 2,
    },
    "everything": {
        "datasets": [{"path": "./tasks/binary/"}],
        "n_attempts": 2,
        "timeout_multiplier": 2,
        "agent_timeout_multiplier": 0.5,
        "environment_build_timeout_multiplier": 1e-5,
        "agents": [
            {"name": "nop", "skills": ["skills"], "kwargs": {"a": None, "b": [1, 2.0]}},
            {
                "import_path": "x:Y",
                "model_name": "p/m",
                "skills": ["skills/b"],
                "env": {"API_KEY": "sk-abcdefgh", "HOST_TOKEN": "same-on-the-host", "MODE": "ü"},
                "mcp_servers": [{"name": "m", "url": "http://localhost"}],
                "extra_allowed_hosts": ["Example.org"],
            },
        ],
        "environment": {
            "import_path": "nowhere:Environment",
            "override_cpus": 2,
            "kwargs": {"k": {"deep": None}},
            "env": {"SECRET": "x"},
            "extra_docker_compose": ["compose.yaml"],
            "override_tpu": {"type": "v6e", "topology": "2x4"},
        },
        "verifier": {"env": {"PASSWORD": "0123456789"}, "import_path": "v:V", "kwargs": {"q": 1}},
        "artifacts": ["/out", {"source": "/x", "exclude": ["*.o"]}],
        "extra_instruction_paths": ["more.md"],
        "retry": {"max_retries": 3, "include_exceptions": ["B", "A"]},
        "n_concurrent_trials": 2,
    },
}


def make_config(values: dict[str, Any], directory: Path) -> dict[str, Any]:
    environment = {"environment": {"type": "docker"}}
    return {"job_name": "plan", "jobs_dir": str(directory / "jobs"), **environment, **values}


def plan(config: JobConfig) -> tuple[Resolved, tuple[Slot, ...]]:
    resolved = asyncio.run(resolve_tasks(config, AS_HARBOR, host=os.environ))
    return resolved, make_slots(config, resolved)


def make_harbors_job(values: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> Any:
    """A job that harbor planned; what it does before it plans needs an environment's class."""
    factory = harbor_module("harbor.environments.factory").EnvironmentFactory
    monkeypatch.setattr(factory, "validate_resource_policies", lambda _: None)
    config = harbor_module("harbor.models.job.config").JobConfig.model_validate(values)
    job = asyncio.run(harbor_module("harbor.job").Job.create(config))
    job._init_job_lock()
    job._close_logger_handlers()
    return job


@pytest.mark.parametrize("values", CONFIGS.values(), ids=CONFIGS.keys())
def test_a_lock_is_harbors_to_the_byte(
    values: dict[str, Any], place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = make_config(values, place)
    job = make_harbors_job(values, monkeypatch)
    config = JobConfig.model_validate(values)
    resolved, slots = plan(config)
    lock = lock_slots(
        config,
        slots,
        resolved,
        invocation=ARGV,
        created_at=job._job_lock.created_at,
        host=os.environ,
    )
    text = render_lock(lock)
    theirs = job._job_lock.model_dump_json(indent=4, exclude_none=True)
    assert with_sorted_sets(text.decode()) == with_sorted_sets(theirs)
    assert text.decode().count("\n") == theirs.count("\n")
    read = harbor_module("harbor.models.job.lock").JobLock.model_validate_json(text)
    # Harbor never compares a lock in memory with one whose secrets were redacted.
    written = type(read).model_validate_json(theirs)
    assert read == written
    assert [trial.task.name for trial in read.trials] == [t.task.name for t in written.trials]


def with_sorted_sets(text: str) -> str:
    document = json.loads(text)
    for name in ("include_exceptions", "exclude_exceptions"):
        if name in document["retry"]:
            document["retry"][name].sort()
    return json.dumps(document, indent=4, ensure_ascii=False)


@pytest.mark.parametrize("values", CONFIGS.values(), ids=CONFIGS.keys())
def test_the_trials_of_a_plan_are_told_what_harbor_tells_them(
    values: dict[str, Any], place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = make_config(values, place)
    job = make_harbors_job(values, monkeypatch)
    _, slots = plan(JobConfig.model_validate(values))
    named = [config.trial_name for config in job._trial_configs]
    ours = [
        trial_config(slot, name, job.job_dir, job.id)
        for slot, name in zip(slots, named, strict=True)
    ]
    assert [one.model_dump_json(indent=4) for one in ours] == [
        one.model_dump_json(indent=4) for one in job._trial_configs
    ]
    rng = Random(1)
    for name, slot in zip(named, slots, strict=True):
        prefix, _, suffix = new_trial_name(slot.planned.name, rng).rpartition("__")
        assert (prefix, len(suffix)) == (name.rpartition("__")[0], len(name.rpartition("__")[2]))


@pytest.mark.parametrize("values", CONFIGS.values(), ids=CONFIGS.keys())
def test_the_metrics_of_a_job_are_harbors(
    values: dict[str, Any], place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = make_config(values, place)
    job = make_harbors_job(values, monkeypatch)
    config = JobConfig.model_validate(values)
    ours = find_metrics(config, plan(config)[0])
    theirs = {
        name: [type(metric).__name__.lower() for metric in metrics]
        for name, metrics in job._metrics.items()
    }
    assert {name: [one.name for one in metrics] for name, metrics in ours.items()} == theirs


@pytest.mark.parametrize("values", CONFIGS.values(), ids=CONFIGS.keys())
def test_harbor_goes_on_with_a_job_that_we_planned(
    values: dict[str, Any], place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = make_config(values, place)
    config = JobConfig.model_validate(values)
    resolved, slots = plan(config)
    lock = lock_slots(
        config, slots, resolved, invocation=ARGV, created_at=datetime.now(UTC), host=os.environ
    )
    directory = config.jobs_dir / config.job_name
    directory.mkdir(parents=True)
    (directory / "config.json").write_text(config.model_dump_json(indent=4))
    (directory / "lock.json").write_bytes(render_lock(lock))
    # What its own resume does: the config is the one of the file, secrets redacted.
    read = json.loads((directory / "config.json").read_text())
    job = make_harbors_job(read, monkeypatch)
    before = json.loads((directory / "lock.json").read_text())
    job._write_job_lock()
    after = json.loads((directory / "lock.json").read_text())
    assert after["harbor"] == before["harbor"] == {"version": FORMAT_OF, "is_editable": False}
    assert after["trials"] == before["trials"]


FLAGS = [
    ["run", "--ae", "API_KEY=sk-0123456789"],
    [
        "run",
        "--agent-env=TOKEN=${TOKEN}",
        "--ve",
        "B",
        "--verifier-env",
        "HOST_TOKEN=same-on-the-host",
    ],
    ["run", "--ae"],
    ["run", "-a", "x=API_KEY=1", "--ae=PLAIN =  v "],
]


@pytest.mark.parametrize("argv", FLAGS, ids=lambda argv: argv[1])
def test_a_command_line_is_written_as_harbor_writes_it(argv: list[str], place: Path) -> None:
    theirs = harbor_module("harbor.models.job.lock").sanitize_cli_invocation(argv)
    assert written_invocation(argv, os.environ) == theirs


def test_a_key_among_arguments_is_redacted_where_harbor_writes_it() -> None:
    argv = ["--ak", "api_key=sk-0123456789", "--ek=base= host", "--ek=token=abc"]
    assert written_invocation(argv, {}) == [
        "--ak",
        "api_key=sk-0****789",
        "--ek=base= host",
        "--ek=token=****",
    ]


@pytest.mark.parametrize("is_pinned", [True, False])
def test_a_git_task_is_fetched_and_locked_as_by_harbor(tmp_path: Path, *, is_pinned: bool) -> None:
    repository = Repository(tmp_path)
    (repository.tree / "tasks" / "one" / "same").symlink_to("instruction.md")
    newest = repository.commit("second")
    ids, client = harbor_module("harbor.models.task.id"), harbor_module("harbor.tasks.client")
    commit = newest if is_pinned else None
    wanted = ids.GitTaskId(git_url=repository.url, git_commit_id=commit, path="tasks/one")
    fetching = client.TaskClient().download_tasks([wanted], output_dir=tmp_path / "theirs")
    theirs = asyncio.run(fetching).results[0]
    ours = repository.resolve({"path": "tasks/one", "git_commit_id": commit}).tasks[0]
    assert ours.commit == theirs.resolved_git_commit_id == newest
    assert ours.digests.task_checksum == task_checksum(theirs.path)
    packager = harbor_module("harbor.publisher.packager").Packager
    assert ours.digests.lock_digest == packager.compute_content_hash(theirs.path)[0]
    if is_pinned:
        assert ours.directory.parts[-2:] == theirs.path.parts[-2:]


def test_skills_and_their_digests_are_harbors(place: Path) -> None:
    module = harbor_module("harbor.skills")
    for paths in ([Path("skills")], [Path("skills/b"), Path("skills/a")], []):
        theirs = [
            (one.name, one.source, module.compute_skill_digest(one.source))
            for one in module.resolve_skills(paths)
        ]
        assert [(one.name, one.source, one.digest) for one in load_skills(paths)] == theirs


def test_a_trial_knows_its_job(place: Path) -> None:
    config = JobConfig.model_validate(make_config(CONFIGS["one task"], place))
    _, slots = plan(config)
    made = trial_config(slots[0], "n", place, UUID(int=7))
    assert json.loads(made.model_dump_json())["job_id"] == str(UUID(int=7))
