"""What tasks need, and whether they can be run here, before anything is run."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from proctor.environments.sandbox.roots.dockerfile import parse_dockerfile
from proctor.harbor.configs import NULL, SANDBOX, EnvironmentConfig
from proctor.job.needs import TaskNeeds
from proctor.job.options import JobOptions
from proctor.job.preview import preview_run
from proctor.task.network import NetworkMode
from tests.job.jobs import make_config
from tests.job.small_tasks import write_dataset, write_task


def needs_of(dataset: Path, jobs: Path, **environment: Any) -> list[TaskNeeds]:
    config = make_config(dataset, jobs, n_attempts=2)
    config.environment = EnvironmentConfig(**{"import_path": NULL, **environment})
    return list(asyncio.run(preview_run(JobOptions(config=config))).tasks)


def test_each_task_is_described_once_with_its_limits(tmp_path: Path) -> None:
    toml = """
[agent]
timeout_sec = 600.0
[verifier]
timeout_sec = 60.0
[environment]
docker_image = "org/image:1"
cpus = 2
memory_mb = 4096
storage_mb = 10240
network_mode = "no-network"
"""
    write_task(tmp_path / "set" / "a", toml)
    write_dataset(tmp_path / "set", "b")
    first, second = needs_of(tmp_path / "set", tmp_path / "jobs")
    assert (first.name, first.images, first.is_built) == ("a", ("org/image:1",), False)
    assert (first.cpus, first.memory_mb, first.storage_mb, first.gpus) == (2, 4096, 10240, 0)
    assert (first.agent_sec, first.verifier_sec) == (600.0, 60.0)
    assert first.network is NetworkMode.NO_NETWORK
    assert (first.is_runnable, first.why) == (True, None)
    assert (second.images, second.is_built) == (("debian:12",), True)


@pytest.mark.sandbox
def test_a_task_that_the_environment_would_refuse_says_why(tmp_path: Path) -> None:
    write_task(tmp_path / "set" / "gpu", "[environment]\ngpus = 1\n")
    write_dataset(tmp_path / "set", "plain")
    gpu, plain = needs_of(tmp_path / "set", tmp_path / "jobs", import_path=SANDBOX)
    assert (gpu.is_runnable, gpu.gpus) == (False, 1)
    assert gpu.why == "gpus = 1: the sandbox has no graphics processors"
    assert (plain.is_runnable, plain.download_bytes) == (True, 0)


def test_more_memory_than_the_machine_has_is_noted(tmp_path: Path) -> None:
    write_task(tmp_path / "set" / "a", "[environment]\nmemory_mb = 100000000\n")
    (only,) = needs_of(tmp_path / "set", tmp_path / "jobs")
    assert only.is_runnable
    assert only.why is not None
    assert only.why.startswith("its memory limit is 100.0 TB, and this machine has ")


def test_a_class_of_others_is_not_loaded_to_find_out(tmp_path: Path) -> None:
    write_dataset(tmp_path / "set", "a")
    (only,) = needs_of(tmp_path / "set", tmp_path / "jobs", import_path="no.such.module:Class")
    assert (only.is_runnable, only.why) == (None, None)


@pytest.mark.parametrize(
    ("text", "images"),
    [
        ("FROM a:1\nRUN true\n", ("a:1",)),
        ("FROM --platform=linux/amd64 a AS Build\nFROM b\nCOPY --from=build /x /x\n", ("b", "a")),
        ("FROM a AS unused\nFROM b\nCOPY --from=c:1 /x /x\n", ("b", "c:1")),
        ("ARG TAG=1\nFROM a:$TAG\nFROM scratch\nCOPY --from=0 / /\n", ("a:1",)),
        ("FROM a AS one\nFROM ONE\nFROM a\n", ("a",)),
        ("FROM a\nRUN <<EOF\nFROM table\nEOF\n", ("a",)),
        ("# FROM x\nFROM \\\n  a\n", ("a",)),
    ],
)
def test_the_images_of_a_dockerfile_are_those_of_needed_stages_and_of_copy(
    text: str, images: tuple[str, ...]
) -> None:
    assert parse_dockerfile(text, "Dockerfile").images == images
