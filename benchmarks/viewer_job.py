"""The page of a large job, beside the request that harbor's viewer makes for its own.

Both are real servers on loopback, over the same directory. Harbor answers with a summary of each
task; our page has that and a link to every trial besides. Harbor reads all trials at each request;
ours reads them once, and looks at most every few seconds whether any is another one. The first
answer of a server that was just started is shown beside it: there nothing is known to either.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path

from benchmarks.bench import HARBOR, Bench, check_same
from benchmarks.job_data import load_job_data
from benchmarks.row import Row, times_faster
from benchmarks.viewers import Viewer, our_viewer, their_viewer


def view_job_rows(bench: Bench, *, n_tasks: int = 80, n_attempts: int = 50) -> Iterator[Row]:
    """The first answer, and the least of several."""
    job = load_job_data(bench, n_tasks, n_attempts).directory
    name = f"view-job-{n_tasks * n_attempts}"
    ours_path, theirs_path = f"/experiments/{job.name}", f"/api/jobs/{job.name}/tasks"
    first = bench.least(
        lambda: _first(job, ours_path, is_ours=True),
        lambda: _first(job.parent, theirs_path, is_ours=False),
        rounds=3,
    )
    yield times_faster(f"{name}-first", first, f"{HARBOR}, first answer")
    with our_viewer(job) as ours, their_viewer(job.parent) as theirs:
        _check(ours, ours_path, theirs, theirs_path)
        figures = bench.least(lambda: ours.seconds(ours_path), lambda: theirs.seconds(theirs_path))
    yield times_faster(name, figures, f"{HARBOR}, /tasks", at_least=10)


def _first(thing: Path, path: str, *, is_ours: bool) -> float:
    with our_viewer(thing) if is_ours else their_viewer(thing) as viewer:
        return viewer.seconds(path)


def _check(ours: Viewer, ours_path: str, theirs: Viewer, theirs_path: str) -> None:
    """See that both tell of the same tasks."""
    page = ours.ask(ours_path).decode()
    rows = re.findall(r'<tr><th scope="row">([^<]+)</th>', page)
    tasks = json.loads(theirs.ask(theirs_path))["items"]
    check_same("the tasks of the job", sorted(rows), sorted(task["task_name"] for task in tasks))
