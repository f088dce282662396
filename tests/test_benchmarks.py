"""The benchmarks run, report in the agreed shape, and know a missed bar from a met one.

At tiny sizes, and without looking at any time: how fast it is, is for `make bench` to say.
"""

import json
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
from benchmarks.growth import large_board_rows, proof_rows, withhold_rows
from benchmarks.images import image_start_rows, pull_rows, unpack_rows
from benchmarks.inspect_import import import_rows
from benchmarks.inspect_search import search_rows
from benchmarks.inspect_show import show_rows
from benchmarks.inspect_summary import summary_rows
from benchmarks.ledger import append_rows, list_rows, verify_rows
from benchmarks.load import load_rows
from benchmarks.publishing import publish_rows
from benchmarks.row import NotMeasured, Row, share_of, times_faster
from benchmarks.runner import Sizes, runner_rows, sandbox_rows
from benchmarks.sandbox_start import start_rows
from benchmarks.serving import serve_batch_rows, serve_trial_rows
from benchmarks.subjects import SUBJECTS, Subject
from benchmarks.table import render_heading, render_row
from benchmarks.traces import trace_rows
from benchmarks.viewer_board import board_rows
from benchmarks.viewer_job import view_job_rows
from benchmarks.viewer_memory import view_memory_rows
from benchmarks.viewer_trace import trace_page_rows
from proctor.audit.job import audit_job

KEYS = ["name", "unit", "ours", "other", "other_name", "ratio", "bar", "holds"]

TINY: dict[str, Subject] = {
    "start-up": start_up_rows,
    "score": partial(score_rows, n_tasks=3, n_attempts=2),
    "assemble": partial(assemble_rows, sizes=(10, 20), n_tasks=5),
    "load": partial(load_rows, sizes=(6, 12), judged=12, n_tasks=3),
    "audit": partial(audit_rows, sizes=(60, 120), n_tasks=3),
    "traces": partial(trace_rows, megabytes=1, large=2, small_files=5),
    "run": partial(runner_rows, sizes=Sizes(tasks=2, many=4, long=6)),
    "run-sandbox": partial(sandbox_rows, trials=2),
    "sandbox-start": partial(start_rows, starts=1),
    "changes": partial(changes_rows, few=2, many=3, size=1000),
    "clean-room": partial(clean_room_rows, trials=2),
    "append": append_rows,
    "verify": partial(verify_rows, count=20),
    "list": partial(list_rows, count=200),
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
    "proof-growth": partial(proof_rows, small=500, large=1000),
    "withhold-growth": partial(withhold_rows, small=500, large=1000),
    "board-1m": partial(large_board_rows, trials=1000),
    "serve-batch": partial(serve_batch_rows, batches=1),
    "serve-trial": partial(serve_trial_rows, trials=2),
    "ray": partial(cluster_rows, sizes=(2, 4)),
    "publish": partial(publish_rows, trials=5),
    "image-pull": partial(pull_rows, layers=2, files=5),
    "image-unpack": partial(unpack_rows, layers=2, files=5),
    "image-start": partial(image_start_rows, starts=1),
}


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
    "publish": ">= 0.5",
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
    "docker-trials": ">= 0.5",
    "view-job-6-first": None,
    "view-job-6-checked": None,
    "view-job-6": ">= 10",
    "view-memory": "<= 1",
    "view-trace-50k": "<= 3",
    "view-trace-50k-server": None,
    "view-trace-50k-jump": None,
    "view-trace-50k-bytes": None,
    "image-pull": ">= 0.7",
    "image-pull-memory": "<= 1",
    "image-unpack": ">= 0.7",
    "image-start-10": "<= 1.3",
    "serve-batch": ">= 0.7",
    "serve-trial": "<= 2",
    "ray-60s": "<= 0.001",
    "ray-cancel": "<= 1",
}
"""The rows of the others, which soak tries: they write much, or start an engine or a browser."""
QUICK = ("start-up", "score", "assemble", "load", "audit", "append", "verify", "list", "gateway")


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("build")
    quick = {name: subject for name, subject in TINY.items() if name in QUICK}
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
    slow = {name: subject for name, subject in TINY.items() if name not in QUICK}
    assert main([], slow, tmp_path, rounds=1) in (0, 1)
    rows = json.loads((tmp_path / "bench.json").read_text(encoding="utf-8"))
    missing = [row for row in rows if "not_measured" in row]
    measured = {row["name"]: row["bar"] for row in rows if row not in missing}
    # What this machine lacks: an engine, a browser, a store, a registry's programs, bubblewrap.
    lacking = ("docker", "view-trace", "publish", "image-", "sandbox-start")
    assert [row for row in missing if not row["name"].startswith(lacking)] == []
    unmeasured = tuple(row["name"] for row in missing)
    assert measured == {
        name: bar for name, bar in SLOW_BARS.items() if not name.startswith(unmeasured or "\n")
    }


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


def failing(bench: Bench) -> Iterator[Row]:
    yield times_faster("b", (1.0, 10.0), "o")
    raise BenchmarkError("no bubblewrap here")


def written(build: Path) -> list[dict[str, object]]:
    found: list[dict[str, object]] = json.loads((build / "bench.json").read_text(encoding="utf-8"))
    return found


def test_what_cannot_be_measured_says_why_and_the_others_go_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def unforeseen(_: Bench) -> Iterator[Row]:
        yield from [share_of("a", (float(Path("/proc/x").read_text()), 1.0), "o")]

    good = partial(rows_of, times_faster("c", (1.0, 10.0), "o"))
    assert main([], {"a": unforeseen, "b": failing, "c": good}, tmp_path) == 1
    a, measured, b, c = written(tmp_path)
    assert a == {
        "name": "a",
        "not_measured": "FileNotFoundError: [Errno 2] No such file or directory: '/proc/x'",
        "holds": False,
    }
    assert (measured["name"], b["not_measured"]) == ("b", "the rows after b: no bubblewrap here")
    assert c["ratio"] == 10
    assert f"{'b':<20} not measured: the rows after b: no" in capsys.readouterr().out


def test_an_interrupt_leaves_the_rows_so_far(tmp_path: Path) -> None:
    def interrupted(_: Bench) -> Iterator[Row]:
        yield times_faster("a", (1.0, 10.0), "o")
        raise KeyboardInterrupt

    assert main([], {"a": interrupted}, tmp_path) == 130
    assert [row["name"] for row in written(tmp_path)] == ["a"]


def test_input_that_was_left_unfinished_is_made_anew(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "half").touch()
    bench = Bench(tmp_path)
    assert list(bench.kept("data", lambda _: None).iterdir()) == [tmp_path / "data" / "whole"]
    assert bench.kept("data", lambda _: pytest.fail("it is there")) == tmp_path / "data"


def test_a_line_fits_80_columns() -> None:
    row = share_of("load-10k-memory", (1234.5, 98765.4), "o", at_most=0.33, unit="MB")
    without = NotMeasured("load-10k-memory", "no room " * 30)
    lines = f"{render_heading()}\n{render_row(row)}\n{render_row(without)}".splitlines()
    assert max(map(len, lines)) <= 80


def test_a_row_or_a_subject_can_be_asked_for_by_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert choose(["load-10k"], SUBJECTS) == ["load"]
    assert choose(["load", "score-445"], SUBJECTS) == ["score", "load"]
    assert choose(["run-sandbox"], SUBJECTS) == ["run-sandbox"]
    assert main(["lod"], SUBJECTS, tmp_path) == 2
    assert "lod: no such benchmark; expected one of start-up" in capsys.readouterr().err


def test_programs_that_differ_are_not_compared() -> None:
    with pytest.raises(BenchmarkError, match="stats: our result is 1, theirs 2"):
        check_same("stats", 1, 2)


def test_figures_are_taken_in_turns_and_the_least_counts() -> None:
    taken = iter([3.0, 30.0, 1.0, 20.0])
    bench = Bench(Path("unused"), rounds=2)
    assert bench.least(lambda: next(taken), lambda: next(taken)) == (1.0, 20.0)


def test_drawn_trials_are_the_same_every_time() -> None:
    assert list(draw_trials(3, 2)) == list(draw_trials(3, 2))
