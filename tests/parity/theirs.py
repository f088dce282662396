"""The real harbor as a program. Its imports take longer than a small job, so they happen once.

    python -m tests.parity.theirs        waits for commands on stdin, one JSON list a line

Every command is run by a fork of its own: nothing that one job leaves in memory meets another.
"""

import contextlib
import importlib
import json
import os
import subprocess
import sys
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.cli.programs import ROOT, environment

BUILDING = "tests.parity.their_environment:BuildingEnvironment"
"""The environment in which harbor runs the suite's tasks."""
NULL = "benchmarks.theirs_environments:NullEnvironment"
"""One in which nothing is run and every reward is 1."""

_NEEDED = (
    "harbor.job",
    "harbor.trial.single_step",
    "harbor.trial.multi_step",
    "harbor.verifier.verifier",
    "harbor.agents.factory",
    "harbor.environments.factory",
    "tests.parity.their_environment",
)


@dataclass(frozen=True)
class HarborRan:
    """How a command of harbor ended."""

    code: int
    said: str
    """Both streams."""


class Harbor:
    """A process that has imported harbor and runs its commands."""

    def __init__(self, process: subprocess.Popen[str], scratch: Path) -> None:
        self._process = process
        self._output = scratch / f"harbor-{process.pid}.txt"

    def __call__(self, *arguments: object, cwd: Path | None = None) -> HarborRan:
        """Run a command to its end: `harbor("job", "resume", "-p", job)`."""
        order = {
            "argv": [str(argument) for argument in arguments],
            "cwd": str(cwd or Path.cwd()),
            "output": str(self._output),
        }
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        print(json.dumps(order), file=stdin, flush=True)
        return HarborRan(int(stdout.readline()), self._output.read_text(encoding="utf-8"))


def variables(first: Path | None = None) -> dict[str, str]:
    """The environment of harbor: it finds the suite's classes, and asks no network for prices.

    Modules in the directory `first`, such as another harbor, come before those that are installed.
    """
    found = environment(LITELLM_LOCAL_MODEL_COST_MAP="True", HARBOR_TELEMETRY="off")
    places = [str(first)] if first else []
    found["PYTHONPATH"] = os.pathsep.join([*places, str(ROOT), found["PYTHONPATH"]])
    return found


@contextlib.contextmanager
def started(scratch: Path) -> Iterator[Harbor]:
    """The real harbor, ready to run commands."""
    command = [sys.executable, "-m", "tests.parity.theirs"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=variables()
    ) as process:
        yield Harbor(process, scratch)


def main() -> None:
    """Run what stdin says until it ends; print the exit code of each command."""
    app = importlib.import_module("harbor.cli.main").app
    for name in _NEEDED:
        importlib.import_module(name)
    for line in sys.stdin:
        order = json.loads(line)
        child = os.fork()
        if child == 0:
            _become(app, order["argv"], order["cwd"], order["output"])
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)  # noqa: T201 - the answer
    # Nothing of what harbor's libraries do at their end matters, and it takes seconds.
    os._exit(0)


def _become(app: object, argv: list[str], cwd: str, output: str) -> None:
    """Be the command; never returns."""
    code = 1
    try:
        descriptor = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        nothing = os.open(os.devnull, os.O_RDONLY)
        for old, new in ((nothing, 0), (descriptor, 1), (descriptor, 2)):
            os.dup2(old, new)
        os.chdir(cwd)
        sys.argv = ["harbor", *argv]
        app()  # type: ignore[operator]  # all of harbor is Any
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:  # noqa: BLE001 - what a program does with any exception: tell, and fail
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    main()
