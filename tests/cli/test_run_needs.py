"""The table of a dry run: what tasks need, and whether they can be run here."""

import json
from pathlib import Path

import pytest

from tests.cli.test_run import Run
from tests.cli.test_run import run as run  # a fixture
from tests.job.small_tasks import write_task

IMAGE = "registry.example.org/organisation/adaptive-rejection-sampler:20251031"
pytestmark = pytest.mark.sandbox
LONG = "a-task-with-quite-a-long-name"


@pytest.fixture
def tasks(tmp_path: Path) -> Path:
    place = tmp_path / "tasks"
    named = f'[environment]\ndocker_image = "{IMAGE}"\nmemory_mb = 2048\nstorage_mb = 10240\n'
    name = '[task]\nname = "organisation/{}"\n'
    write_task(place / LONG, f"{name.format(LONG)}{named}[agent]\ntimeout_sec = 900.0\n")
    for gpu in ("gpu-one", "gpu-two"):
        write_task(place / gpu, f"{name.format(gpu)}[environment]\ngpus = 1\n")
    return place


@pytest.mark.parametrize("columns", [80, 200])
def test_the_table_is_readable_on_narrow_and_wide_terminals(
    run: Run, tasks: Path, columns: int
) -> None:
    ran = run("-p", tasks, "-a", "nop", "-e", "sandbox", "--dry-run", COLUMNS=str(columns))
    assert ran.code == 3, ran.err
    assert max(map(len, ran.out.splitlines()[3:-3])) <= columns
    rows = [" ".join(line.split()) for line in ran.out.splitlines()]
    needs = "public 2.0 GB 10.2 GB 25m 00s 0 yes"
    if columns == 200:
        assert "task image download network memory storage time GPUs runs here" in rows
        assert f"{LONG} {IMAGE} unknown {needs}" in rows
        assert "gpu-one debian:12 unknown public no limit no limit no limit 1 no" in rows
    else:
        assert "task network memory storage time GPUs runs here" in rows
        assert any(row.startswith(LONG[:20]) and row.endswith(needs) for row in rows)
        assert "task image download" in rows
        assert "gpu-one debian:12 unknown" in rows
    assert "cannot be run here: 2 tasks: gpus = 1: the sandbox has no graphics processors" in rows


def test_the_same_as_json(run: Run, tasks: Path) -> None:
    ran = run("-p", tasks, "-a", "nop", "-e", "sandbox", "--dry-run", "--json")
    assert ran.code == 3
    document = json.loads(ran.out)
    first, second = document["tasks"][:2]
    assert first == {
        "task": f"organisation/{LONG}",
        "images": [IMAGE],
        "is_built": False,
        "download_bytes": None,
        "network": "public",
        "cpus": None,
        "memory_mb": 2048,
        "storage_mb": 10240,
        "gpus": 0,
        "agent_sec": 900.0,
        "verifier_sec": 600.0,
        "runnable": True,
        "why": None,
    }
    assert (second["runnable"], second["gpus"]) == (False, 1)
    assert second["why"] == "gpus = 1: the sandbox has no graphics processors"
