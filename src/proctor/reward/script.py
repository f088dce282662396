"""Custom metric scripts, run as harbor runs them: `uv run --python OURS metric.py -i IN -o OUT`.

A script is the task author's code, so it runs only if the user asked for it on the command line.
"""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from proctor.errors import MetricError
from proctor.reward.number import Rewards

_LONGEST_SECONDS = 600


def run_metric_script(script: Path, rewards: Sequence[Rewards | None]) -> dict[str, object]:
    """Run a metric script on the rewards of each trial, passed as JSON lines (`null` for none).

    Raises:
        MetricError: the script or uv is missing, the script failed, or its output is not a JSON
        object.
    """
    if not script.is_file():
        raise MetricError(f"{script}: no such metric script; expected the file the job ran with")
    uv = shutil.which("uv")
    if uv is None:
        raise MetricError(
            f"{script}: uv is not on PATH; metric scripts are run with it (pip install uv)"
        )
    with tempfile.TemporaryDirectory(prefix="proctor-metric-") as scratch:
        source, target = Path(scratch, "rewards.jsonl"), Path(scratch, "metric.json")
        source.write_text("".join(f"{json.dumps(item)}\n" for item in rewards), encoding="utf-8")
        command = [uv, "run", "--python", sys.executable, str(script)]
        _run([*command, "-i", str(source), "-o", str(target)], script)
        return _load_output(target, script)


def _run(command: list[str], script: Path) -> None:
    # A separate session, so that the processes uv starts can be killed with it.
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as running:
        try:
            _, complaint = running.communicate(timeout=_LONGEST_SECONDS)
        except subprocess.TimeoutExpired as error:
            _stop(running)
            message = f"{script}: still running after {_LONGEST_SECONDS} s; it was stopped"
            raise MetricError(message) from error
        except BaseException:
            _stop(running)
            raise
    if running.returncode != 0:
        raise MetricError(f"Failed to compute custom metric: {complaint}")


def _stop(running: subprocess.Popen[str]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(running.pid, signal.SIGKILL)
    running.wait()


def _load_output(target: Path, script: Path) -> dict[str, object]:
    try:
        output: object = json.loads(target.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise MetricError(f"{script}: left no readable JSON in its -o file: {error}") from error
    if not isinstance(output, dict):
        found = type(output).__name__
        raise MetricError(f"{script}: wrote a JSON {found}; expected an object of numbers")
    return output
