"""The files of a new task: it passes with its own solution, and fails if nothing is done.

    render_task(name)    the files of a task of this name, by their paths
    render_example()     the files of an example with data to work on

Writes nothing.
"""

import re
from collections.abc import Mapping

from proctor.errors import TaskError

_PART = r"[A-Za-z0-9](?!.*\.\.)[A-Za-z0-9._-]*"
_NAME = re.compile(rf"({_PART}/)?{_PART}")

_CONFIG = """\
# {title}. Every key is described in docs/reference/task-toml.md of proctor.
schema_version = "1.3"
{package}
[agent]
timeout_sec = 600.0            # seconds that the agent has

[verifier]
timeout_sec = 120.0            # seconds that tests/test.sh has

[environment]
network_mode = "no-network"    # "public" if the task needs the internet; models do not
# cpus = 1
# memory_mb = 2048
"""

_PACKAGE = """
[task]
name = "{name}"
description = "{description}"
"""

# python, because agents that are written in Python should run in Docker too. In the sandbox, the
# host's own /usr stands in for this image unless --base names another.
_DOCKERFILE = """\
FROM python:3.12-slim
WORKDIR /app
"""

_SOLUTION = """\
#!/bin/bash
# The reference solution, which only the oracle agent runs: it shows that the task can be solved.
{edit}set -e
{command} > /app/answer.txt
"""

_TEST = """\
#!/bin/bash
# Runs after the agent, in /app, and writes the reward, from 0 to 1. Whatever happens, a reward must
# be written: without one, the trial is errored. What is printed here is kept with the trial.
{edit}expected={expected}
found=$(cat /app/answer.txt 2>&1)
if [ "$found" = "$expected" ]; then
    echo "PASSED: /app/answer.txt is $expected"
    echo 1 > /logs/verifier/reward.txt
else
    echo "FAILED: /app/answer.txt: expected $expected, found: $found"
    echo 0 > /logs/verifier/reward.txt
fi
"""


def render_task(name: str) -> Mapping[str, str]:
    """Return the files of a new task by their paths; scripts start with `#!`.

    The task is the smallest one that works, with comments where to edit it. The agent reads the
    whole instruction, so that has none.

    Args:
        name: `name`, or `organisation/name` to publish it under.

    Raises:
        TaskError: it is neither.
    """
    if not _NAME.fullmatch(name):
        raise TaskError(
            f"task name {name!r}: expected NAME or ORGANISATION/NAME of letters, digits, '.', '_' "
            "and '-', each beginning with a letter or digit"
        )
    description = "Write a word to a file."
    package = _PACKAGE.format(name=name, description=description) if "/" in name else ""
    title = name.rpartition("/")[2]
    return {
        "task.toml": _CONFIG.format(title=f"Settings of the task {title}", package=package),
        "instruction.md": f"# {title}\n\nWrite the word `done` to `/app/answer.txt`.\n",
        "environment/Dockerfile": "# Edit: install what the task needs, and COPY files of this "
        f"directory that it starts with.\n{_DOCKERFILE}",
        "solution/solve.sh": _SOLUTION.format(
            edit="# Edit: replace the last line by commands that solve your task.\n",
            command="echo done",
        ),
        "tests/test.sh": _TEST.format(
            edit="# Edit: replace what follows by tests of your task.\n", expected="done"
        ),
    }


def render_example() -> Mapping[str, str]:
    """Return the files of an example by their paths: a task to add up the numbers in a file."""
    return {
        "task.toml": _CONFIG.format(title="An example", package=""),
        "instruction.md": "The file `/app/numbers.txt` has one whole number on each line.\n\n"
        "Write the sum of these numbers to `/app/answer.txt`.\n",
        "environment/Dockerfile": f"{_DOCKERFILE}COPY numbers.txt /app/\n",
        "environment/numbers.txt": "17\n4\n21\n",
        "solution/solve.sh": _SOLUTION.format(
            edit="", command="awk '{ sum += $1 } END { print sum }' /app/numbers.txt"
        ),
        "tests/test.sh": _TEST.format(edit="", expected="42"),
    }
