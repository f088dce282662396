"""Custom metric scripts, run for real with uv."""

import math
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NoReturn

import pytest

from proctor.errors import MetricError
from proctor.reward import script
from proctor.reward.script import run_metric_script

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

ECHO = """
import json, pathlib, sys
source, target = map(pathlib.Path, sys.argv[2::2])
output = {"argv": sys.argv[1::2], "input": source.read_text(), "names": [source.name, target.name]}
target.write_text(json.dumps(output))
"""


@pytest.fixture(autouse=True)
def uv_on_path(monkeypatch: pytest.MonkeyPatch, root: Path) -> None:
    """The uv of the machine, else the one that `make` keeps for itself."""
    places = [
        os.environ["PATH"],
        str(root / ".tools"),
        str(Path(sys.executable).parent),
    ]
    monkeypatch.setenv("PATH", os.pathsep.join(places))
    assert shutil.which("uv"), "uv is needed: `make test` provides it"


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
    metric.write_text("import time; time.sleep(600)")
    monkeypatch.setattr(script, "_LONGEST_SECONDS", 0.5)
    with pytest.raises(MetricError) as failure:
        run_metric_script(metric, [])
    assert str(failure.value) == f"{metric}: still running after 0.5 s; it was stopped"
    assert isinstance(failure.value.__cause__, subprocess.TimeoutExpired)


def test_a_script_has_ten_minutes() -> None:
    assert script._LONGEST_SECONDS == 600


def test_the_script_runs_with_our_python_and_its_output_is_kept_apart(
    metric: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def remember(command: list[str], **options: object) -> NoReturn:
        seen.append((command, options))
        raise subprocess.TimeoutExpired(command, 600)

    seen: list[tuple[list[str], dict[str, object]]] = []
    metric.write_text(ECHO)
    monkeypatch.setattr(subprocess, "run", remember)
    with pytest.raises(MetricError, match="still running after 600 s"):
        run_metric_script(metric, [])
    ((command, options),) = seen
    assert command[:5] == [shutil.which("uv"), "run", "--python", sys.executable, str(metric)]
    assert options == {"capture_output": True, "text": True, "check": False, "timeout": 600}
    assert Path(command[6]).parent.name.startswith("proctor-metric-")
    assert not Path(command[6]).parent.exists()
