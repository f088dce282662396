"""Fixtures of the comparison: harbor itself, and the jobs that more than one test looks at."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.parity.beside import AS_LISTED, run_ours
from tests.parity.facts import TASKS
from tests.parity.shared import made_once
from tests.parity.theirs import Harbor, started

SETS = ("binary", "rewards", "multistep", "partial", "errors", "my__set", "nan")


@pytest.fixture(scope="session")
def harbor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Harbor]:
    """The real harbor 0.13.1."""
    with started(tmp_path_factory.mktemp("harbor")) as program:
        yield program


@pytest.fixture(scope="session")
def all_tasks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A job config: oracle and nop at every task of every set, and at one task by itself."""
    lines = ["n_concurrent_trials: 6", "quiet: true", "agents: [{name: oracle}, {name: nop}]"]
    lines += ["tasks:", f"  - path: {TASKS / 'binary' / 'pass-simple'}", "datasets:"]
    lines += [f"  - path: {TASKS / each}" for each in SETS]
    path = tmp_path_factory.mktemp("config") / "job.yaml"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def our_job(all_tasks: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """That job as proctor ran it; not to be changed."""

    def make(place: Path) -> None:
        ours = all_tasks.with_name("ours.yaml")
        ours.write_text(all_tasks.read_text() + AS_LISTED, encoding="utf-8")
        run_ours("-c", ours, jobs=place)

    return made_once(tmp_path_factory, "ours", make) / "job"
