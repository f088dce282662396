"""Custom metric scripts, run for real with uv."""

import fcntl
import math
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from proctor.errors import MetricError
from proctor.reward import script
from proctor.reward.script import run_metric_script

pytestmark = pytest.mark.usefixtures("uv_on_path")

MEDIAN = """
import argparse, json, pathlib, statistics, sys
parser = argparse.ArgumentParser()
parser.add_argument("-i")
parser.add_argument("-o")
options = parser.parse_args()
lines = [json.loads(line) for line in pathlib.Path(options.i).read_text().splitlines()]
values = [line["reward"] if line else 0 for line in lines]
print("noise on stdout")
output = {"median": statistics.median(values), "n": len(values), "python": sys.version_info[:2]}
pathlib.Path(options.o).write_text(json.dumps(output))
"""

WAITING = """
import fcntl, time
file = open({alive!r}, "w")
fcntl.flock(file, fcntl.LOCK_EX)
time.sleep(600)
"""

ECHO = """
import json, pathlib, sys
source, target = map(pathlib.Path, sys.argv[2::2])
output = {"argv": sys.argv[1::2], "input": source.read_text(), "names": [source.name, target.name]}
target.write_text(json.dumps(output))
"""


def lives(alive: Path) -> bool:
    """Whether a WAITING script still holds the lock it took; uv, which started it, is not asked."""
    with alive.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def ends(alive: Path) -> bool:
    """Whether the script is gone, or goes soon: killed together, uv may be gone before it."""
    for _ in range(200):
        if not lives(alive):
            return True
        time.sleep(0.05)
    return False


@pytest.fixture
def metric(tmp_path: Path) -> Path:
    return tmp_path / "metric.py"


def test_a_script_makes_a_metric_of_one_line_per_trial(metric: Path) -> None:
    metric.write_text(MEDIAN)
    output = run_metric_script(metric, [{"reward": 1}, None, {"reward": 0.5}])
    assert output == {"median": 0.5, "n": 3, "python": [*sys.version_info[:2]]}


def test_a_script_is_called_as_harbor_calls_it(metric: Path) -> None:
    metric.write_text(ECHO)
    output = run_metric_script(metric, [{"a": 1, "b": math.nan}, None, {}])
    assert output == {
        "argv": ["-i", "-o"],
        "input": '{"a": 1, "b": NaN}\nnull\n{}\n',
        "names": ["rewards.jsonl", "metric.json"],
    }


def test_a_script_may_lie_in_a_folder_with_blanks(tmp_path: Path) -> None:
    metric = tmp_path / "a folder" / "my metric.py"
    metric.parent.mkdir()
    metric.write_text(ECHO)
    assert run_metric_script(metric, [])["input"] == ""


def test_a_failing_script_is_quoted_in_harbors_words(metric: Path) -> None:
    metric.write_text("import sys; sys.exit('no such key')")
    with pytest.raises(MetricError) as failure:
        run_metric_script(metric, [None])
    message = str(failure.value)
    assert message.startswith("Failed to compute custom metric: ")
    assert message.endswith("no such key\n")


UNREADABLE = "left no readable JSON in its -o file"
BAD_OUTPUTS = [
    ("pass", f"{UNREADABLE}: [Errno 2] No such file or directory: "),
    ("open(sys.argv[4], 'w').write('{')", f"{UNREADABLE}: Expecting property"),
    ("open(sys.argv[4], 'wb').write(b'\\xff')", f"{UNREADABLE}: 'utf-8' codec"),
    ("open(sys.argv[4], 'w').write('[1]')", "wrote a JSON list; expected an object of numbers"),
    ("open(sys.argv[4], 'w').write('0.5')", "wrote a JSON float; expected an object of numbers"),
]


@pytest.mark.parametrize(("code", "problem"), BAD_OUTPUTS)
def test_output_that_is_no_json_object_is_named(metric: Path, code: str, problem: str) -> None:
    metric.write_text(f"import sys\n{code}\n")
    with pytest.raises(MetricError) as failure:
        run_metric_script(metric, [{"reward": 1}])
    assert str(failure.value).startswith(f"{metric}: {problem}")


def test_unreadable_output_says_where_the_trouble_came_from(metric: Path) -> None:
    metric.write_text("pass")
    with pytest.raises(MetricError) as failure:
        run_metric_script(metric, [])
    assert isinstance(failure.value.__cause__, FileNotFoundError)


def test_a_missing_script_is_named(metric: Path) -> None:
    for missing in (metric, metric.parent):
        with pytest.raises(MetricError) as failure:
            run_metric_script(missing, [])
        assert str(failure.value) == (
            f"{missing}: no such metric script; expected the file the job ran with"
        )


def test_a_machine_without_uv_is_told_how_to_get_it(
    metric: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    metric.write_text(MEDIAN)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MetricError) as failure:
        run_metric_script(metric, [])
    assert str(failure.value) == (
        f"{metric}: uv is not on PATH; metric scripts are run with it (pip install uv)"
    )


def test_a_script_that_does_not_end_is_stopped(
    metric: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    alive = metric.with_suffix(".alive")
    metric.write_text(WAITING.format(alive=str(alive)))
    monkeypatch.setattr(script, "_LONGEST_SECONDS", 5.0)
    with pytest.raises(MetricError) as failure:
        run_metric_script(metric, [])
    assert str(failure.value) == f"{metric}: still running after 5.0 s; it was stopped"
    assert isinstance(failure.value.__cause__, subprocess.TimeoutExpired)
    assert ends(alive)


def test_a_script_has_ten_minutes() -> None:
    assert script._LONGEST_SECONDS == 600


def test_the_script_runs_with_our_python(
    metric: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A uv that writes down how it was called, and runs the script as the real one does."""
    called = tmp_path / "called"
    uv = tmp_path / "tools" / "uv"
    uv.parent.mkdir()
    uv.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" > {called}\nshift 2\nexec "$@"\n')
    uv.chmod(0o755)
    monkeypatch.setenv("PATH", os.pathsep.join([str(uv.parent), os.environ["PATH"]]))
    metric.write_text(ECHO)
    run_metric_script(metric, [])
    words = called.read_text().splitlines()
    assert words[:4] == ["run", "--python", sys.executable, str(metric)]
    assert words[4::2] == ["-i", "-o"]
    scratch = Path(words[5]).parent
    assert scratch.name.startswith("proctor-metric-")
    assert not scratch.exists()


def test_a_script_is_stopped_when_the_user_interrupts(metric: Path) -> None:
    alive = metric.with_suffix(".alive")
    metric.write_text(WAITING.format(alive=str(alive)))

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 5.0)
    try:
        with pytest.raises(KeyboardInterrupt):
            run_metric_script(metric, [])
    finally:
        signal.signal(signal.SIGALRM, before)
    assert ends(alive)
