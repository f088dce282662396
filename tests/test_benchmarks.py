"""The benchmarks run, report in the agreed shape, and know a missed bar from a met one.

At tiny sizes, and without looking at any time: how fast it is, is for `make bench` to say.
"""

import json
import os
import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from benchmarks.__main__ import choose, main
from benchmarks.assemble import assemble_rows
from benchmarks.audit import audit_rows
from benchmarks.bench import Bench, BenchmarkError, check_same
from benchmarks.changes import changes_rows, clean_room_rows
from benchmarks.cluster import cluster_rows
from benchmarks.commands import score_rows, start_up_rows
from benchmarks.docker_trials import docker_rows
from benchmarks.drawn import NEVER_STARTED, TIMED_OUT, draw_trials
from benchmarks.gateway import gateway_rows
from benchmarks.growth import growth_rows
from benchmarks.images import image_rows
from benchmarks.inspect_import import import_rows
from benchmarks.inspect_search import search_rows
from benchmarks.inspect_show import show_rows
from benchmarks.inspect_summary import summary_rows
from benchmarks.ledger import ledger_rows
from benchmarks.load import load_rows
from benchmarks.publishing import publish_rows
from benchmarks.row import Row, share_of, times_faster
from benchmarks.runner import Sizes, runner_rows
from benchmarks.serving import serving_rows
from benchmarks.subjects import SUBJECTS, Subject
from benchmarks.table import render_heading, render_row
from benchmarks.traces import trace_rows
from benchmarks.viewer_board import board_rows
from benchmarks.viewer_job import view_job_rows
from benchmarks.viewer_memory import view_memory_rows
from benchmarks.viewer_trace import trace_page_rows
from proctor.audit.job import audit_job
from tests.environments.docker.engine import find_obstacle
from tests.environments.sandbox.registries import PROGRAMS
from tests.publish.stores import find_program

KEYS = ["name", "unit", "ours", "other", "other_name", "ratio", "bar", "holds"]

TINY: dict[str, Subject] = {
    "start-up": start_up_rows,
    "score": partial(score_rows, n_tasks=3, n_attempts=2),
    "assemble": partial(assemble_rows, sizes=(10, 20), n_tasks=5),
    "load": partial(load_rows, sizes=(6, 12), judged=12, n_tasks=3),
    "audit": partial(audit_rows, sizes=(60, 120), n_tasks=3),
    "traces": partial(trace_rows, megabytes=1, large=2, small_files=5),
    "run": partial(runner_rows, sizes=Sizes(tasks=2, many=4, long=6, sandboxes=2, starts=1)),
    "changes": partial(changes_rows, few=2, many=3, size=1000),
    "clean-room": partial(clean_room_rows, trials=2),
    "ledger": partial(ledger_rows, verified=20, listed=200),
    "import-harbor": partial(import_rows, trials=5),
    "docker": partial(docker_rows, fewer=1, more=2),
    "search": partial(search_rows, megabytes=1),
    "show": partial(show_rows, megabytes=9),
    "summarise": partial(summary_rows, files=5),
    "view-job": partial(view_job_rows, n_tasks=3, n_attempts=2, pause=0),
    "view-memory": partial(view_memory_rows, records=200),
    "view-trace": partial(trace_page_rows, steps=500),
    "board": partial(board_rows, records=500),
    "gateway": partial(gateway_rows, requests=3, chunks=5, streams=4, every=0.001),
    "growth": partial(growth_rows, small=500, large=1000),
    "serve": partial(serving_rows, batches=1, trials=2),
    "ray": partial(cluster_rows, sizes=(2, 4)),
    "publish": partial(publish_rows, trials=5),
    "images": partial(image_rows, layers=2, files=5, starts=1),
}


VIEWED = {
    "view-trace-50k": "<= 3",
    "view-trace-50k-server": None,
    "view-trace-50k-jump": None,
    "view-trace-50k-bytes": None,
}
"""Rows that need Chromium."""

IMAGES = {
    "image-pull": ">= 0.7",
    "image-pull-memory": "<= 1",
    "image-unpack": ">= 0.7",
    "image-start-10": "<= 1.3",
}
"""Rows that need root, a registry, skopeo and umoci."""

BARS = {
    "start-up": "<= 0.25",
    "score-6": ">= 5",
    "score-6-viewer": None,
    "assemble-10": None,
    "assemble-20": ">= 10",
    "assemble-growth": "<= 2",
    "load-6": None,
    "load-6-memory": None,
    "load-12": ">= 3",
    "load-12-memory": "<= 0.33",
    "load-growth": "<= 2",
    "audit-60": None,
    "audit-120": "<= 6",
    "audit-growth": "<= 2",
    "append-durable": ">= 0.7",
    "append-batch": ">= 0.7",
    "verify-fast": ">= 0.6",
    "verify": ">= 0.6",
    "verify-memory": "<= 1.5",
    "list-200": "<= 3",
    "list-200-whole": None,
    "find-id": "<= 3",
    "find-id-whole": None,
    "list-peer": ">= 20",
    "gateway-latency": "<= 1.5",
    "gateway-latency-added": "<= 1",
    "gateway-chunk-added": "<= 1",
    "gateway-stream-4": "<= 1.5",
}
"""Every row of the quick subjects at these sizes, with the bar it has to clear."""
SLOW_BARS = {
    "trace-read": ">= 0.75",
    "trace-read-peer": ">= 5",
    "trace-1gb-memory": "<= 1",
    "trace-10k-files": ">= 3",
    "import-harbor-5": "<= 4",
    "index": "<= 1",
    "index-size": None,
    "index-memory": None,
    "search-1gb-rare": "<= 2",
    "search-1gb-common": "<= 2",
    "search-1gb-phrase": "<= 2",
    "search-1gb-phrase-common": None,
    "search-1gb-two": "<= 2",
    "search-1gb-filtered": "<= 2",
    "search-1gb-model": "<= 2",
    "search-1gb-prefix": "<= 2",
    "search-1gb-prefix-common": None,
    "show-step-1gb": "<= 3",
    "show-step-1gb-memory": "<= 1",
    "show-sealed-1gb-first": None,
    "show-sealed-1gb": "<= 3",
    "show-sealed-1gb-memory": "<= 1",
    "summarise-10k": "<= 4",
    "board-500": "<= 4",
    "proof-growth": "<= 1.5",
    "proof-growth-command": "<= 1.5",
    "withhold-growth": "<= 2",
    "board-1k": "<= 1",
    "board-1k-memory": "<= 1",
    **({} if find_program("weed") is None else {"publish": ">= 0.5"}),
    "run-fixed": "<= 0.2",
    "run-null-4": "<= 0.5",
    "run-null-6": "<= 2",
    "run-null-6-memory": "<= 2",
    "resume-6": ">= 20",
    "run-sandbox": ">= 1",
    "sandbox-start": "<= 3",
    "changes-2": "<= 1",
    "changes-3": "<= 1.5",
    "changes-3-bare": None,
    "clean-room": "<= 3",
    **({} if find_obstacle() else {"docker-trials": ">= 0.5"}),
    "view-job-6-first": None,
    "view-job-6-checked": None,
    "view-job-6": ">= 10",
    "view-memory": "<= 1",
    **({} if shutil.which("chromium") is None else VIEWED),
    **(IMAGES if os.geteuid() == 0 and all(map(shutil.which, PROGRAMS)) else {}),
    "serve-batch": ">= 0.7",
    "serve-trial": "<= 2",
    "ray-60s": "<= 0.001",
    "ray-cancel": "<= 1",
}
"""The rows of the others, which soak tries: they write much, or start an engine or a browser."""
SLOW = (
    *(
        "traces",
        "run",
        "changes",
        "clean-room",
        "import-harbor",
        "docker",
        "search",
        "show",
        "summarise",
    ),
    *(
        "view-job",
        "view-memory",
        "view-trace",
        "board",
        "growth",
        "ray",
        "serve",
        "publish",
        "images",
    ),
)


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("build")
    quick = {name: subject for name, subject in TINY.items() if name not in SLOW}
    assert main([], quick, directory, rounds=1) in (0, 1)
    return directory


def test_every_subject_is_tried_here() -> None:
    assert list(TINY) == list(SUBJECTS)


def test_bench_json_lists_rows_of_one_shape(build: Path) -> None:
    rows = json.loads((build / "bench.json").read_text(encoding="utf-8"))
    assert [list(row) for row in rows] == [KEYS] * len(rows)
    for row in rows:
        assert row["ours"] > 0
        assert row["other"] > 0
        assert row["unit"] in ("s", "MB")
        assert isinstance(row["holds"], bool)
        turned = row["other"] / row["ours"], row["ours"] / row["other"]
        assert row["ratio"] in turned


def test_the_agreed_names_are_there_with_their_bars(build: Path) -> None:
    rows = json.loads((build / "bench.json").read_text(encoding="utf-8"))
    assert {row["name"]: row["bar"] for row in rows} == BARS


@pytest.mark.soak
def test_the_slow_ones_too_have_their_names_and_bars(tmp_path: Path) -> None:
    slow = {name: TINY[name] for name in SLOW}
    assert main([], slow, tmp_path, rounds=1) in (0, 1)
    rows = json.loads((tmp_path / "bench.json").read_text(encoding="utf-8"))
    assert {row["name"]: row["bar"] for row in rows} == SLOW_BARS


def test_written_jobs_are_kept_for_the_next_run(build: Path) -> None:
    kept = sorted(path.name for path in (build / "bench-data").glob("jobs-*/*"))
    jobs = ["3x2", "3x20", "3x4", "3x40"]
    assert kept == sorted([*jobs, *(f"{job}.json" for job in jobs)])


def test_the_numbers_of_a_written_job_follow_from_its_evidence(build: Path) -> None:
    (job,) = (build / "bench-data").glob("*/3x40")
    audit = audit_job(str(job))
    assert audit.follows, audit.differences
    exceptions = {trial.trial.exception for trial in audit.job.trials}
    assert exceptions == {None, TIMED_OUT, NEVER_STARTED}


@pytest.mark.parametrize(
    ("row", "ratio", "holds"),
    [
        (times_faster("a", (1.0, 20.0), "o", at_least=20), 20.0, True),
        (times_faster("a", (1.0, 19.9), "o", at_least=20), 19.9, False),
        (times_faster("a", (2.0, 1.0), "o"), 0.5, True),
        (share_of("a", (33.0, 100.0), "o", at_most=0.33), 0.33, True),
        (share_of("a", (34.0, 100.0), "o", at_most=0.33, unit="MB"), 0.34, False),
        (share_of("a", (300.0, 100.0), "o"), 3.0, True),
    ],
)
def test_a_bar_is_held_in_its_own_direction(row: Row, ratio: float, holds: bool) -> None:
    assert (row.ratio, row.holds) == (ratio, holds)


def rows_of(row: Row, bench: Bench) -> Iterator[Row]:
    yield row


@pytest.mark.parametrize(("ours", "code"), [(1.0, 0), (9.0, 1)])
def test_a_missed_bar_shows_in_the_exit_code(tmp_path: Path, ours: float, code: int) -> None:
    row = times_faster("x", (ours, 10.0), "o", at_least=5)
    assert main([], {"x": partial(rows_of, row)}, tmp_path) == code


def test_a_line_fits_80_columns() -> None:
    row = share_of("load-10k-memory", (1234.5, 98765.4), "o", at_most=0.33, unit="MB")
    assert [len(line) <= 80 for line in (render_heading(), render_row(row))] == [True, True]


def test_a_row_or_a_subject_can_be_asked_for_by_name() -> None:
    assert choose(["load-10k"], SUBJECTS) == ["load"]
    assert choose(["load", "score-445"], SUBJECTS) == ["score", "load"]
    with pytest.raises(BenchmarkError, match="lod: no such benchmark; expected one of start-up"):
        choose(["lod"], SUBJECTS)


def test_programs_that_differ_are_not_compared() -> None:
    with pytest.raises(BenchmarkError, match="stats: our result is 1, theirs 2"):
        check_same("stats", 1, 2)


def test_figures_are_taken_in_turns_and_the_least_counts() -> None:
    taken = iter([3.0, 30.0, 1.0, 20.0])
    bench = Bench(Path("unused"), rounds=2)
    assert bench.least(lambda: next(taken), lambda: next(taken)) == (1.0, 20.0)


def test_drawn_trials_are_the_same_every_time() -> None:
    assert list(draw_trials(3, 2)) == list(draw_trials(3, 2))
