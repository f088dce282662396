"""`proctor init`: creates a task, an agent and a ledger to start from."""

import os
import shlex
import shutil
from collections.abc import Mapping
from importlib import resources
from pathlib import Path

import click

from proctor.cli.options import PATH
from proctor.cli.output import check_new, json_option, print_json, print_line, write_new_trees
from proctor.ledger.keys import default_key_path, find_key
from proctor.ledger.place import ledger_directory, open_or_create
from proctor.task.scaffold import render_example

_TASK = "sum-numbers"
_COMMAND = "python3 /installed-agent/agent.py"

_AGENT = '''\
#!/usr/bin/env python3
"""An agent to start from: it reads the instruction and runs shell commands until it is done.

proctor starts it inside the task's environment, in the task's working directory, with the
instruction on its standard input. What it prints is kept with the trial, and so is its trace:
the steps that `proctor show` and `proctor trace summary` list.
"""

import subprocess
import sys

from trajectory_writer import TrajectoryWriter

PLAN = [
    "cat numbers.txt",
    "awk '{ sum += $1 } END { print sum }' numbers.txt > answer.txt",
    "cat answer.txt",
]


def choose_command(instruction, history):
    """Return the next shell command, or None when the work is done.

    Ask your model here: `history` has every command so far, with its exit code and output.
    """
    return PLAN[len(history)] if len(history) < len(PLAN) else None


def main():
    """Run commands until there is none left."""
    instruction = sys.stdin.read()
    history = []
    with TrajectoryWriter() as trace:
        trace.user(instruction)
        while (command := choose_command(instruction, history)) is not None:
            print(f"$ {command}", flush=True)
            trace.new_step()
            trace.tool_call("bash", command)
            ran = subprocess.run(
                command, shell=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
            )
            print(ran.stdout, end="", flush=True)
            trace.tool_result("bash", ran.stdout, exit_code=ran.returncode)
            history.append((command, ran.returncode, ran.stdout))


if __name__ == "__main__":
    main()
'''


@click.command("init")
@click.argument("directory", metavar="[DIR]", type=PATH, default=".")
@json_option
def command(directory: str, as_json: bool) -> int:
    """Create a task, an agent and a ledger to start from.

    Writes tasks/, agent/ and ledger/ into DIR (default: the current directory), and never
    overwrites anything. The ledger is signed by your key, which is created if it is missing. If
    PROCTOR_LEDGER names a ledger, that one is used and none is created.

    Example: proctor init my-benchmark
    """
    place = Path(directory)
    ledger = None if os.environ.get("PROCTOR_LEDGER") else place / ledger_directory(None, {})
    writer = resources.files("proctor.traces").joinpath("writer.py").read_text(encoding="utf-8")
    trees = {
        place / "tasks": {f"{_TASK}/{path}": text for path, text in render_example().items()},
        place / "agent": {"agent.py": _AGENT, "trajectory_writer.py": writer},
    }
    _write(trees, ledger)
    facts: dict[str, object] = {
        "task": str(place / "tasks" / _TASK),
        "agent": str(place / "agent" / "agent.py"),
        "ledger": str(ledger or os.environ["PROCTOR_LEDGER"]),
        "is_new_ledger": ledger is not None,
    }
    next_commands = _list_next(directory)
    if as_json:
        print_json(facts | {"next_commands": next_commands})
    else:
        _print(facts, next_commands)
    return 0


def _write(trees: Mapping[Path, Mapping[str, str]], ledger: Path | None) -> None:
    if ledger is None:
        write_new_trees(trees)
        return
    check_new(ledger)
    # Before anything is written: without a usable key there is no ledger.
    key = find_key(None, os.environ)
    write_new_trees(trees)
    try:
        open_or_create(ledger, key)[0].close()
    except BaseException:
        for directory in (*trees, ledger):
            shutil.rmtree(directory, ignore_errors=True)
        raise


def _list_next(directory: str) -> list[str]:
    enter = [] if directory == "." else [f"cd {shlex.quote(directory)}"]
    return [
        *enter,
        f"proctor task try tasks/{_TASK}",
        f"proctor run -p tasks --agent-tree agent --command '{_COMMAND}'",
        "proctor view",
    ]


def _print(facts: Mapping[str, object], next_commands: list[str]) -> None:
    made = f"signed by the key {default_key_path(os.environ)}"
    what = made if facts["is_new_ledger"] else "as PROCTOR_LEDGER says"
    print_line(f"task    {facts['task']}: an instruction, an environment, a solution and tests")
    print_line(f"agent   {facts['agent']}: reads the instruction, runs shell commands")
    print_line(f"ledger  {facts['ledger']}: every trial is sealed into it; {what}")
    print_line()
    print_line("Next: check the task, run the agent on it, and look at the result")
    for line in next_commands:
        print_line(f"  {line}")
